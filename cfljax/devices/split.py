"""HOST. Split a function at its calls of shared functions (`devices.compiled`), which are compiled
once for all functions that call them. The code between two calls is a segment of the function, and
a separate program."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from typing import NamedTuple

from cfljax.devices.compiled import SHARED_PREFIX, compile_later, shape_key
from cfljax.lazy import core, jax, jnp
from cfljax.types import Tree

# A lost argument of at least this many numbers gives its memory to a result of its shape
MIN_DONATED = 1 << 18
Atoms = Iterable["core.Var | core.Literal"]


class Segment(NamedTuple):
    """Equations of a jaxpr that are one program."""

    f: Callable[..., list[Tree]]
    jaxpr: core.ClosedJaxpr
    reads: list[core.Var | core.Literal]
    writes: list[core.Var]
    # The name of the shared function that this calls; "": it is between calls
    shared: str = ""


class SplitFunction:
    """A traced function in segments, which threads compile."""

    def __init__(self, traced: jax.stages.Traced, quick: bool, lost: int = 0, own: bool = True):
        """Start compiling; `quick` as in `compile_later`. `lost`: how many arrays, the first ones,
        are not needed after a call. `own`: each result is an array of its own, as it may be lost in
        a later call."""
        self.jaxpr = traced.jaxpr
        self.form = traced.out_info
        self._lost = lost
        self._own = own
        self.name = traced.fun_name
        self.segments = _split_jaxpr(self.jaxpr)
        self.programs: list[Future[jax.stages.Compiled]] = []
        last_read = {
            v: at for at, segment in enumerate(self.segments) for v in _variables(segment.reads)
        }
        last_read |= dict.fromkeys(_variables(self.jaxpr.jaxpr.outvars), len(self.segments))
        for at, segment in enumerate(self.segments):
            free = [
                v
                for v in self.jaxpr.jaxpr.invars[:lost]
                if last_read.get(v) == at and not segment.shared
            ]
            f = jax.jit(
                _rename(segment.f, segment.shared or f"{self.name}_{at}"),
                donate_argnums=_choose_donated(segment, free),
            )
            forms = tuple(
                jax.ShapeDtypeStruct(each.shape, each.dtype) for each in segment.jaxpr.in_avals
            )
            self.programs.append(
                compile_later(f, forms, segment.jaxpr if segment.shared else None, quick)
            )

    def result(self) -> Callable[..., Tree]:
        """Wait until the segments are compiled, and return the function."""
        whole = self.jaxpr.jaxpr
        structure = jax.tree.structure(self.form)
        lost = self._lost
        own = self._own
        constants = dict(zip(whole.constvars, self.jaxpr.consts, strict=True))
        steps = [
            (program.result(), segment.writes)
            for program, segment in zip(self.programs, self.segments, strict=True)
        ]
        reads = [_to_arrays(segment.reads) for segment in self.segments]
        invars = whole.invars
        outvars = _to_arrays(whole.outvars)
        of_all_calls = {id(each) for each in (*constants.values(), *outvars)}

        def run(*args: Tree) -> Tree:
            leaves = jax.tree.leaves(args)
            values = constants | dict(zip(invars, leaves, strict=True))
            for (program, writes), inputs in zip(steps, reads, strict=True):
                values.update(
                    zip(writes, program(*[_look_up(values, each) for each in inputs]), strict=True)
                )
            results = [_look_up(values, each) for each in outvars]
            taken = of_all_calls | {id(each) for each in leaves[lost:]}
            for at, each in enumerate(results if own else ()):
                results[at] = jnp.array(each, copy=True) if id(each) in taken else each
                taken.add(id(each))
            return jax.tree.unflatten(structure, results)

        return run


def split_jit(f: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return the function f of arrays in segments, which are compiled at the first call with arrays
    of these shapes."""
    made: dict[Hashable, Callable[..., Tree]] = {}

    def call(*given: Tree) -> Tree:
        args = jax.tree.map(
            lambda each: each if hasattr(each, "shape") else jnp.asarray(each), given
        )
        key = (shape_key(args), jax.config.values["jax_default_matmul_precision"])
        if key not in made:
            made[key] = SplitFunction(jax.jit(f).trace(*args), quick=True).result()
        return made[key](*args)

    return call


