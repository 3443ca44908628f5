"""HOST. A function as one or several programs. It is cut where it calls a program of its own (`devices.own_program`), which is
compiled once for all functions that call it; what is left of the function lies between the calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.devices import portable
from cfljax.devices.compiled import Source, compiled, shapes
from cfljax.devices.own_program import MARK
from cfljax.devices.portable import Portable
from cfljax.lazy import core, jax, jnp
from cfljax.types import Tree

LARGE = 1 << 18
"""An array of at least this many numbers is overwritten by a result of its shape, where nobody reads it later."""
Atoms = Iterable["core.Var | core.Literal"]
Values = dict["core.Var", Tree]
"""Constant arrays, by the variables that stand for them."""


class Piece(NamedTuple):
    """A program, and where its arguments are and its results go: places in a list of all arrays of the function."""

    program: Portable
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    own: str = ""
    """The name of the function that is a program of its own; empty: it lies between such calls."""

    def overwrites(self, free: set[int]) -> tuple[int, ...]:
        """Positions in `reads` of large arrays whose memory its results take. `free`: places whose arrays nobody reads later."""
        room = [] if self.own else [(each.shape, each.dtype) for each in self.program.results]
        found = []
        for at, (place, form) in enumerate(zip(self.reads, self.program.forms, strict=True)):
            if place in free and form.size >= LARGE and (form.shape, form.dtype) in room:
                room.remove((form.shape, form.dtype))
                found.append(at)
        return tuple(found)


class Cut(NamedTuple):
    """A function in pieces, in the order of their calls. The list of arrays begins with its arguments, then come `constants`."""

    pieces: list[Piece]
    overwrites: list[tuple[int, ...]]
    """Of each piece."""
    constants: list[Tree]
    room: int
    """The length of the list."""
    results: tuple[int, ...]
    """Places of the results."""
    copied: frozenset[int]
    """Which results must be copies: others have the same array."""
    form: Tree
    """The shapes of what the function returns."""
    mesh: jax.sharding.Mesh | None = None

    def with_bytes(self, function: str, all_pieces: bool) -> Cut:
        """The same, its programs with their bytes (`portable.with_bytes`). Not `all_pieces`: those that others call, too."""
        pieces = list(self.pieces)
        for number, piece in enumerate(pieces):
            if piece.own:
                pieces[number] = piece._replace(program=portable.with_bytes_once(piece.program, piece.own))
            elif all_pieces:
                pieces[number] = piece._replace(program=portable.with_bytes(piece.program, f"{function}_{number}"))
        return self._replace(pieces=pieces)

    def sources(self, function: str, name: Hashable, quick: bool) -> list[Source]:
        """The pieces, to be compiled. `function`: what it is called in profiles. `name`: as in `Source`; it names all that the
        pieces depend on, the shapes of the function's arguments included."""
        found = []
        for number, (piece, overwrites) in enumerate(zip(self.pieces, self.overwrites, strict=True)):
            program, f = piece.program, portable.named(piece.program.f, piece.own or f"{function}_{number}")
            known = program.name if program.data or piece.own else name and (name, function, number)
            found.append(Source(f, program.forms, known, self.mesh, overwrites, quick))
        return found

    def run_by(self, programs: Sequence[Callable[..., Tree]]) -> Callable[..., Tree]:
        """The function, from its compiled pieces."""
        steps = [(program, piece.reads, piece.writes) for program, piece in zip(programs, self.pieces, strict=True)]
        constants, room, results, copied = self.constants, self.room, self.results, self.copied  # and no bytes of programs
        structure = jax.tree.structure(self.form)

        def run(*args: Tree) -> Tree:
            arrays = [*jax.tree.leaves(args), *constants]
            arrays += [None] * (room - len(arrays))
            for program, reads, writes in steps:
                for at, array in zip(writes, program(*[arrays[at] for at in reads]), strict=True):
                    arrays[at] = array
            found = [arrays[at] for at in results]
            for at in copied:
                found[at] = jnp.array(found[at], copy=True)
            return jax.tree.unflatten(structure, found)

        return run


