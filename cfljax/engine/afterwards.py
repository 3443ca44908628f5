"""The last step of a run: clients are scored after some steps of local training from the model that
each is given.

Newcomers, who have taken part in no round, are each placed by the method and scored, and scored
again after some steps on their few labelled samples. With `train.finetune_steps` each client that
an evaluation scores first trains the whole model that it is given on its own training samples;
nothing else in the run uses the result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices.compiled import compile_later
from cfljax.devices.placement import put_on_mesh
from cfljax.engine import groups, metrics
from cfljax.engine.evaluation import chooses, list_evaluated, make_scene
from cfljax.engine.groups import Group, fetch
from cfljax.engine.history import Clients, extract_clients, to_scores
from cfljax.engine.program import enter_round, make_program, over_runs
from cfljax.engine.scoring import Scores, least_loss_among, score, score_mixtures
from cfljax.engine.settings import Assembled, FineTuning
from cfljax.lazy import jax, jnp
from cfljax.local.rates import at_round
from cfljax.local.schedule import Work
from cfljax.types import Array, Federation, Hyper, Jobs, Method, Split, Tree
from cfljax.types.federation import NEVER

TEST = ""
VALIDATION = "val_"
"""What names of scores on these samples begin with."""


class ClientModels(NamedTuple):
    """The models that clients have."""

    # f32[K, d]
    models: Array
    # i32[C]: the model of each; with a mixture the model of the largest weight
    which: Array
    # f32[C, K], for methods whose clients mix models
    mixture: Array | None


class FinalEvaluation(NamedTuple):
    """What an evaluation after the last round begins with: clients before their steps."""

    federation: Federation
    # The samples that they are scored on: those of the TEST set, and perhaps those of VALIDATION
    splits: dict[str, Split]
    # bool[C]: the clients that are trained and scored
    who: Array
    at: ClientModels


# (parts, state, hyper, rounds i32[], federation) -> the clients at the end. `rounds`: how many the
# run has done
PlaceClients = Callable[[Assembled, Tree, Hyper, Array, Federation], FinalEvaluation]
# Of n clients: `place` i32[n], the model of each, and for each of E numbers of steps `correct`
# f32[n, E] of `samples` i32[n] test samples; where they are scored on validation samples, too,
# `val_correct` and `val_samples`
FinalScores = dict[str, np.ndarray]


def make_end(
    parts: Assembled, tuning: FineTuning, name: str, place: PlaceClients
) -> Callable[..., dict[str, Array]]:
    """Make the program of one run: (key, state, hyper, rounds i32[], federation) -> FinalScores.
    `name`: of its random keys."""
    everybody = np.array(tuning.ids, np.int32)
    number = len(everybody)
    width = batch_width(parts, tuning)
    # The last block is filled up with clients that are masked
    blocks = jnp.asarray(np.resize(everybody, (-(-number // width), width)))
    real = jnp.arange(blocks.size).reshape(blocks.shape) < number

    def end(
        key: Array, state: Tree, hyper: Hyper, rounds: Array, federation: Federation
    ) -> dict[str, Array]:
        state, federation = enter_round(parts.method, state, federation, rounds)
        clients = place(parts, state, hyper, rounds, federation)
        at = clients.at
        seed = keys.fold(key, name)

        def train_block(block: tuple[Array, Array]) -> dict[str, Array]:
            ids, mask = block
            own = clients.federation.take(ids)
            own = dataclasses.replace(own, uid=jnp.where(mask, own.uid, -1))
            mixture = None if at.mixture is None else at.mixture[ids]
            of_block = FinalEvaluation(
                own,
                {name: split.take(ids) for name, split in clients.splits.items()},
                clients.who[ids] & own.real,
                at._replace(which=at.which[ids], mixture=mixture),
            )
            return _train_and_score(parts, tuning, seed, of_block, hyper)

        found = jax.lax.map(train_block, (blocks, real))
        scores = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:])[:number], found)
        return {"place": at.which[everybody], **scores}

    return end


def batch_width(parts: Assembled, tuning: FineTuning) -> int:
    """Return the number of clients that train at a time: at most the participants of a round, so
    that their memory suffices."""
    return max(1, min(len(tuning.ids), parts.plan.stream or parts.settings.participants))


def _train_and_score(
    parts: Assembled, tuning: FineTuning, key: Array, clients: FinalEvaluation, hyper: Hyper
) -> dict[str, Array]:
    """Train and score n clients. Return on each split `correct` f32[n, E], and the numbers of its
    samples i32[n]."""
    own, splits, who, at = clients
    found: list[dict[str, Scores]] = []
    sequential = parts.settings.sequential
    index = jnp.arange(own.clients, dtype=jnp.int32)
    jobs = Jobs(index, who, jnp.ones(own.clients), at.models, at.which)
    for number in tuning.steps:
        models, which = at.models, at.which
        if not number and at.mixture is not None:
            found.append(
                {
                    name: score_mixtures(
                        parts.model, own, split, models, at.mixture, who, sequential
                    )
                    for name, split in splits.items()
                }
            )
            continue
        if number:
            # Each number of steps begins at the start again, with the same batches
            trained = tuning.solver.with_work(Work(None, number, tuning.solver.work.batch))
            models = models[which] + trained.train(key, own, jobs, hyper).delta
            which = index
        found.append(
            {
                name: score(parts.model, own, split, models, which, who, sequential)
                for name, split in splits.items()
            }
        )
    correct = {
        f"{name}correct": jnp.stack([each[name].correct for each in found], axis=1)
        for name in splits
    }
    return correct | {f"{name}samples": found[0][name].samples for name in splits}


def score_at_end(
    parts: Assembled,
    tuning: FineTuning,
    name: str,
    place: PlaceClients,
    whole: Group,
    state: Tree,
    rounds: np.ndarray,
    federation: Federation,
) -> tuple[list[FinalScores], float]:
    """HOST. Train and score clients after the last round.

    Args:
      parts: The batch.
      tuning: Which clients, after which numbers of steps.
      name: The name of the random keys.
      place: Gives the clients their models.
      whole: The starting point of all runs.
      state: The final state of all runs, on the host.
      rounds: i64[R] how many rounds each run has done.
      federation: On the devices.

    Returns:
      The scores of each run, and the seconds of compiling.
    """
    runs = whole.keys.shape[0]
    mesh = parts.mesh
    settings = parts.settings
    size = groups.group_width(parts, runs)
    arguments = (whole.keys, state, whole.hyper, rounds.astype(np.int32))
    of_group = groups.add_runs(groups.drop_runs(arguments), size)
    forms = (*groups.shapes_of(of_group, mesh, True), groups.shapes_of(federation, mesh, False))
    key = None
    if parts.program_key is not None:
        key = (
            parts.program_key,
            parts.model_key,
            parts.plan,
            settings.of_programs,
            chooses(parts),
            name,
            *tuning[:2],
            tuning.unlabelled,
            tuning.by_entropy,
            mesh,
        )
    f = jax.jit(over_runs(make_end(parts, tuning, name, place), settings, mesh, 4))
    begin = time.perf_counter()
    program = compile_later(f, forms, key).result()
    seconds = time.perf_counter() - begin
    found: list[FinalScores] = []
    for at in range(0, runs, size):
        of_runs = put_on_mesh(groups.slice_runs(arguments, at, size), mesh, True)
        scored = fetch(program(*of_runs, federation))
        found += [{key: each[r] for key, each in scored.items()} for r in range(size)]
    return found, seconds


def place_newcomers(
    parts: Assembled, state: Tree, hyper: Hyper, rounds: Array, federation: Federation
) -> FinalEvaluation:
    """Return all clients after the rounds, on the axis of all clients, with newcomers where the
    method places them."""
    everybody = dataclasses.replace(
        federation, arrive=jnp.where(federation.arrive == NEVER, 0, federation.arrive)
    )
    at = _place_clients(parts, state, at_round(hyper, rounds), everybody)
    return FinalEvaluation(everybody, {TEST: everybody.test}, everybody.real, at)


def _place_clients(
    parts: Assembled, state: Tree, hyper: Hyper, federation: Federation
) -> ClientModels:
    """Place newcomers as the method does, on the axis of all clients: by its mixture or its
    `score`, by their label, otherwise by the least loss on their labelled samples among the models
    in use; or `by_entropy` alone, among these models."""
    assert parts.newcomers is not None
    by_entropy = parts.newcomers.by_entropy
    method: Method = parts.method
    ids = jnp.asarray(parts.newcomers.ids, jnp.int32)
    models, labels = method.models(state)
    if method.adapt is not None and not by_entropy:
        models = method.adapt(state, federation, hyper)
    if method.mixture is not None and not by_entropy:
        mixture = method.mixture(state, federation, hyper)
        return ClientModels(models, jnp.argmax(mixture, axis=1).astype(jnp.int32), mixture)
    which = labels
    if not by_entropy and method.score is not None and not method.newcomers_choose:
        which = method.score(state, federation, hyper)
    if (method.chooses or by_entropy) and models.shape[0] > 1:
        new = jnp.zeros(labels.shape, bool).at[ids].set(True)
        of_others = jnp.where((labels >= 0) & ~new, labels, models.shape[0])
        in_use = jnp.zeros(models.shape[0], bool).at[of_others].set(True, mode="drop")
        candidates = in_use | ~jnp.any(in_use)
        without = new & (which < 0)
        model = parts.model._replace(loss=_entropy) if by_entropy else parts.model
        best = least_loss_among(
            model,
            federation,
            federation.train,
            models,
            candidates,
            without,
            parts.settings.sequential,
        )
        which = jnp.where(without, best, which)
    return ClientModels(models, jnp.maximum(which, 0), None)


def _entropy(logits: Array, y: Array) -> Array:
    """Return f32[B]: the entropy of the classes that the model predicts, used as a loss; of several
    labels the sum of their entropies."""
    if logits.shape[-1] == 1 or y.ndim > 1:
        return jnp.sum(jax.nn.softplus(logits) - logits * jax.nn.sigmoid(logits), axis=-1)
    return -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)


def score_newcomers(
    parts: Assembled, whole: Group, state: Tree, rounds: np.ndarray, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. Return (`accuracy_new_<steps>` or `accuracy_new_unlabelled`, and `ari_new` of each run;
    seconds of compiling). Arguments as for `score_at_end`."""
    if parts.newcomers is None:
        return [{}] * whole.keys.shape[0], 0.0
    found, seconds = score_at_end(
        parts, parts.newcomers, "newcomers", place_newcomers, whole, state, rounds, federation
    )
    ids = list(parts.newcomers.ids)
    summaries = []
    for each, last in zip(found, rounds, strict=True):
        group = np.asarray(parts.federation.at(int(last)).group)[ids]
        steps = ("unlabelled",) if parts.newcomers.unlabelled else parts.newcomers.steps
        summaries.append(_summarise_newcomers(each, steps, group, parts.federation.groups))
    return summaries, seconds


