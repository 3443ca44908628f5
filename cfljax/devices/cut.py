"""HOST. A function as several programs. It is cut where it calls parts that other functions have, too (`devices.apart`): each part
is compiled once for all of them, and what is left of the function lies between the calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from cfljax.devices.apart import MARK
from cfljax.devices.compiled import Source, compiled, shapes
from cfljax.types import Tree

LARGE = 1 << 18
"""An array of at least this number of elements is overwritten by a result of its shape, where nobody needs it any more."""
Eqns = list[core.JaxprEqn]


class Piece(NamedTuple):
    """A program, and where its arguments come from and its results go: places in a list of all arrays of the function."""

    jaxpr: core.ClosedJaxpr
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    apart: str = ""
    """The name of the part that other functions have, too; "": it is this function's own."""

    @property
    def forms(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The shapes and types of its arguments."""
        return tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in self.jaxpr.in_avals)

    def overwrites(self, free: set[int]) -> tuple[int, ...]:
        """Positions in `reads` of large arrays whose memory its results take. `free`: places whose arrays nobody reads later."""
        room = [(each.shape, each.dtype) for each in self.jaxpr.out_avals]
        found = []
        for at, (place, form) in enumerate(zip(self.reads, self.forms, strict=True)):
            if place in free and form.size >= LARGE and (form.shape, form.dtype) in room:
                room.remove((form.shape, form.dtype))
                found.append(at)
        return tuple(found)


class Cut(NamedTuple):
    """A function in pieces, in the order of their calls. The list of arrays begins with its arguments, then come `constants`."""

    pieces: list[Piece]
    donate: list[tuple[int, ...]]
    """Of each piece, which of its arguments it overwrites."""
    constants: list[Tree]
    room: int
    """The length of the list."""
    results: tuple[int, ...]
    """Places of the results."""
    copied: frozenset[int]
    """Which of the results must be copies: others have the same array."""
    form: Tree
    """The shapes of what the function returns."""

    def sources(self, function: str, name: Hashable, quick: bool) -> list[Source]:
        """The pieces, to be compiled. `function`: what the function is called in profiles; `name`: as in `Source`."""
        found = []
        for number, (piece, donate) in enumerate(zip(self.pieces, self.donate, strict=True)):
            f, own = core.jaxpr_as_fun(piece.jaxpr), (name and (name, function, number), (piece.jaxpr,))[bool(piece.apart)]
            f.__name__ = piece.apart or f"{function}_{number}"
            found.append(Source(f, piece.forms, own, None, donate, quick))
        return found

    def run_by(self, programs: Sequence[Callable[..., Tree]]) -> Callable[..., Tree]:
        """The function, from its compiled pieces."""
        steps = [(program, piece.reads, piece.writes) for program, piece in zip(programs, self.pieces, strict=True)]
        structure = jax.tree.structure(self.form)

        def run(*args: Tree) -> Tree:
            arrays = [*jax.tree.leaves(args), *self.constants]
            arrays += [None] * (self.room - len(arrays))
            for program, reads, writes in steps:
                for at, array in zip(writes, program(*[arrays[at] for at in reads]), strict=True):
                    arrays[at] = array
            found = [arrays[at] for at in self.results]
            for at in self.copied:
                found[at] = jnp.array(found[at], copy=True)
            return jax.tree.unflatten(structure, found)

        return run


def cut(traced: jax.stages.Traced, lost: int = 0) -> Cut:
    """The pieces of a traced function. `lost`: so many arrays, its first ones, are not needed after the call."""
    closed: core.ClosedJaxpr = traced.jaxpr
    whole = closed.jaxpr
    places = _Places(closed)
    if whole.effects:  # what is printed or called must stay in its order
        made = [Piece(closed, places.of(whole.invars), places.of(whole.outvars))]
    else:
        made = _pieces(closed, places)
    results: list[int] = []
    for atom in whole.outvars:
        place = places.of([atom])[0]
        results.append(places.again[atom].pop() if place in results and places.again.get(atom) else place)
    fresh = lambda place: place < lost or place >= places.first  # noqa: E731
    copied = frozenset(at for at, place in enumerate(results) if not fresh(place) or place in results[:at])
    mine = set(range(lost)) | set(range(places.first, len(places)))
    donate = []
    for number, piece in enumerate(made):
        later = {place for other in made[number + 1 :] for place in other.reads} | set(results)
        donate.append(() if piece.apart else piece.overwrites(mine - later))
    return Cut(made, donate, places.constants, len(places), tuple(results), copied, traced.out_info)


def in_pieces(f: Callable[..., Tree], quick: bool) -> Callable[..., Tree]:
    """The function f of arrays in pieces, which are compiled at the first call with arrays of these shapes."""
    made: dict[Hashable, Callable[..., Tree]] = {}

    def call(*given: Tree) -> Tree:
        args = jax.tree.map(lambda each: each if hasattr(each, "shape") else jnp.asarray(each), given)
        form = (shapes(args), jax.config.jax_default_matmul_precision)
        if form not in made:
            of = cut(jax.jit(f).trace(*args))
            made[form] = of.run_by(compiled(of.sources("host", None, quick))[0])
        return made[form](*args)

    return call


class _Places:
    """The places of a function's arrays."""

    def __init__(self, closed: core.ClosedJaxpr):
        whole = closed.jaxpr
        self._place: dict[core.Var, int] = {variable: at for at, variable in enumerate(whole.invars)}
        self._literals: dict[int, int] = {}
        self.again: dict[core.Var, list[int]] = {}
        """More places of the same array, for results that are given more than once."""
        self.constants: list[Tree] = []
        values = dict(zip(whole.constvars, closed.consts, strict=True))
        for atom in [*whole.outvars, *(atom for eqn in whole.eqns if _marked(eqn) for atom in eqn.invars)]:
            if isinstance(atom, core.Literal):
                self._literals[id(atom)] = self._constant(jnp.asarray(atom.val, atom.aval.dtype))
            elif atom in values and atom not in self._place:
                self._place[atom] = self._constant(values[atom])
        self.first = len(whole.invars) + len(self.constants)
        """The first place that is neither an argument's nor a constant's."""
        self._number = self.first

    def _constant(self, value: Tree) -> int:
        self.constants.append(value)
        return len(self._place) + len(self._literals)

    def __len__(self) -> int:
        return self._number

    def of(self, atoms: Iterable[core.Var | core.Literal]) -> tuple[int, ...]:
        """Where these lie. What has no place yet gets one."""
        return tuple(self._of(atom) for atom in atoms)

    def another(self, variable: core.Var) -> int:
        """One more place for an array."""
        self.again.setdefault(variable, []).append(self._number)
        self._number += 1
        return self._number - 1

    def _of(self, atom: core.Var | core.Literal) -> int:
        if isinstance(atom, core.Literal):
            return self._literals[id(atom)]
        if atom not in self._place:
            self._place[atom] = self._number
            self._number += 1
        return self._place[atom]


def _marked(eqn: core.JaxprEqn) -> bool:
    return str(eqn.params.get("name", "")).startswith(MARK) and "jaxpr" in eqn.params


def _variables(atoms: Iterable[core.Var | core.Literal]) -> list[core.Var]:
    """The variables among these, each once."""
    return list(dict.fromkeys(atom for atom in atoms if not isinstance(atom, core.Literal)))


def _pieces(closed: core.ClosedJaxpr, places: _Places) -> list[Piece]:
    """What lies before, between and after the calls, and the calls."""
    whole = closed.jaxpr
    stage = _stages(whole)
    calls = [eqn for eqn in whole.eqns if _marked(eqn) and id(eqn) in stage]
    asked = {variable for eqn in calls for variable in _variables(eqn.invars)} | set(_variables(whole.outvars))
    constants = dict(zip(whole.constvars, closed.consts, strict=True))
    everywhere = [eqn for eqn in whole.eqns if id(eqn) in stage and not _marked(eqn) and not _variables(eqn.invars)]
    made = []
    own: list[Eqns] = [[] for _ in range(1 + max(stage.values(), default=0))]
    for eqn in whole.eqns:
        if id(eqn) in stage and not _marked(eqn) and (_variables(eqn.invars) or asked & set(eqn.outvars)):
            own[stage[id(eqn)]].append(eqn)
    for number, eqns in enumerate(own):
        here = {variable for eqn in eqns for variable in _variables(eqn.invars)}
        there = {id(eqn) for eqn in eqns}
        first = [eqn for eqn in everywhere if id(eqn) not in there and here & set(eqn.outvars)]  # cheaper than an argument
        later = {variable for rest in own[number + 1 :] for eqn in rest for variable in _variables(eqn.invars)}
        free = {variable for eqn in everywhere for variable in eqn.outvars}
        known = {variable for eqn in (*first, *eqns) for variable in eqn.outvars}
        written = [v for eqn in eqns for v in eqn.outvars if v in asked or (v in later and v not in free)]
        read = [v for v in _variables(v for eqn in eqns for v in eqn.invars) if v not in known and v not in constants]
        again = [v for eqn in eqns for v in eqn.outvars for _ in range(whole.outvars.count(v) - 1)]
        if written:
            held = [variable for variable in constants if variable in here]
            inner = core.ClosedJaxpr(core.Jaxpr(held, read, [*written, *again], [*first, *eqns]), [constants[v] for v in held])
            made.append(Piece(inner, places.of(read), (*places.of(written), *map(places.another, again))))
        for eqn in calls:
            if stage[id(eqn)] == number:
                made.append(Piece(eqn.params["jaxpr"], places.of(eqn.invars), places.of(eqn.outvars), eqn.params["name"]))
    return made


def _stages(whole: core.Jaxpr) -> dict[int, int]:
    """By the identity of an equation that is needed: before how many calls it is computed. As late as possible, so that few arrays
    are passed on; a call as early as possible."""
    ready: dict[core.Var, int] = {}
    stage: dict[int, int] = {}
    for eqn in whole.eqns:
        at = max((ready.get(variable, 0) for variable in _variables(eqn.invars)), default=0)
        if _marked(eqn):
            stage[id(eqn)] = at
        ready |= {variable: at + _marked(eqn) for variable in eqn.outvars}
    last = max(ready.values(), default=0)
    due: dict[core.Var, int] = dict.fromkeys(_variables(whole.outvars), last)
    for eqn in reversed(whole.eqns):
        uses = [due[variable] for variable in eqn.outvars if variable in due]
        if not uses:
            stage.pop(id(eqn), None)
            continue
        at = stage.setdefault(id(eqn), min(uses))
        for variable in _variables(eqn.invars):
            due[variable] = min(due.get(variable, last), at)
    return stage
