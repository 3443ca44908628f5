"""An evaluation inside the compiled program: one row of the history."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.engine import metrics
from cfljax.engine.scoring import Scores, least_loss_among, score, score_mixtures
from cfljax.engine.settings import HOPELESS, Carry, Settings
from cfljax.federation import cohort
from cfljax.local.send import as_trained_on, attackers
from cfljax.types import Array, Federation, Hyper, Method, Model, Split, Tree


class Scene(NamedTuple):
    """Who is scored, on what, and by which models."""

    federation: Federation
    """The federation of the clients that are evaluated."""
    ids: Array | slice
    """i32[n] their positions among all clients; a slice: they are all clients."""
    who: Array
    """bool[n]: who is scored."""
    test: Split
    labels: Array
    """i32[n]: the model that each client belongs to; −1: none yet."""
    scoring: Array
    """i32[n]: the model that each client is scored by."""
    weights: Array | None
    """f32[n, K]: the mixture of models that each client is scored by, in place of one model."""


def evaluate(
    method: Method, model: Model, settings: Settings, carry: Carry, federation: Federation, hyper: Hyper, t: Array
) -> tuple[Carry, dict[str, Array]]:
    """(carry, one row of the history) after t rounds. `hyper`: that of the next round."""
    models, labels = method.models(carry.state)
    labels = jnp.where(federation.real, labels, -1)
    truth = jnp.where(federation.real, federation.group, -1)
    clustering = metrics.clustering(labels, truth, models.shape[0], federation.groups)
    in_use = jnp.zeros(models.shape[0], bool).at[jnp.where(labels >= 0, labels, models.shape[0])].set(True, mode="drop")
    scene = _scene(method, model, settings, carry.state, federation, hyper, t, models, labels, in_use)
    if scene.weights is None:
        scores = score(model, scene.federation, scene.test, models, scene.scoring, scene.who, settings.sequential)
    else:
        scores = score_mixtures(model, scene.federation, scene.test, models, scene.weights, scene.who, settings.sequential)
    loss, info = metrics.mean_loss(scores.loss, scores.samples), carry.info
    row = {
        **_accuracies(scene, scores, models.shape[0]),
        "loss": loss,
        "train_loss": jnp.where(t > 0, info.train_loss, jnp.nan),
        "discrepancy": jnp.where(t > 0, info.discrepancy if settings.discrepancy == "after" else info.drift, jnp.nan),
        **clustering._asdict(),
        "clusters": jnp.sum(in_use).astype(jnp.float32),
        "scored": jnp.sum(scores.samples > 0).astype(jnp.float32),
        "nonfinite": carry.nonfinite.astype(jnp.float32),
        "traffic": carry.traffic,
        **{f"diag/{name}": each for name, each in (info.diag | _also(method, model, settings, carry.state, scene)).items()},
    }
    seen = metrics.Seen(model, scene.federation, scene.test, models, scene.labels, scene.scoring, scene.who, *scores, t)
    row |= metrics.own(settings.metrics, seen, row)
    if settings.label_history:
        row["labels"] = labels
    blown_up = ~(loss < HOPELESS) & jnp.any(scores.samples > 0) & (carry.diverged_at < 0)
    diverged_at = jnp.where(blown_up, t, carry.diverged_at)
    each = carry.client_accuracy.at[scene.ids].set(metrics.client_accuracy(scores.correct, scores.samples))
    return carry._replace(diverged_at=diverged_at, client_accuracy=each), row


def _scene(
    method: Method,
    model: Model,
    settings: Settings,
    state: Tree,
    federation: Federation,
    hyper: Hyper,
    t: Array,
    models: Array,
    labels: Array,
    in_use: Array,
) -> Scene:
    """`labels` i32[C]: −1 for dummies, too; `in_use` bool[K]: models that clients belong to."""
    guess = None if settings.score == "assigned" else method.score
    whole: Federation = as_trained_on(settings.sending, hyper, federation)
    ids: Array | slice = slice(None)
    if settings.eval_clients is not None and settings.eval_clients < federation.clients:
        ids = some = _sample(federation, settings.eval_clients)  # the work from here on is that of these clients
        federation, labels = federation.take(some), labels[some]
        whole = dataclasses.replace(whole, uid=jnp.full_like(whole.uid, -1).at[some].set(whole.uid[some]))
    scoring = jnp.maximum(labels if guess is None else guess(state, whole, hyper)[ids], 0)
    chosen, test = _test_only(method, model, settings, federation, models, in_use, scoring)
    who = federation.real & (federation.arrive <= t)
    if settings.score == "assigned":
        who = who & (labels >= 0)
    if settings.sending.attack:  # an attacker is not whom the method is for
        who = who & ~attackers(settings.sending, hyper, federation)
    weights = None if method.mixture is None else method.mixture(state, whole, hyper)[ids]
    if weights is not None and method.chooses:
        weights = jnp.where(_untrained(federation)[:, None], jax.nn.one_hot(chosen, models.shape[0]), weights)
    return Scene(federation, ids, who, test, labels, chosen, weights)


def _test_only(
    method: Method, model: Model, settings: Settings, federation: Federation, models: Array, in_use: Array, scoring: Array
) -> tuple[Array, Split]:
    """(i32[C], test split) with the choice of clients that never train: the model in use with the smallest loss on the first half
    of their test samples. Scores leave that half out, also with methods that let nobody choose. With "test_loss" they choose and
    are scored on all samples."""
    test, seen, untrained = federation.test, federation.test, _untrained(federation)
    if settings.test_choice == "holdout":
        half = jnp.where(untrained, (test.count + 1) // 2, 0)
        seen = dataclasses.replace(test, count=half)
        test = dataclasses.replace(test, start=test.start + half, count=test.count - half)
    if models.shape[0] == 1 or not method.chooses:
        return scoring, test
    chosen = least_loss_among(model, federation, seen, models, in_use | ~jnp.any(in_use), untrained, settings.sequential)
    return jnp.where(untrained, chosen, scoring), test


def _untrained(federation: Federation) -> Array:
    """bool[C]: real clients that never train."""
    return federation.real & (federation.train.count == 0)


def _accuracies(scene: Scene, scores: Scores, clusters: int) -> dict[str, Array]:
    federation, fair = scene.federation, metrics.fairness(scores.correct, scores.samples)
    of = lambda some: metrics.fairness(scores.correct, jnp.where(some, scores.samples, 0)).accuracy  # noqa: E731
    return {
        "accuracy": fair.accuracy,
        "accuracy_client_mean": fair.client_mean,
        "accuracy_worst10": fair.worst_tenth,
        "accuracy_client_std": fair.client_std,
        "accuracy_newcomers": of(federation.arrive > 0),
        "accuracy_train_clients": of(federation.train.count > 0),
        "accuracy_test_clients": of(federation.train.count == 0),
        "accuracy_clusters": metrics.cluster_accuracy(scene.scoring, scores.correct, scores.samples, clusters),
    }


def _also(method: Method, model: Model, settings: Settings, state: Tree, scene: Scene) -> dict[str, Array]:
    """The accuracy of the other models that clients have, as diagnostics: over the clients that train."""
    if method.also is None:
        return {}
    found, who = {}, scene.who & (scene.federation.train.count > 0)
    for name, (models, labels) in method.also(state).items():
        scores = score(model, scene.federation, scene.test, models, labels[scene.ids], who, settings.sequential)
        found[f"accuracy_{name}"] = metrics.fairness(scores.correct, scores.samples).accuracy
    return found


def _sample(federation: Federation, number: int) -> Array:
    """i32[number]: the clients that stand for all at evaluations, the same ones each time."""
    drawn = (keys.scores(keys.root(0), "eval_clients", federation.uid) >> 1).astype(jnp.int32)
    return cohort.highest(jnp.where(federation.real, drawn, -1), number)
