"""The compiled round: rounds and evaluations in one loop on the device, over an axis of runs. Knows no method by name.

A batch of runs shares one program. `chunk` trains up to `evaluations` evaluations further and is compiled once, whatever the
number of rounds: where to stop is an argument.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.engine import metrics
from cfljax.engine.evaluate import least_loss_among, score
from cfljax.federation import cohort
from cfljax.local.send import Sending, as_trained_on, liars
from cfljax.types import Federation, Hyper, Info, Method, Model, Split, Traffic

WORD = 1 << 20
"""Sums of traffic are kept in two words: a million clients send 2³¹ models in some hundred rounds."""
HOPELESS = 1e6
"""A mean test loss above this, or none that is finite, is a run that has diverged."""


class Settings(NamedTuple):
    """What a program is compiled for, besides shapes: static."""

    rounds: int
    participants: int
    eval_every: int = 1
    evaluations: int = 10
    """Evaluations per chunk."""
    sequential: bool = True
    """Runs one after another (each as if alone: the fast way on a CPU), or side by side."""
    score: str = "all"
    discrepancy: str = "after"
    test_choice: str = "holdout"
    eval_clients: int | None = None
    precision: str = "highest"
    label_history: bool = True
    metrics: tuple[str, ...] = ()
    """The user's own."""
    sending: Sending = Sending()
    vector_up: int | None = None
    """Bytes of an update on its way up; None: four for each number."""


class Carry(NamedTuple):
    """A run between chunks: all that a checkpoint needs, besides the number of rounds done."""

    state: Any
    info: Info
    """Of the last round."""
    traffic: jax.Array
    """i32[4, 2]: each number of Traffic since the start, as multiples of WORD and the rest."""
    nonfinite: jax.Array
    """i32[] broken updates since the start."""
    diverged_at: jax.Array
    """i32[] the round after which nothing finite was left, or −1."""
    client_accuracy: jax.Array
    """f32[C] at the last evaluation."""


class Program(NamedTuple):
    """Pure functions over an axis of runs (a leading R on keys, hyper, setup and Carry); to be jitted."""

    start: Callable[..., Carry]
    """(keys[R], federation, hyper[R], setup[R]) -> Carry[R]."""
    chunk: Callable[..., tuple[Carry, dict[str, jax.Array]]]
    """(carry[R], keys[R], hyper[R], federation, bounds i32[3]) -> (Carry[R], rows[R, E]).

    bounds: done, stop, first. From `done` rounds to `stop`, evaluating after every `eval_every` rounds, after the last one, and at
    the start when `first`; `rows["valid"]` says which rows are filled."""


