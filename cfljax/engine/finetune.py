"""The last score of a run with `train.finetune_steps`: each client that an evaluation scores first trains the whole model that it
is given on its own training samples. Nothing else in the run uses the result."""

from __future__ import annotations

import numpy as np

from cfljax.engine import metrics
from cfljax.engine.afterwards import Placed, Stage, score_at_end
from cfljax.engine.evaluation import list_evaluated, make_scene, some_never_train
from cfljax.engine.groups import Group
from cfljax.engine.program import make_program
from cfljax.engine.settings import Assembled
from cfljax.lazy import jnp
from cfljax.types import Array, Federation, Hyper, Tree


def place(parts: Assembled, state: Tree, hyper: Hyper, rounds: Array, federation: Federation) -> Stage:
    """Return the clients that the last evaluation scores, with their models and test samples. A client that mixes models starts
    from the one with the largest weight."""
    settings, chooses = parts.settings, parts.method.chooses and some_never_train(parts.federation)
    view = make_program(parts.method, settings).view(state, hyper, federation, rounds)
    scene = make_scene(parts.model, settings, chooses, view, list_evaluated(settings, federation), hyper, federation, rounds)
    which = scene.scoring if scene.weights is None else jnp.argmax(scene.weights, axis=1).astype(jnp.int32)
    return Stage(scene.federation, scene.test, scene.who, Placed(view.models, which, scene.weights))


def score_finetuned(
    parts: Assembled, whole: Group, state: Tree, rounds: np.ndarray, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. Return (`accuracy_finetuned` and its spread, of each run; seconds of compiling). Arguments as for `score_at_end`."""
    if parts.finetuned is None:
        return [{}] * whole.keys.shape[0], 0.0
    found, seconds = score_at_end(parts, parts.finetuned, "finetune", place, whole, state, rounds, federation)
    return [_summary(each["correct"][:, 0], each["samples"]) for each in found], seconds


def _summary(correct: np.ndarray, samples: np.ndarray) -> dict[str, float]:
    fair = metrics.fairness(correct, samples)
    return {
        "accuracy_finetuned": float(fair.accuracy),
        "accuracy_worst10_finetuned": float(fair.worst_tenth),
        "accuracy_client_std_finetuned": float(fair.client_std),
    }
