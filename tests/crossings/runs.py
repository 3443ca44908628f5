"""Runs of any method with any set of features: which sets the package takes, and what a run of one
becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from flax import linen

from cfljax import models
from cfljax.config import read_spec
from cfljax.contract.padding import pad
from cfljax.devices.machine import describe_machine
from cfljax.engine.settings import Assembled
from cfljax.engine.simulate import simulate
from cfljax.errors import DataError, SpecError
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import make_batches
from cfljax.types.federation import NEVER
from tests import play, toy

ROUNDS = 4
CLIENTS = 12
DATA = {
    "name": "blobs",
    "samples": 480,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "groups": 2,
    "copies": False,
    "clients": CLIENTS,
}
TRAIN = {
    "rounds": ROUNDS,
    "lr": 0.1,
    "batch": 5,
    "participation": 5,
    "finetune_steps": 0,
    "plan": {"quick": True, "gram": 0, "keep": False},
}
"""Five take part in a round, one after another, and do some steps each."""
MLP = {"name": "mlp", "hidden": [4]}
MORE = {
    # The head need not travel
    **dict.fromkeys(("fedclust", "fesem"), {"compare": "whole"}),
    "fedccfa": {"head_lr": 0.02},  # with larger moves of heads, top-k would never send the body
    "joint": {"local_steps": 7, "batch": 5},  # else one step, for which nobody is slow
    "pfedme": {"lam": 1.0, "eta": 0.5},  # else its updates are too short to be clipped
    "sr_fca": {"refine_every": 1, "refinements": 1},  # a refinement begins again
}
"""Options with which a method takes more features, or with which they do more."""


class Steady(linen.Module):
    """A model with BatchNorm for FedBN. Its results do not hang on rounding: no gradient is divided
    by the deviation of two samples that are near each other, and none is zero but for rounding."""

    classes: int

    @linen.compact
    def __call__(self, x, train=False):
        x = linen.Dense(4, use_bias=False)(x)
        x = linen.BatchNorm(use_running_average=not train, momentum=0.8, epsilon=0.1)(x)
        return linen.Dense(self.classes)(linen.relu(x))


class Feature(NamedTuple):
    """A line of the table: what a run gets by this feature."""

    spec: dict[str, Any] = {}
    """Tables of a spec, laid over the usual ones: `data`, `train`, `model`, `method`."""
    change: Callable[[Assembled], Assembled] | None = None
    """What else is changed, in what the spec is assembled to."""
    lacking: Callable[[Assembled], Assembled] | None = None
    """What is changed in runs without the feature."""
    off: dict[str, float] = {}
    """Traced numbers with which the feature would do nothing."""
    idle_for: tuple[str, ...] = ()
    """Methods for which it does nothing, and for which nothing is remembered."""
    forget: str = ""
    """A part of the names of arrays that a run with it carries from round to round, without which
    it would go on otherwise."""
    holds: Callable[..., None] | None = None
    """What a run with it must keep to: called with the `Row` of the test."""
    not_for: tuple[str, ...] = ()
    """Methods that take it, and for which what is said here is not so."""
    joined: int = 0
    """A line that is added to a table gets the next number, whichever place it has there: it is dealt
    after all that were there before, whose runs stay what they are."""


def laid_over(table, more):
    """The table with another one laid over it, and over the tables in it. None takes a key away."""
    both = {key: value for key, value in table.items() if more.get(key, value) is not None}
    for key, value in more.items():
        if value is None:
            continue
        inner = both.get(key)
        both[key] = (
            laid_over(inner, value)
            if isinstance(inner, dict) and isinstance(value, dict)
            else value
        )
    return both


def contradict(table, more):
    """Whether both tables say something about one key, and not the same."""
    return any(
        contradict(table[key], value)
        if isinstance(value, dict) and isinstance(table[key], dict)
        else table[key] != value
        for key, value in more.items()
        if key in table
    )


def model_of(name):
    """The model of a method's spec."""
    if name != "fedbn":
        return toy.named_model(name, MLP)
    if "steady" not in models.MODELS:
        models.MODELS.add("steady", lambda options, sample_shape, classes: Steady(classes))
    return {"name": "steady"}