def _summarise_newcomers(
    scored: FinalScores, steps: tuple[int | str, ...], group: np.ndarray, groups: int
) -> dict[str, float]:
    found = {
        f"accuracy_new_{number}": float(metrics.per_sample(correct, scored["samples"]))
        for number, correct in zip(steps, scored["correct"].T, strict=True)
    }
    place = scored["place"]
    clustering = metrics.score_clustering(place, group, int(place.max()) + 1, groups)
    return found | {"ari_new": float(clustering.ari)}


def place_scored(
    parts: Assembled, state: Tree, hyper: Hyper, rounds: Array, federation: Federation
) -> FinalEvaluation:
    """Return the clients that the last evaluation scores, with their models, and the test and
    validation samples. A client that mixes models starts from the one with the largest weight."""
    settings = parts.settings
    view = make_program(parts.method, parts.settings).view(state, hyper, federation, rounds)
    ids = list_evaluated(settings, federation)
    scene = make_scene(parts.model, settings, chooses(parts), view, ids, hyper, federation, rounds)
    which = scene.scoring
    if scene.weights is not None:
        which = jnp.argmax(scene.weights, axis=1).astype(jnp.int32)
    at = ClientModels(view.models, which, scene.weights)
    splits = {TEST: scene.test}
    if scene.federation.valid is not None:
        splits[VALIDATION] = scene.federation.valid
    return FinalEvaluation(scene.federation, splits, scene.who, at)