def check_types(before: Tree, after: Tree) -> None:
    """Raise TypeError if what runs carry has other shapes or types after a round than before it."""

    def types(of: Tree) -> dict[str, str]:
        return {
            jax.tree_util.keystr(at): f"{a.dtype}{list(a.shape)}"
            for at, a in jax.tree.leaves_with_path(of)
        }

    old, new = types(before), types(after)
    changed = [
        f"{name}: {old.get(name)}, then {new.get(name)}"
        for name in old | new
        if old.get(name) != new.get(name)
    ]
    if changed:
        raise TypeError(
            f"a round must not change the shapes and types of a state: {'; '.join(changed)}"
        )


def _split_jaxpr(closed: core.ClosedJaxpr) -> list[Segment]:
    """Split a jaxpr. What no result depends on is left out. An equation is computed as late as
    possible, so that few arrays are passed on; one of constants alone, as `jnp.zeros`, in each
    segment that reads it."""
    whole = closed.jaxpr
    constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    wanted = {*_variables(whole.outvars)}
    if whole.effects:  # what prints or calls the host stays in its order
        return [_make_segment(whole, list(whole.eqns), constants, wanted)]
    # The segments that need a variable, counted from the end
    needed = {v: {0} for v in wanted}
    between: dict[int, list[core.JaxprEqn]] = collections.defaultdict(list)
    # Those that are called before a segment
    calls: dict[int, list[core.JaxprEqn]] = collections.defaultdict(list)
    for eqn in reversed(whole.eqns):
        if uses := {at for v in eqn.outvars for at in needed.get(v, ())}:
            shared, read = _is_shared(eqn), _variables(eqn.invars)
            for at in {max(uses)} if shared or read else uses:
                (calls if shared else between)[at].insert(0, eqn)
            for v in read:
                needed.setdefault(v, set()).add(max(uses) + shared)
    found = []
    for at in range(1 + max([*between, *calls], default=0)):
        if between[at]:
            found.append(_make_segment(whole, between[at], constants, wanted))
            wanted = wanted - {*found[-1].writes} | {*_variables(found[-1].reads)}
        for eqn in calls[at]:
            call = functools.partial(eqn.primitive.bind, **eqn.params)
            found.append(
                Segment(
                    call, eqn.params["jaxpr"], [*eqn.invars], [*eqn.outvars], eqn.params["name"]
                )
            )
            wanted |= {*_variables(eqn.invars)}
    return found[::-1]


def _make_segment(
    whole: core.Jaxpr,
    eqns: list[core.JaxprEqn],
    constants: dict[core.Var, Tree],
    wanted: set[core.Var],
) -> Segment:
    """Make a segment of these equations. `wanted`: the variables that are read after it."""
    made = [v for eqn in eqns for v in eqn.outvars]
    read = [v for v in _variables(v for eqn in eqns for v in eqn.invars) if v not in {*made}]
    held = [v for v in read if v in constants]
    reads = [v for v in read if v not in constants]
    writes = [v for v in made if v in wanted]
    about = whole.debug_info._replace(
        arg_names=("",) * len(reads), result_paths=("",) * len(writes)
    )
    jaxpr = core.Jaxpr(held, reads, writes, eqns, debug_info=about)
    closed = core.ClosedJaxpr(jaxpr, [constants[v] for v in held])
    return Segment(core.jaxpr_as_fun(closed), closed, [*reads], writes)


def _is_shared(eqn: core.JaxprEqn) -> bool:
    return "jaxpr" in eqn.params and str(eqn.params.get("name", "")).startswith(SHARED_PREFIX)


def _choose_donated(segment: Segment, free: list[core.Var]) -> tuple[int, ...]:
    """Return the positions of the `free` arguments whose memory is worth taking and fits a
    result."""
    room = collections.Counter(v.aval.str_short() for v in segment.writes)
    found = []
    for v in free:
        if v.aval.size >= MIN_DONATED and room[v.aval.str_short()]:  # type: ignore[attr-defined]
            room[v.aval.str_short()] -= 1
            found.append(segment.reads.index(v))
    return tuple(found)


def _variables(atoms: Atoms) -> list[core.Var]:
    return list(dict.fromkeys(atom for atom in atoms if isinstance(atom, core.Var)))


def _to_arrays(atoms: Atoms) -> list[Tree]:
    return [
        jnp.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        if isinstance(atom, core.Literal)
        else atom
        for atom in atoms
    ]


def _look_up(values: dict[core.Var, Tree], each: Tree) -> Tree:
    return values[each] if isinstance(each, core.Var) else each


def _rename(function: Callable[..., list[Tree]], name: str) -> Callable[..., list[Tree]]:
    def f(*arrays: jax.Array) -> list[Tree]:
        return function(*arrays)

    f.__name__ = name
    return f
