"""HOST. The memory that the arrays of a pass of a model take at one time, forwards and backwards: from its jaxpr.

XLA joins operations that compute each number from a few others into the kernels beside them, and computes them again where they are
needed later. So an array has a place in memory only if it is what a kernel of its own makes (a product, a convolution, a sum, a
loop) or reads as a whole. It has it from there to the last operation that needs it, itself or through joined ones: what a forward
pass leaves for the backward pass lies there in between, of every layer.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from cfljax.federation.gather import samples
from cfljax.lazy import core, jax, jnp
from cfljax.local.gradients import Samples, loss_sum
from cfljax.types import Federation, Model

KERNELS = {
    "dot_general", "conv_general_dilated", "scatter", "scatter-add", "gather", "sort", "cumsum", "fft", "reduce_window",
    "select_and_scatter_add", "random_bits", "threefry2x32", "scan", "while", "cond",
}  # fmt: skip
"""Operations with kernels of their own, which read and write whole arrays."""
VIEWS = {"reshape", "squeeze", "expand_dims", "transpose", "copy", "stop_gradient", "optimization_barrier", "convert_element_type"}
"""Operations whose result is their argument in another form."""
BODIES = {"scan": "jaxpr", "while": "body_jaxpr"}
"""Loops, and under which name they have their bodies."""
SizeOf = Callable[[tuple[int, ...], int, bool, bool], int]
"""(shape, bytes of a number, whether the pass has convolutions, whether a loop reads or stacks it) -> the bytes that such an array
takes."""


def plain(shape: tuple[int, ...], each: int, convolves: bool, stacked: bool) -> int:  # noqa: ARG001
    """Bytes of an array without any padding."""
    return math.prod(shape) * each


class Layout(NamedTuple):
    """How XLA keeps arrays on a platform."""

    platform: str = "cuda"
    """For which branch of `platform_dependent` it is."""
    size: SizeOf = plain
    tiles: bool = False
    """Whether the last two axes lie in tiles. Then images are written that are broadcast to more than four axes, as the gradient of
    pooling does with its squares; and what a loop stacks is copied into another order for other kernels, as is theirs for a loop.
    """


PLAIN = Layout()


class Place(NamedTuple):
    """An array in memory: the number of the operation that makes it, and which of its results."""

    made: int
    """0: it was there before."""
    result: Any


class Value(NamedTuple):
    """What a variable of a jaxpr stands for."""

    aval: Any
    place: Place
    """Where it is, or would be if a kernel had to read it as a whole."""
    roots: frozenset[Place]
    """The arrays in memory that it is computed from by operations that are joined; its own place, if it is in memory."""


def _given(what: Any) -> Value:
    """What was there before, and is counted elsewhere."""
    return Value(None, Place(0, what), frozenset())


def most(function: Callable[..., Any], *forms: Any, layout: Layout = PLAIN) -> int:
    """The most bytes that the arrays of a call of the function take at one time, its arguments and its results left out."""
    return _most(jax.make_jaxpr(function)(*forms).jaxpr, layout)


def of_step(model: Model, federation: Federation, batch: int, layout: Layout = PLAIN) -> int:
    """Bytes of a client's step on this number of samples: what it has besides these, its parameters and their gradient."""
    return _of_pass(model, *_forms(federation, batch), True, layout)


def of_look(model: Model, federation: Federation, batch: int, layout: Layout = PLAIN) -> int:
    """Bytes of a forward pass of the model with this number of samples, besides these."""
    return _of_pass(model, *_forms(federation, batch), False, layout)


def _forms(federation: Federation, batch: int) -> tuple[Any, ...]:
    """The forms of this number of samples, and of their labels."""
    client, there = jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
    x, y = jax.eval_shape(lambda: samples(federation, client, client, there))
    return tuple(jax.ShapeDtypeStruct((batch, *each.shape[1:]), each.dtype) for each in (x, y))


@functools.lru_cache(maxsize=64)
def _of_pass(model: Model, x: Any, y: Any, backward: bool, layout: Layout) -> int:
    params = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    if not backward:
        return most(lambda params, x: model.forward(params, x, None), params, x, layout=layout)
    key, mask = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct(x.shape[:1], bool)

    def step(params: Any, x: Any, y: Any, mask: Any, key: Any) -> Any:
        return jax.value_and_grad(loss_sum, 1)(model, params, Samples(x, y, mask), key)

    return most(step, params, x, y, mask, key, layout=layout)