def score_finetuned(
    parts: Assembled, whole: Group, state: Tree, rounds: np.ndarray, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. Return (`accuracy_finetuned` and its spread, and with validation samples
    `val_accuracy_finetuned`, of each run; seconds of compiling). Arguments as for
    `score_at_end`."""
    if parts.finetuned is None:
        return [{}] * whole.keys.shape[0], 0.0
    found, seconds = score_at_end(
        parts, parts.finetuned, "finetune", place_scored, whole, state, rounds, federation
    )
    clients = extract_clients(parts.federation, parts.model.score)
    return [_summarise_finetuned(clients, each) for each in found], seconds


def _summarise_finetuned(clients: Clients, scored: FinalScores) -> dict[str, float]:
    sides = {"": "", VALIDATION: "val/"} if f"{VALIDATION}correct" in scored else {"": ""}
    sums = {f"{to}correct": scored[f"{side}correct"][:, 0] for side, to in sides.items()}
    samples = {f"{to}samples": scored[f"{side}samples"] for side, to in sides.items()}
    scored = to_scores(clients, sums | samples)
    fair = metrics.fairness(scored["correct"], scored["samples"])
    summary = {
        "accuracy_finetuned": float(fair.accuracy),
        "accuracy_worst10_finetuned": float(fair.worst_tenth),
        "accuracy_client_std_finetuned": float(fair.client_std),
    }
    if "val/correct" in scored:
        accuracy = metrics.per_sample(scored["val/correct"], scored["val/samples"])
        summary["val_accuracy_finetuned"] = float(accuracy)
    return {clients.score.rename(name): value for name, value in summary.items()}
