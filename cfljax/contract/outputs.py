"""Compare the outputs of runs that must agree. Each function returns what is wrong in a line; "" if
nothing is."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.engine.outputs import Output
from cfljax.lazy import jax
from cfljax.quantity import Quantity
from cfljax.types import Federation

FINITE = ("accuracy", "loss", "accuracy_worst10", "bytes_up", "bytes_down", "clusters")
"""Quantities that are finite in every evaluation."""
FINITE_LATER = ("train_loss", "discrepancy")
"""Quantities that are finite from the first round on."""


def list_arrays(output: Output) -> dict[str, np.ndarray]:
    """Return all arrays of an output by name, timings aside."""
    kept = {name: value for name, value in output._asdict().items() if name != "seconds"}
    kept["last"] = output.last._asdict() | {"spent": None}
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(kept)
    }


def list_unlike(one: Output, other: Output) -> list[str]:
    """List the names of the arrays of two outputs that are not the same bits."""
    left, right = list_arrays(one), list_arrays(other)
    differ = [
        name for name in left if name in right and left[name].tobytes() != right[name].tobytes()
    ]
    return [*differ, *sorted(left.keys() ^ right.keys())]


def describe_history(output: Output, rounds: int, clients: int) -> str:
    """Say what is missing or not finite in the output of a run of that many rounds, evaluated after
    each, on that many clients."""
    history = output.history
    if history["round"].tolist() != list(range(rounds + 1)):
        return f"it was evaluated in rounds {history['round'].tolist()}, not 0 to {rounds}"
    if output.diverged_at >= 0:
        return f"it diverged in round {output.diverged_at}"
    for names, first in ((FINITE, 0), (FINITE_LATER, 1)):
        for name in names:
            broken = ~np.isfinite(history[name][first:])
            if broken.any():
                return f"{name} is not finite in round {int(np.argmax(broken)) + first}"
    if not np.isfinite(output.models).all():
        return "the models of the end are not finite"
    labels = output.labels
    if labels.shape != (rounds + 1, clients):
        return f"labels have the shape {labels.shape}, not {(rounds + 1, clients)}"
    if labels.min() < -1 or labels.max() >= len(output.models):
        return f"labels are from {labels.min()} to {labels.max()}, of {len(output.models)} models"
    return ""


def describe_undeclared(output: Output, declared: dict[str, Quantity]) -> str:
    """Say which diagnostics of a run are not among those that are declared."""
    names = sorted(set(output.diag) - set(declared))
    return f"not declared: {', '.join(names)}" if names else ""


def describe_difference(one: Output, other: Output) -> str:
    """Say which arrays of two outputs are not the same bits."""
    names = [name.strip("[]'").replace("']['", "/") for name in list_unlike(one, other)]
    shown = ", ".join(names[:3])
    return f"not the same bits: {shown}{', …' if len(names) > 3 else ''}" if names else ""


def describe_padding(plain: Output, padded: Output) -> str:
    """Say what dummies behind the clients and samples that nobody holds have changed."""
    clients = plain.labels.shape[1]
    if (padded.labels[:, clients:] != -1).any():
        return "dummies have labels, and must have −1"
    if not np.array_equal(plain.labels, padded.labels[:, :clients]):
        return "the labels of clients differ"
    if not np.array_equal(plain.history["bytes_up"], padded.history["bytes_up"]):
        return "the bytes sent differ"
    # Where each client has its own model, dummies have one, too
    own = len(padded.models) == padded.labels.shape[1]
    models = padded.models[:clients] if own else padded.models
    return _describe_numbers(plain, padded, plain.models, models)


def describe_order(plain: Output, moved: Output, order: np.ndarray) -> str:
    """Say what another order of clients has changed. `order` i[C]: client i of `moved` is client
    order[i] of `plain`."""
    # Personal models are numbered by the position of their client
    personal = np.array_equal(plain.labels[-1], np.arange(len(order)))
    if not personal and not np.array_equal(plain.labels[:, order], moved.labels):
        return "the labels of clients differ"
    models = plain.models[order] if personal else plain.models
    return _describe_numbers(plain, moved, models, moved.models)


def _describe_numbers(one: Output, other: Output, models: np.ndarray, others: np.ndarray) -> str:
    """Say whether accuracies or models differ by more than rounding."""
    left, right = one.history["accuracy"], other.history["accuracy"]
    if not np.allclose(left, right, atol=1e-6):
        return f"the mean accuracy differs by {np.abs(left - right).max():.2g}"
    if models.shape != others.shape:
        return f"models have the shapes {models.shape} and {others.shape}"
    if not np.allclose(models, others, atol=1e-5):
        return f"the models differ by {np.abs(models - others).max():.2g}"
    return ""


def describe_broken_client(output: Output, client: int) -> str:
    """Say what a client whose samples are NaN has broken besides itself."""
    if output.diverged_at >= 0:
        return f"the run diverged in round {output.diverged_at}"
    if not output.history["nonfinite"][-1] > 0:
        return "no update is counted as broken (nonfinite)"
    if not np.isfinite(output.history["accuracy"]).all():
        return "the accuracy is not finite"
    labels = output.labels[-1]
    used = np.unique(labels[(np.arange(len(labels)) != client) & (labels >= 0)])
    return "" if np.isfinite(output.models[used]).all() else "models of the others are not finite"


def describe_learning(output: Output) -> str:
    """Say whether the loss of a run has not fallen."""
    loss = output.history["loss"]
    last = len(loss) - 1
    if loss[-1] < loss[0]:
        return ""
    return f"the loss is {loss[0]:.4g} before the rounds and {loss[-1]:.4g} after round {last}"


def break_clients(federation: Federation, *clients: int, value: float = np.nan) -> Federation:
    """Return the same federation with this value in place of the training samples of these clients,
    and of others who share them."""
    x = np.array(federation.pool.x)
    rows = np.asarray(federation.train.rows)
    for client in clients:
        first, count = (
            int(np.asarray(of)[client]) for of in (federation.train.start, federation.train.count)
        )
        x[rows[first : first + count]] = value
    return dataclasses.replace(federation, pool=federation.pool._replace(x=jax.device_put(x)))