def _most(jaxpr: Any, layout: Layout) -> int:
    walk = _Walk(layout)
    results = {value.place for value in walk.go(jaxpr, [_given(v) for v in jaxpr.invars])}
    change = [0] * (walk.now + 2)
    for place in walk.arrays.keys() - results:
        aval = walk.arrays[place]
        each = getattr(aval.dtype, "itemsize", 8)  # keys of random numbers have no such size
        taken = layout.size(aval.shape, each, walk.convolves, place in walk.stacked)
        change[walk.begins[place]] += taken
        change[walk.ends[place] + 1] -= taken
    total = itertools.accumulate(change)
    return max(here + walk.inside.get(now, 0) for now, here in enumerate(total))


class _Walk:
    """Goes through a jaxpr in its order."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.now = 0
        self.convolves = False
        self.stacked: set[Place] = set()
        """What loops read and stack."""
        self.arrays: dict[Place, Any] = {}
        """Each array's abstract value."""
        self.begins: dict[Place, int] = {}
        """The operation that writes each array."""
        self.ends: dict[Place, int] = {}
        """The last operation that needs it."""
        self.inside: dict[int, int] = {}
        """Bytes that the bodies of loops take for themselves."""
        self.joined: dict[tuple[Any, ...], list[Value]] = {}
        """What joined operations make: the same one of the same arguments is done once."""

    def go(self, jaxpr: Any, given: list[Value]) -> list[Value]:
        """The values of the results."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
        read = lambda v: _given(str(v)) if isinstance(v, core.Literal) else known.get(v, _given(v))  # noqa: E731
        for equation in jaxpr.eqns:
            values = [read(v) for v in equation.invars]
            inner, skipped = _inner(equation, self.layout.platform)
            made = self._one(equation, values) if inner is None else self.go(inner, values[skipped:])
            known.update(zip(equation.outvars, made, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _one(self, equation: Any, values: list[Value]) -> list[Value]:
        """The values that an operation makes."""
        self.now += 1
        name, avals = equation.primitive.name, [v.aval for v in equation.outvars]
        roots = frozenset[Place]().union(*(value.roots for value in values))
        self.ends.update(dict.fromkeys(roots, self.now))
        if name in VIEWS:
            return [values[0]._replace(aval=avals[0])]
        made = [Value(aval, Place(self.now, number), roots) for number, aval in enumerate(avals)]
        squares = self.layout.tiles and _spreads(equation)
        if squares:  # in the numbers that are broadcast, not in what an operation such as a comparison makes of them
            made[0] = made[0]._replace(aval=jax.ShapeDtypeStruct(avals[0].shape, equation.invars[0].aval.dtype))
        if name not in KERNELS and not name.startswith(("reduce", "arg")) and not squares:
            return self.joined.setdefault((name, str(equation.params), *(value.place for value in values)), made)
        self.convolves |= name == "conv_general_dilated"
        if name in KERNELS:
            for value in values:
                self._read(value, name in BODIES)
        bodies = [equation.params[BODIES[name]]] if name in BODIES else equation.params.get("branches", ())
        self.inside[self.now] = max((_most(body.jaxpr, self.layout) for body in bodies), default=0)
        for value in made:
            self._write(value)
        self.stacked.update(value.place for value in made if name in BODIES)
        return [value._replace(roots=frozenset({value.place})) for value in made]

    def _read(self, value: Value, by_loop: bool) -> None:
        """A kernel reads the value as a whole."""
        self._write(value)
        if self.layout.tiles and by_loop != (value.place in self.stacked):
            copy = Place(value.place.made, ("copy", value.place.result))
            self._write(value._replace(place=copy))
            self.stacked.update({copy} if by_loop else ())

    def _write(self, value: Value) -> None:
        """The value is in memory now."""
        if value.place.made:
            self.arrays.setdefault(value.place, value.aval)
            self.begins.setdefault(value.place, self.now)
            self.ends[value.place] = self.now


def _spreads(equation: Any) -> bool:
    """Whether the operation broadcasts an array to more than four axes."""
    out, largest = equation.outvars[0].aval, max((v.aval.size for v in equation.invars), default=0)
    return bool(getattr(out, "ndim", 0) > 4 and 1 < largest < out.size)


def _inner(equation: Any, platform: str) -> tuple[Any, int]:
    """The jaxpr that the equation is a call of, and how many of its arguments are not for it; None if it is an operation."""
    parts = equation.params
    if parts.get("branches_platforms") is not None:  # one of them is compiled
        named = list(zip(parts["branches_platforms"], parts["branches"], strict=True))
        own = [branch for names, branch in named if platform in (names or ())]
        return (own or [branch for names, branch in named if names is None])[0].jaxpr, 1
    inner = parts.get("jaxpr", parts.get("call_jaxpr", parts.get("call")))
    inner = getattr(inner, "jaxpr", inner)
    called = inner is not None and len(inner.invars) == len(equation.invars)
    if not called or equation.primitive.name in KERNELS or equation.primitive.name.startswith("reduce"):
        return None, 0
    return inner, 0