def spec_of(name, features, seeds=(0,)):
    """The spec of a method with features (lines of a table)."""
    options = {key: value for key, value in play.options(name).items() if key != "model"}
    options |= MORE.get(name, {})
    tables = {
        "data": DATA,
        "train": TRAIN | ({"participation": 1.0} if name in play.EVERYBODY else {}),
        "model": model_of(name),
        "method": {"name": name} | options,
    }
    for feature in features:
        tables = laid_over(tables, feature.spec)
    return {**tables, "method": [tables["method"]], "seeds": list(seeds)}


def assembled(name, features, seeds=(0,)):
    """(What a batch of runs of a method with these features is simulated with, the batch)."""
    runs = read_spec(spec_of(name, features, seeds)).runs()
    (batch,) = make_batches(runs, len(runs))
    parts = assemble_batch(batch, describe_machine())
    for feature in features:
        parts = parts if feature.change is None else feature.change(parts)
    return parts, batch


def refusal(name, features):
    """Why the package does not run the method with these features; "": it does."""
    try:
        assembled(name, features)
    except (SpecError, DataError) as error:
        return str(error)
    return ""


def go_together(features):
    """Whether no two features say different things about the same option."""
    said: dict[str, Any] = {}
    for feature in features:
        if contradict(said, feature.spec):
            return False
        said = laid_over(said, feature.spec)
    return True


def packed(name, table, base=(), number=1):
    """Sets of features, as lists of their names, that a method takes at once: all of the table that
    it takes, dealt to `number` sets, or to more where they do not go together. Each feature goes
    to the smallest set that takes it."""
    sets: list[list[str]] = [[] for _ in range(number)]
    for feature, line in table.items():
        if name in line.not_for:
            continue
        for some in sorted(sets, key=len):
            lines = [*(table[each] for each in some), line]
            if go_together(lines) and not refusal(name, [*base, *lines]):
                some.append(feature)
                break
        else:
            sets += [] if refusal(name, [*base, line]) else [[feature]]
    return sets


def guilty(features, fails):
    """The fewest features found by halving with which `fails(features)` is still true."""
    half = len(features) // 2
    for part in (features[:half], features[half:]) if half else ():
        if fails(part):
            return guilty(part, fails)
    return features


def on_host(federation):
    """The federation as numpy arrays."""
    import jax

    return jax.tree.map(np.asarray, federation)


def change_federation(change):
    """A feature's change of the federation alone, as numpy arrays."""

    def changed(parts):
        return parts._replace(federation=change(on_host(parts.federation)))

    return changed


def absent(federation):
    """The federation in which newcomers are dummies."""
    new = federation.arrive == NEVER
    uid, group = (
        np.where(new, -1, each).astype(np.int32) for each in (federation.uid, federation.group)
    )
    return dataclasses.replace(federation, uid=uid, group=group)


def equal_groups(federation):
    """The federation whose groups all see samples with the labels that they have."""
    labels = np.tile(np.arange(federation.classes, dtype=np.int32), (federation.groups, 1))
    return dataclasses.replace(federation, view=federation.view._replace(labels=labels))


def padded(federation):
    """The federation with dummies behind its clients, and garbage behind their samples."""
    return pad(federation, clients=2, samples=3, rng=np.random.default_rng(1))


def side_by_side(parts):
    """Clients, runs and evaluations as on an accelerator."""
    return parts._replace(settings=parts.settings._replace(sequential=False))


def outputs(parts, batch, hypers=None, **more):
    """The outputs of a batch; `hypers`: other numbers than the batch's, for as many runs of its
    first seed."""
    if hypers is None:
        return simulate(parts, batch.seeds, batch.hypers, **more)
    return simulate(parts, batch.seeds[:1] * len(hypers), hypers, **more)


def first_run(carry):
    """What the first run of a batch carries."""
    import jax

    return jax.tree.map(lambda a: np.asarray(a)[0], carry)
