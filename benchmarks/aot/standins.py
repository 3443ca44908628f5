"""Stand-ins of the data sets of the specs in experiments/: their shapes, their numbers of samples, and who owns these. Programs,
their memory and their predicted seconds depend on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


def folder_of(name: str, folder: Path) -> Path | None:
    """The folder with a stand-in of this data set, made there if need be; None if there is none, as it is made by cfljax."""
    make = MADE.get(name)
    if make is None:
        return None
    place = folder / "specs"
    place.mkdir(exist_ok=True)
    if not (place / f"{name}.npz").is_file():
        np.savez(place / f"{name}.npz", **make(np.random.default_rng(0)))
    return place


def _images(rng: np.random.Generator, sizes: dict[str, int], side: int, classes: int) -> Arrays:
    arrays = {f"x_{part}": rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8) for part, count in sizes.items()}
    return arrays | {f"y_{part}": rng.permutation(np.arange(count) % classes) for part, count in sizes.items()}


def _cifar(rng: np.random.Generator) -> Arrays:
    return _images(rng, {"train": 50_000, "test": 10_000}, 32, 10)


def _cifar100(rng: np.random.Generator) -> Arrays:
    arrays = _images(rng, {"train": 50_000, "test": 10_000}, 32, 100)
    return arrays | {f"y_coarse_{part}": arrays[f"y_{part}"] // 5 for part in ("train", "test")}


ROLES, MEAN, DEVIATION = 100, 3743, 6212
"""The roles of LEAF's Shakespeare that a run has, and the mean and standard deviation of their samples (Caldas et al. 2018)."""


def samples_of_roles(rng: np.random.Generator) -> np.ndarray:
    """i64[roles], ascending: how many samples each role has, as a log-normal law of LEAF's moments says; at least 150."""
    spread = np.log(1 + (DEVIATION / MEAN) ** 2)
    places = (np.arange(ROLES) + 0.5) / ROLES
    normal = np.sort(rng.normal(size=100_000))[(places * 100_000).astype(int)]
    found: np.ndarray = np.maximum(150, np.exp(np.log(MEAN) - spread / 2 + np.sqrt(spread) * normal)).astype(int)
    return found


def _shakespeare(rng: np.random.Generator) -> Arrays:
    """80 characters and the next one, in vectors of 64."""
    user, arrays = np.repeat(np.arange(ROLES), samples_of_roles(rng)), {}
    test = rng.random(len(user)) < 0.2
    for part, rows in (("train", ~test), ("test", test)):
        number = int(rows.sum())
        arrays |= {f"x_{part}": rng.integers(2, 82, (number, 80), dtype=np.int32), f"y_{part}": rng.integers(0, 80, number)}
        arrays[f"user_{part}"] = user[rows]
    arrays["y_train"][:80] = np.arange(80)
    return arrays | {"table": rng.normal(size=(82, 64)).astype(np.float32)}


PACS = (1670, 2048, 2344, 3929)
"""Its pictures of each domain (Li et al. 2017)."""


def _domains(rng: np.random.Generator) -> Arrays:
    """PACS: four domains, seven classes."""
    user = np.repeat(np.arange(len(PACS)), PACS)
    test = np.arange(len(user)) % 5 == 0
    sizes = {"train": int((~test).sum()), "test": int(test.sum())}
    return _images(rng, sizes, 64, 7) | {"user_train": user[~test], "user_test": user[test]}


SPEAKERS, WORDS, EACH = 500, 35, 40
"""The speakers that a run has, the words of Speech Commands, and the mean number of sounds of its speakers (105,829 of 2,618;
Warden 2018)."""


def sounds_of_speakers(rng: np.random.Generator) -> np.ndarray:
    """i64[speakers]: how many sounds each speaker has. How they are spread is not in the paper: here each has 25, so that 20 train,
    and what it has beyond that is exponential."""
    found: np.ndarray = 25 + rng.exponential(EACH - 25, SPEAKERS).astype(int)
    return found


def _speech(rng: np.random.Generator) -> Arrays:
    """A second of each sound in 98 frames of 40 bands, as `log_mel` makes them at 16,000 samples a second."""
    user, arrays = np.repeat(np.arange(SPEAKERS), sounds_of_speakers(rng)), {}
    test = np.arange(len(user)) % 5 == 0
    for part, rows in (("train", ~test), ("test", test)):
        number = int(rows.sum())
        arrays |= {f"x_{part}": rng.normal(size=(number, 98, 40)).astype(np.float32), f"y_{part}": np.arange(number) % WORDS}
        arrays[f"user_{part}"] = user[rows]
    return arrays


MADE: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "cifar10": _cifar,
    "cifar100": _cifar100,
    "shakespeare": _shakespeare,
    "domains": _domains,
    "speech": _speech,
}
