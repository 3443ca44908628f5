"""The space of settings, and the settings that a seed draws from it: `python -m experiments.board
draw` writes settings.toml.

A setting is a kind of difference between clients, with its own numbers, and how many clients there
are, how many samples they have, how many take part in a round and for how long they train. Kinds
are dealt evenly, numbers are drawn independently and uniformly from the lists below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from cfljax.config.toml import load
from cfljax.registry.options import Table, show

HERE = Path(__file__).parent
SETTINGS = HERE / "settings.toml"
SEED = 70
NUMBER = 32
"""How many settings each tier has."""

CLIENTS = (20, 40, 60, 100)
PARTICIPATION = (1.0, 0.5, 0.25)
EPOCHS = (1, 2, 4)
GROUPS = (2, 3, 4)
# Of the training samples of a client; fewer if the data set has fewer
SAMPLES = {"one": (30, 60, 120), "two": (60, 120, 240)}
# The training samples of the digits. The other data sets have enough for each setting.
DIGITS = 1438
DATA_SETS = ("mnist", "fashion_mnist", "emnist", "cifar10")
VIEWS = ("rotated", "label_swap", "label_permutation", "feature_shift", "corrupted")

T = TypeVar("T")


class Draw:
    """Draws values from lists."""

    def __init__(self, *seed: int):
        self.random = np.random.default_rng(seed)

    def one(self, values: Sequence[T]) -> T:
        """Draw one of the values."""
        return values[int(self.random.integers(len(values)))]

    def two(self, values: Sequence[T]) -> list[T]:
        """Draw two different values, in their order."""
        return [values[i] for i in sorted(self.random.permutation(len(values))[:2])]

    def deal(self, values: Sequence[T], number: int) -> list[T]:
        """Deal the values to so many settings, each as often as the others or once more, in random
        order."""
        order = self.random.permutation(len(values))
        dealt = [values[order[i % len(values)]] for i in range(number)]
        return [dealt[i] for i in self.random.permutation(number)]


def _grouped(partition: str) -> Callable[[Draw, int], Table]:
    """Make the kind in which groups see the same samples differently."""
    return lambda draw, _: {"partition": partition, "groups": draw.one(GROUPS)}


def _dirichlet(alpha: float) -> Callable[[Draw, int], Table]:
    """Make the kind in which each client has its own mix of classes, and as many samples."""
    return lambda *_: {"partition": "dirichlet", "alpha": alpha, "balance": "equal"}


def _classes(draw: Draw, rounds: int) -> Table:  # noqa: ARG001
    # The digits have too few samples of a class for more clients
    classes = {"partition": "classes", "classes_per_client": draw.one((2, 3, 5))}
    return classes | {"clients": draw.one(CLIENTS[:2])}


def _crossed(draw: Draw, rounds: int) -> Table:  # noqa: ARG001
    mixes: tuple[Table, ...] = (
        {"partition": "iid"},
        {"partition": "dirichlet", "alpha": 0.5, "balance": "equal"},
    )
    views = [{"name": name, "groups": 2} for name in draw.two(VIEWS)]
    return draw.one(mixes) | {"views": views}


def _unequal(draw: Draw, rounds: int) -> Table:  # noqa: ARG001
    sizes: Table = {"partition": "quantity", "sigma": draw.one((0.5, 1.0, 1.5)), "min_samples": 4}
    view = draw.one((None, *VIEWS[:3]))
    return sizes if view is None else sizes | {"views": [{"name": view, "groups": 2}]}


def _drift(draw: Draw, rounds: int) -> Table:
    ways: tuple[Table, ...] = (
        {"kind": "sudden", "at": [rounds // 2]},
        {"kind": "incremental", "at": [rounds // 4, 3 * rounds // 4]},
        {"kind": "recurrent", "at": [rounds // 4, rounds // 2, 3 * rounds // 4]},
    )
    drift = draw.one(ways) | {"share": draw.one((0.25, 0.5)), "what": "group"}
    return {"partition": draw.one(VIEWS[:3]), "groups": draw.one(GROUPS), "drift": drift}


KINDS: dict[str, Callable[[Draw, int], Table]] = {
    "rotated": _grouped("rotated"),
    "swapped labels": _grouped("label_swap"),
    "permuted labels": _grouped("label_permutation"),
    "Dirichlet 0.1": _dirichlet(0.1),
    "Dirichlet 0.5": _dirichlet(0.5),
    "classes per client": _classes,
    "two shifts crossed": _crossed,
    "unequal sizes": _unequal,
    "drift": _drift,
}
"""Kind of difference between clients -> (draw, rounds of a run) -> what it says of the data."""


def read_tiers() -> Table:
    """Read what the settings of a tier share."""
    return dict(load(HERE / "tiers.toml"))


def draw_settings() -> list[Table]:
    """Draw the settings of both tiers."""
    found = []
    for at, (tier, shared) in enumerate(read_tiers().items()):
        deal = Draw(SEED, at)
        kinds = deal.deal(list(KINDS), NUMBER)
        sets = deal.deal(DATA_SETS, NUMBER)
        for i, (kind, data_set) in enumerate(zip(kinds, sets, strict=True)):
            # A draw of its own for each setting: a longer list in one kind changes no other setting
            draw = Draw(SEED, at, i)
            data: Table = {"name": data_set} if tier == "two" else {}
            data |= {"clients": draw.one(CLIENTS)}
            data |= KINDS[kind](draw, shared["spec"]["train"]["rounds"])
            samples = draw.one(SAMPLES[tier])
            data["samples_per_client"] = min(samples, _count_samples(tier, data))
            train = {"participation": draw.one(PARTICIPATION), "epochs": draw.one(EPOCHS)}
            name = f"{NUMBER * at + i + 1:02}"
            found.append({"name": name, "tier": tier, "kind": kind, "data": data, "train": train})
    return found


def _count_samples(tier: str, data: Table) -> int:
    """Return the most training samples that each client can have."""
    if tier == "two":
        return max(SAMPLES[tier])
    if data["partition"] == "classes":
        # Some classes are drawn by more clients than others
        return DIGITS // data["clients"] // 2
    # Each group of these partitions has a copy of every sample
    return DIGITS // -(-data["clients"] // data.get("groups", 1))


def write_settings(settings: Sequence[Table]) -> str:
    """Write settings as the text of their file."""
    head = f"# Drawn by `python -m experiments.board draw` with seed {SEED}: not to be edited.\n"
    return head + "".join(
        "\n[[setting]]\n" + "".join(f"{key} = {show(value)}\n" for key, value in each.items())
        for each in settings
    )


def read_settings() -> list[Table]:
    """Read the committed settings."""
    return list(load(SETTINGS)["setting"])
