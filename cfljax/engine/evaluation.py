"""The evaluation as a compiled program, which methods whose models have the same shapes share: the
clients and their models, then the scores. Results from a few numbers per client (accuracies,
clustering quality) are computed on the host, in `engine.history`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.engine import metrics
from cfljax.engine.scoring import Scores, least_loss_among, score, score_mixtures
from cfljax.engine.settings import Assembled, Settings, StateView
from cfljax.federation import cohort
from cfljax.lazy import jax, jnp
from cfljax.local.attacks import attackers
from cfljax.types import Array, Federation, Hyper, Model, Split
from cfljax.types.federation import NEVER

# The results of an evaluation: `labels` i32[C]; of the n clients that are evaluated `scoring`
# i32[n] (the model), `correct` f32[n], `loss` f32[n] (sums over their samples), `samples` i32[n]
# (0: not scored), `val/…` the same three for their validation samples where they have some,
# `also/<name>` f32[n] (correct by another model); where only some clients are evaluated `ids`
# i32[n]; `own/<name>` f32[], the metrics of the user
Scored = dict[str, Array]
# The numbers of a run that an evaluation reads. It gets no others, so that runs of different
# methods share its program
SCORED_NUMBERS = ("attack.share", "attack.factor")


class Scene(NamedTuple):
    """The clients that are scored, their samples and their models."""

    # The federation of the clients that are evaluated
    federation: Federation
    test: Split
    # bool[n]: the clients that are scored
    who: Array
    # i32[n]: the model that each client belongs to; −1: none yet
    labels: Array
    # i32[n]: the model that each client is scored by
    scoring: Array
    # f32[n, K]: the mixture of models that each client is scored by, instead of one model
    weights: Array | None


def make_evaluation(
    model: Model, settings: Settings, chooses: bool
) -> Callable[[StateView, Hyper, Federation, Array], Scored]:
    """Make the program evaluate(view, hyper, federation, round) -> Scored, of one run. `chooses`:
    whether there are clients that never train, and these choose their model (`Method.chooses`)."""

    def evaluate(view: StateView, hyper: Hyper, federation: Federation, t: Array) -> Scored:
        federation = federation.at(t)
        scored: Scored = {"labels": _labels(view, federation)}
        ids = list_evaluated(settings, federation)
        scored |= {} if isinstance(ids, slice) else {"ids": ids}
        scene = make_scene(model, settings, chooses, view, ids, hyper, federation, t)
        scores = _scores(model, settings, scene, view.models, scene.test)
        scored |= {"scoring": scene.scoring, **scores._asdict()}
        if scene.federation.valid is not None:
            on_validation = _scores(model, settings, scene, view.models, scene.federation.valid)
            scored |= {f"val/{name}": each for name, each in on_validation._asdict().items()}
            seen = _show(model, scene, scene.federation.valid, view, on_validation, t)
            found = metrics.own_metrics(settings.val_metrics, seen)
            scored |= {f"own/val_{name}": value for name, value in found.items()}
        trains = scene.who & (scene.federation.train.count > 0)
        for name, (models, which) in view.also.items():
            by_other = score(
                model, scene.federation, scene.test, models, which[ids], trains, settings.sequential
            )
            scored[f"also/{name}"] = by_other.correct
        seen = _show(model, scene, scene.test, view, scores, t)
        found = metrics.own_metrics(settings.metrics, seen)
        return scored | {f"own/{name}": value for name, value in found.items()}

    return evaluate


def _show(
    model: Model, scene: Scene, split: Split, view: StateView, scores: Scores, t: Array
) -> metrics.Seen:
    """Return what the user's metrics see after t rounds. `scores`: of the samples of the split."""
    return metrics.Seen(
        model,
        scene.federation,
        split,
        view.models,
        scene.labels,
        scene.scoring,
        scene.who,
        *scores,
        round=t,
    )


def strip_settings(settings: Settings) -> Settings:
    """Remove the settings that no evaluation depends on; runs with equal results share its
    program."""
    return settings.of_programs.without(
        "participants", "discrepancy", "vector_up", "vector_down", "clock", "asynchronous"
    )


def chooses(parts: Assembled) -> bool:
    """HOST. Return whether clients without training data choose a model; federations of one shape
    may differ in this."""
    federation = parts.federation
    return parts.method.chooses and bool(
        np.any((np.asarray(federation.uid) >= 0) & (np.asarray(federation.train.count) == 0))
    )