def make_program(method: Method, model: Model, settings: Settings) -> Program:
    """The program of a method on a model."""

    def start(key: jax.Array, hyper: Hyper, setup: dict[str, jax.Array], federation: Federation) -> Carry:
        state = method.init(key, as_trained_on(settings.sending, hyper, federation), hyper, setup)
        zero = _zeros(jax.eval_shape(lambda s: _round(method, settings, key, s, federation, hyper, jnp.int32(0))[1], state))
        return Carry(state, zero, jnp.zeros((4, 2), jnp.int32), jnp.int32(0), jnp.int32(-1), jnp.full(federation.clients, jnp.nan))

    def chunk(
        carry: Carry, key: jax.Array, hyper: Hyper, federation: Federation, bounds: jax.Array
    ) -> tuple[Carry, dict[str, jax.Array]]:
        done, stop, first = bounds[0], bounds[1], bounds[2] > 0

        def body(t: jax.Array, carry: Carry) -> Carry:
            state, info = _round(method, settings, key, carry.state, federation, hyper, t)
            total = _with(carry.traffic, info.traffic)
            lost = (carry.diverged_at < 0) & info.lost
            diverged_at = jnp.where(lost, t + 1, carry.diverged_at)
            return Carry(state, info, total, carry.nonfinite + info.nonfinite, diverged_at, carry.client_accuracy)

        def segment(at: tuple[Carry, jax.Array, jax.Array], _: None) -> tuple[Any, dict[str, jax.Array]]:
            carry, done, first = at
            next_row = jnp.minimum(settings.rounds, (done // settings.eval_every + 1) * settings.eval_every)
            end = jnp.where(first, done, jnp.minimum(stop, next_row))
            carry = jax.lax.fori_loop(done, end, body, carry)
            due = first | ((end > done) & (end == next_row))
            evaluated = lambda c: _evaluate(method, model, settings, c, federation, hyper, end)  # noqa: E731
            skipped = lambda c: (c, _zeros(jax.eval_shape(evaluated, c)[1]))  # noqa: E731
            carry, row = jax.lax.cond(due, evaluated, skipped, carry)
            return (carry, end, jnp.array(False)), row | {"valid": due, "round": end}

        (carry, _, _), rows = jax.lax.scan(segment, (carry, done, first), length=settings.evaluations)
        return carry, rows

    def over_runs(f: Callable[..., Any], mapped: int) -> Callable[..., Any]:
        def batched(*args: Any) -> Any:
            with jax.default_matmul_precision(settings.precision):
                runs, shared = args[:mapped], args[mapped:]
                if settings.sequential:
                    return jax.lax.map(lambda run: f(*run, *shared), runs)
                return jax.vmap(f, in_axes=(0,) * mapped + (None,) * len(shared))(*args)

        return batched

    return Program(over_runs(start, 3), over_runs(chunk, 3))


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)


def _with(traffic: jax.Array, more: Traffic) -> jax.Array:
    """i32[4, 2]: the sum with that of a round."""
    new = jnp.stack(more)
    high, low = traffic[:, 0] + new // WORD, traffic[:, 1] + new % WORD
    return jnp.stack([high + low // WORD, low % WORD], axis=1)


def _round(
    method: Method, settings: Settings, key: jax.Array, state: Any, federation: Federation, hyper: Hyper, t: jax.Array
) -> tuple[Any, Info]:
    """One round: draw the participants, decay the learning rate, let the method do its work."""
    federation = as_trained_on(settings.sending, hyper, federation)
    key = keys.fold(key, "round", t)
    participants = cohort.draw(key, federation, settings.participants, t, hyper)
    return method.round(key, state, federation, participants, _decayed(hyper, t))


def _decayed(hyper: Hyper, t: jax.Array) -> Hyper:
    """The numbers of round t, with its learning rate."""
    if "lr_decay" not in hyper:
        return hyper
    return hyper | {"lr": hyper["lr"] * hyper["lr_decay"] ** t.astype(jnp.float32)}


def _test_only(
    method: Method,
    model: Model,
    settings: Settings,
    federation: Federation,
    models: jax.Array,
    in_use: jax.Array,
    scoring: jax.Array,
) -> tuple[jax.Array, Split]:
    """(i32[C], test split) with the choice of clients that never train: the model in use with the smallest loss on the first half
    of their test samples, which is then left out of the score (of methods without a choice, too), or ("test_loss") on all."""
    test, seen = federation.test, federation.test
    alone = (federation.train.count == 0) & (federation.uid >= 0)
    if settings.test_choice == "holdout":
        half = jnp.where(alone, (test.count + 1) // 2, 0)
        seen = dataclasses.replace(test, count=half)
        test = dataclasses.replace(test, start=test.start + half, count=test.count - half)
    if models.shape[0] == 1 or not method.chooses:
        return scoring, test
    chosen = least_loss_among(model, federation, seen, models, in_use | ~jnp.any(in_use), alone)
    return jnp.where(alone, chosen, scoring), test


def _also(
    method: Method, model: Model, settings: Settings, state: Any, federation: Federation, test: Split, who: jax.Array, ids: Any
) -> dict[str, jax.Array]:
    """The accuracy of the other models of the clients `ids`, who make up the federation, as diagnostics: of those that train."""
    found, who = {}, who & (federation.train.count > 0)
    for name, (models, labels) in ({} if method.also is None else method.also(state)).items():
        scores = score(model, federation, test, models, labels[ids], who, settings.sequential)
        found[f"accuracy_{name}"] = metrics.fairness(scores.correct, scores.samples).accuracy
    return found


def _evaluate(
    method: Method, model: Model, settings: Settings, carry: Carry, federation: Federation, hyper: Hyper, t: jax.Array
) -> tuple[Carry, dict[str, jax.Array]]:
    """(carry, one row of the history) after t rounds."""
    models, labels = method.models(carry.state)
    labels = jnp.where(federation.uid >= 0, labels, -1)
    truth = jnp.where(federation.uid >= 0, federation.group, -1)
    found = metrics.clustering(labels, truth, models.shape[0], federation.groups)
    in_use = jnp.zeros(models.shape[0], bool).at[jnp.where(labels >= 0, labels, models.shape[0])].set(True, mode="drop")
    guess = None if settings.score == "assigned" else method.score
    whole, everybodys = as_trained_on(settings.sending, hyper, federation), labels
    ids: Any = slice(None)
    if settings.eval_clients is not None and settings.eval_clients < federation.clients:
        ids = _sample(federation, settings.eval_clients)  # from here on, these are all clients there are: the work is theirs
        federation, labels = federation.take(ids), labels[ids]
        whole = dataclasses.replace(whole, uid=jnp.full_like(whole.uid, -1).at[ids].set(whole.uid[ids]))
    scoring = jnp.maximum(labels if guess is None else guess(carry.state, whole, _decayed(hyper, t))[ids], 0)
    scoring, test = _test_only(method, model, settings, federation, models, in_use, scoring)
    who = (federation.uid >= 0) & (federation.arrive <= t)
    if settings.score == "assigned":
        who = who & (labels >= 0)
    if settings.sending.attack:  # whoever lies is not whom the method is for
        who = who & ~liars(settings.sending, hyper, federation)
    scores = score(model, federation, test, models, scoring, who, settings.sequential)
    fair = metrics.fairness(scores.correct, scores.samples)
    loss = metrics.mean_loss(scores.loss, scores.samples)
    of = lambda some: metrics.fairness(scores.correct, jnp.where(some, scores.samples, 0)).accuracy  # noqa: E731
    info = carry.info
    row: dict[str, Any] = {
        "accuracy": fair.accuracy,
        "accuracy_client_mean": fair.client_mean,
        "accuracy_worst10": fair.worst_tenth,
        "accuracy_client_std": fair.client_std,
        "accuracy_newcomers": of(federation.arrive > 0),
        "accuracy_train_clients": of(federation.train.count > 0),
        "accuracy_test_clients": of(federation.train.count == 0),
        "accuracy_clusters": metrics.cluster_accuracy(scoring, scores.correct, scores.samples, models.shape[0]),
        "loss": loss,
        "train_loss": jnp.where(t > 0, info.train_loss, jnp.nan),
        "discrepancy": jnp.where(t > 0, info.discrepancy if settings.discrepancy == "after" else info.drift, jnp.nan),
        "purity": found.purity,
        "ari": found.ari,
        "nmi": found.nmi,
        "clusters": jnp.sum(in_use).astype(jnp.float32),
        "scored": jnp.sum(scores.samples > 0).astype(jnp.float32),
        "nonfinite": carry.nonfinite.astype(jnp.float32),
        "traffic": carry.traffic,
        "diag": info.diag | _also(method, model, settings, carry.state, federation, test, who, ids),
    }
    seen = metrics.Seen(model, federation, test, models, labels, scoring, who, *scores, t)
    row |= metrics.own(settings.metrics, seen, row)
    if settings.label_history:
        row["labels"] = everybodys
    blown_up = ~(loss < HOPELESS) & jnp.any(scores.samples > 0) & (carry.diverged_at < 0)
    diverged_at = jnp.where(blown_up, t, carry.diverged_at)
    each = carry.client_accuracy.at[ids].set(metrics.client_accuracy(scores.correct, scores.samples))
    return carry._replace(diverged_at=diverged_at, client_accuracy=each), row


def _sample(federation: Federation, number: int) -> jax.Array:
    """i32[number]: the clients that stand for all at evaluations, the same ones each time."""
    drawn = (keys.scores(keys.root(0), "eval_clients", federation.uid) >> 1).astype(jnp.int32)
    return cohort.highest(jnp.where(federation.uid >= 0, drawn, -1), number)
