"""The comparison of many clients' updates: of the updates themselves, or of sketches, which need
less memory."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels.cosine import SKETCH_SIZE, sketch
from cfljax.kernels.mix import Rule
from cfljax.lazy import jit
from cfljax.local.rounds import Mixing, Trained, train_and_mix
from cfljax.local.solver import Solver
from cfljax.models.flat import head_of, part_of
from cfljax.registry.options import option
from cfljax.types import Array, Federation, Hyper, Jobs, on_host


def similarity(again: bool = True, default: str = "exact") -> str:
    """Return the option `similarity` of methods that compare updates. `again`: with sketches the
    method trains a second time, since it needs the updates themselves after the comparison."""
    words = (
        "how updates are compared: as they are, or by sketches of 4,096 numbers, which need less "
        "memory"
    )
    made: str = option(
        default, f"{words} and a second training" if again else words, choices=("exact", "sketch")
    )
    return made


def compared_size(d: int, similarity: str) -> int:
    """Return the size of the vector that is compared for each client: d, or a sketch's size."""
    return d if similarity == "exact" else min(d, SKETCH_SIZE)


def compared_columns(part: str, solver: Solver, where: str) -> np.ndarray | slice:
    """Return the positions i64[p] in a model's vector of what a method's option `compare` names:
    "last", the kernel of the last dense layer, "head", that layer, "whole", all, or a prefix of
    parameter paths. `where`: the method's options."""
    if part == "whole":
        return slice(None)
    model, parts = solver.model, solver.parts
    path = part
    if part in ("last", "head"):
        path = head_of(model) + ("/kernel" if part == "last" else "")
    columns = np.flatnonzero(part_of(model, path))
    if parts is not None and np.isin(columns, parts.kept).all():
        why = "these weights never reach the server (train.parts, train.freeze)"
        raise SpecError(f'{where}.compare = "{part}": {why}; give compare = "whole", or others')
    return columns


def sketch_if(vectors: Array, similarity: str) -> Array:
    """Return the vectors f32[n, d] themselves if `similarity` is "exact", else their sketches
    f32[n, 4096]; while traced."""
    return vectors if similarity == "exact" else sketch(vectors)


def sketch_on_host_if(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """HOST. The vectors f32[n, d] themselves if `similarity` is "exact", else their sketches f32[n,
    4096]."""
    return vectors if similarity == "exact" else np.asarray(_sketch(on_host(vectors)))


_sketch = jit()(sketch)


def train_and_compare(
    how: str,
    solver: Solver,
    key: Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
    mixing: Mixing,
    rule: Rule | None = None,
) -> tuple[Trained, Array]:
    """Trains the jobs and moves the clusters' models, as `train_and_mix`. Also returns what is
    compared: the updates f32[S, d] if `how` is "exact", else their sketches f32[S, 4096]; then only
    the updates of one block are held at a time."""
    if how == "exact":
        solver = dataclasses.replace(solver, plan=solver.plan._replace(stream=0))
    size = SKETCH_SIZE if how == "sketch" else None
    trained = train_and_mix(solver, key, federation, jobs, hyper, mixing, size, rule)
    moves = trained.kept.moves
    return trained, moves if trained.dealt is None else trained.dealt.collect(moves)