def in_pieces(f: Callable[..., Tree], quick: bool) -> Callable[..., Tree]:
    """The function f of arrays in pieces, which are compiled at the first call with arrays of these shapes."""
    made: dict[Hashable, Callable[..., Tree]] = {}

    def call(*given: Tree) -> Tree:
        args = jax.tree.map(lambda each: each if hasattr(each, "shape") else jnp.asarray(each), given)
        form = (shapes(args), jax.config.values["jax_default_matmul_precision"])
        if form not in made:
            of = cut(jax.jit(f).trace(*args))
            of = of.with_bytes("host", False) if portable.wanted() else of
            made[form] = of.run_by(compiled(of.sources("host", None, quick))[0])
        return made[form](*args)

    return call


def cut(traced: jax.stages.Traced, lost: int = 0) -> Cut:
    """The pieces of a traced function. `lost`: the number of arrays, the first ones, that are not needed after the call."""
    closed: core.ClosedJaxpr = traced.jaxpr
    whole, values = closed.jaxpr, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    places = _Places(whole, values)
    if whole.effects:  # what prints or calls the host must stay in its order
        pieces = [Piece(portable.of_traced(closed), places.of(whole.invars), places.of(whole.outvars))]
    else:
        pieces = _pieces(whole, values, places)
    results: list[int] = []
    for atom, place in zip(whole.outvars, places.of(whole.outvars), strict=True):
        again = place in results and places.again.get(_key(atom))
        results.append(again.pop() if again else place)
    fresh = [place < lost or place >= places.first for place in results]
    copied = frozenset(at for at, place in enumerate(results) if not fresh[at] or place in results[:at])
    mine, overwrites = {*range(lost), *range(places.first, len(places))}, []
    for number, piece in enumerate(pieces):
        later = {place for other in pieces[number + 1 :] for place in other.reads}
        overwrites.append(piece.overwrites(mine - later - set(results)))
    return Cut(pieces, overwrites, places.constants, len(places), tuple(results), copied, traced.out_info)


def in_one_piece(source: Source) -> Cut:
    """A function in one piece."""
    traced = jax.jit(source.f).trace(*source.forms)
    forms = tuple(jax.tree.leaves(source.forms))
    program = portable.of_traced(traced.jaxpr, forms)
    begins = np.cumsum([0, *(len(jax.tree.leaves(form)) for form in source.forms)])
    overwrites = tuple(int(at) for n in source.donate for at in range(begins[n], begins[n + 1]))
    room = len(forms) + len(program.results)
    results = tuple(range(len(forms), room))
    piece = Piece(program, tuple(range(len(forms))), results)
    return Cut([piece], [overwrites], [], room, results, frozenset(), traced.out_info, source.mesh)


class _Places:
    """The places of a function's arrays."""

    def __init__(self, whole: core.Jaxpr, values: Values):
        self._of: dict[core.Var | int, int] = {variable: at for at, variable in enumerate(whole.invars)}
        """The place of a variable; of a literal by its identity."""
        self.constants: list[Tree] = []
        self.again: dict[core.Var | int, list[int]] = {}
        """More places of the same array, for results that are given more than once."""
        for atom in [*whole.outvars, *(atom for eqn in whole.eqns if _own(eqn) for atom in eqn.invars)]:
            if _key(atom) not in self._of and (isinstance(atom, core.Literal) or atom in values):
                self._of[_key(atom)] = len(self._of)
                self.constants.append(_literal(atom) if isinstance(atom, core.Literal) else values[atom])
        self.first = self._number = len(self._of)
        """The first place that is neither an argument's nor a constant's."""

    def __len__(self) -> int:
        return self._number

    def _new(self) -> int:
        self._number += 1
        return self._number - 1

    def of(self, atoms: Atoms) -> tuple[int, ...]:
        """Where these lie. What has no place yet gets one."""
        keys = [_key(atom) for atom in atoms]
        return tuple(self._of[key] if key in self._of else self._of.setdefault(key, self._new()) for key in keys)

    def more(self, variables: Iterable[core.Var]) -> tuple[int, ...]:
        """One more place for each of these."""
        found = []
        for variable in variables:
            self.again.setdefault(variable, []).append(self._new())
            found.append(self._number - 1)
        return tuple(found)