def strip_training(federation: Federation) -> Federation:
    """Remove what only training needs from the federation."""
    return dataclasses.replace(
        federation, devices=None, train=dataclasses.replace(federation.train, grams=None)
    )


def _scores(model: Model, settings: Settings, scene: Scene, models: Array, split: Split) -> Scores:
    if scene.weights is None:
        return score(
            model, scene.federation, split, models, scene.scoring, scene.who, settings.sequential
        )
    return score_mixtures(
        model, scene.federation, split, models, scene.weights, scene.who, settings.sequential
    )


def list_evaluated(settings: Settings, federation: Federation) -> Array | slice:
    """Return the clients that are evaluated, i32[n], the same ones each time and no newcomers; a
    slice: all."""
    if settings.eval_clients is None or settings.eval_clients >= federation.clients:
        return slice(None)
    # The key is no run's: all runs are scored on the same clients. Without the sign bit, −1 is
    # below all scores
    drawn = (keys.scores(keys.root(0), "eval_clients", federation.uid) >> 1).astype(jnp.int32)
    return cohort.select_highest(
        jnp.where(federation.real & (federation.arrive < NEVER), drawn, -1), settings.eval_clients
    )


def _labels(view: StateView, federation: Federation) -> Array:
    """Return the model that each client belongs to, i32[C]; newcomers belong to none."""
    return jnp.where(federation.real & (federation.arrive < NEVER), view.labels, -1)


def make_scene(
    model: Model,
    settings: Settings,
    chooses: bool,
    view: StateView,
    ids: Array | slice,
    hyper: Hyper,
    federation: Federation,
    t: Array,
) -> Scene:
    """Return the clients that are scored after t rounds, their samples and models. `ids`: from
    `list_evaluated`."""
    models = view.models
    labels = _labels(view, federation)
    weights = view.mixture
    in_use = (
        jnp.zeros(models.shape[0], bool)
        .at[jnp.where(labels >= 0, labels, models.shape[0])]
        .set(True, mode="drop")
    )
    scoring = labels if view.guess is None else view.guess
    # From here on only these clients
    if not isinstance(ids, slice):
        federation = federation.take(ids)
        labels = labels[ids]
        scoring = scoring[ids]
        weights = None if weights is None else weights[ids]
    scoring, test = _let_test_clients_choose(
        model, settings, chooses, federation, models, in_use, jnp.maximum(scoring, 0)
    )
    who = federation.real & (federation.arrive <= t)
    if settings.score == "assigned":
        who = who & (labels >= 0)
    # Attackers are not scored
    if settings.sending.attack is not None:
        who = who & ~attackers(settings.sending.attack, hyper, federation)
    if weights is not None and chooses:
        weights = jnp.where(
            _never_train(federation)[:, None], jax.nn.one_hot(scoring, models.shape[0]), weights
        )
    return Scene(federation, test, who, labels, scoring, weights)


def _let_test_clients_choose(
    model: Model,
    settings: Settings,
    chooses: bool,
    federation: Federation,
    models: Array,
    in_use: Array,
    scoring: Array,
) -> tuple[Array, Split]:
    """Let clients that never train choose: the model in use with the smallest loss on the first
    half of their test samples. Scores leave that half out, also with methods in which no client
    chooses. With "test_loss" they choose and are scored on all samples. Return the model that each
    client is scored by, i32[C], and the samples that it is scored on."""
    scored_on = federation.test
    chosen_by = federation.test
    untrained = _never_train(federation)
    if settings.test_choice == "holdout":
        half = jnp.where(untrained, (scored_on.count + 1) // 2, 0)
        chosen_by = dataclasses.replace(scored_on, count=half)
        scored_on = dataclasses.replace(
            scored_on, start=scored_on.start + half, count=scored_on.count - half
        )
    if models.shape[0] == 1 or not chooses:
        return scoring, scored_on
    # All models, if none is in use
    candidates = in_use | ~jnp.any(in_use)
    chosen = least_loss_among(
        model, federation, chosen_by, models, candidates, untrained, settings.sequential
    )
    return jnp.where(untrained, chosen, scoring), scored_on


def _never_train(federation: Federation) -> Array:
    return federation.real & (federation.train.count == 0)
