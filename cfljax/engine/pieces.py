"""HOST. The programs of a batch on a CPU, where compiling takes longer than calls: cut at the parts that methods share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax
import numpy as np
from jax.extend import core

from cfljax.engine.compiled import Source
from cfljax.engine.cut import Cut, cut
from cfljax.engine.program import over_runs
from cfljax.engine.settings import Assembled
from cfljax.types import Tree


def in_pieces(parts: Assembled) -> bool:
    """Whether the programs of this batch are cut: on one device, run by run."""
    return parts.plan.on_cpu and parts.plan.sequential and parts.settings.sequential and parts.mesh is None


class Pieces(NamedTuple):
    """A function of runs in pieces, to be compiled."""

    of: Cut
    sources: list[Source]


def pieces_of(parts: Assembled, f: Callable[..., Tree], forms: tuple[Tree, ...], mapped: int, name: Hashable, quick: bool, lost: int = 0) -> Pieces:
    """The pieces of a function of one run (`over_runs`). `lost`: so many of the arrays that it gets are lost."""
    traced = jax.jit(over_runs(f, parts.settings, mapped)).trace(*forms)
    made, sources = cut(traced, lost), []
    for number, (piece, donate) in enumerate(zip(made.pieces, made.donate, strict=True)):
        own: Hashable = ("apart", piece.jaxpr) if piece.apart else (name, number)
        sources.append(Source(core.jaxpr_as_fun(piece.jaxpr), piece.forms, name and own, None, donate, quick))
    return Pieces(made, sources)


def rounds_by(advance: Callable[..., tuple[Tree, Tree]]) -> Callable[..., tuple[Tree, Tree]]:
    """The function of several rounds, from that of one: as `Program.rounds`."""

    def rounds(carry: Tree, keys: jax.Array, hyper: Tree, federation: Tree, bounds: np.ndarray) -> tuple[Tree, Tree]:
        report: Tree = None
        for t in range(int(bounds[0]), int(bounds[1])):
            carry, report = advance(carry, keys, hyper, federation, np.int32(t))
        return carry, report

    return rounds