def _key(atom: core.Var | core.Literal) -> core.Var | int:
    return id(atom) if isinstance(atom, core.Literal) else atom


def _literal(atom: core.Literal) -> jax.Array:
    return jnp.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]


def _own(eqn: core.JaxprEqn) -> str:
    """The name of the program of its own that this calls; empty: it calls none."""
    name = str(eqn.params.get("name", ""))
    return name if name.startswith(MARK) and "jaxpr" in eqn.params else ""


def _variables(atoms: Atoms) -> list[core.Var]:
    """The variables among these, each once."""
    return list(dict.fromkeys(atom for atom in atoms if not isinstance(atom, core.Literal)))


def _read(eqns: Iterable[core.JaxprEqn]) -> list[core.Var]:
    return _variables(atom for eqn in eqns for atom in eqn.invars)


def _pieces(whole: core.Jaxpr, values: Values, places: _Places) -> list[Piece]:
    """What lies before, between and after the calls, and the calls."""
    stage = _stages(whole)
    needed = [eqn for eqn in whole.eqns if id(eqn) in stage]
    calls = [eqn for eqn in needed if _own(eqn)]
    asked = {*_read(calls), *_variables(whole.outvars)}
    cheap = [eqn for eqn in needed if not _own(eqn) and not _variables(eqn.invars)]  # made anew in each stage, as jnp.zeros
    others = [eqn for eqn in needed if not _own(eqn) and (_variables(eqn.invars) or asked & set(eqn.outvars))]
    everywhere = {variable for eqn in cheap for variable in eqn.outvars}
    pieces = []
    for number in range(1 + max(stage.values(), default=0)):
        eqns = [eqn for eqn in others if stage[id(eqn)] == number]
        later = {*_read(eqn for eqn in others if stage[id(eqn)] > number)} - everywhere
        written = [variable for eqn in eqns for variable in eqn.outvars if variable in asked or variable in later]
        again = [variable for variable in written for _ in range(whole.outvars.count(variable) - 1)]
        if written:
            read, there = _read(eqns), {id(eqn) for eqn in eqns}
            before = [eqn for eqn in cheap if id(eqn) not in there and set(read) & set(eqn.outvars)]
            known = {variable for eqn in (*before, *eqns) for variable in eqn.outvars}
            held, given = [v for v in read if v in values], [v for v in read if v not in values and v not in known]
            found = [*written, *again]
            about = whole.debug_info._replace(arg_names=("",) * len(given), result_paths=("",) * len(found))
            inner = core.Jaxpr(held, given, found, [*before, *eqns], debug_info=about)
            closed = core.ClosedJaxpr(inner, [values[variable] for variable in held])
            pieces.append(Piece(portable.of_traced(closed), places.of(given), places.of(written) + places.more(again)))
        for eqn in calls:
            if stage[id(eqn)] == number:
                own = portable.of_traced(eqn.params["jaxpr"])
                pieces.append(Piece(own, places.of(eqn.invars), places.of(eqn.outvars), _own(eqn)))
    return pieces


def _stages(whole: core.Jaxpr) -> dict[int, int]:
    """By the identity of an equation that is needed: after how many rounds of calls it is computed. As late as possible, so that
    few arrays are passed on; a call as early as possible."""
    ready: dict[core.Var, int] = {}
    stage: dict[int, int] = {}
    for eqn in whole.eqns:
        at = max((ready.get(variable, 0) for variable in _variables(eqn.invars)), default=0)
        if _own(eqn):
            stage[id(eqn)] = at
        ready |= dict.fromkeys(eqn.outvars, at + bool(_own(eqn)))
    last = max(ready.values(), default=0)
    due = dict.fromkeys(_variables(whole.outvars), last)
    for eqn in reversed(whole.eqns):
        uses = [due[variable] for variable in eqn.outvars if variable in due]
        if not uses:
            stage.pop(id(eqn), None)
            continue
        at = stage.setdefault(id(eqn), min(uses))
        due |= {variable: min(due.get(variable, last), at) for variable in _variables(eqn.invars)}
    return stage
