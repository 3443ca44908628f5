"""Functions that are programs of their own where what calls them is cut into pieces (`devices.cut`), so that they are compiled once
for all that call them. Elsewhere they are computed where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

MARK = "own_program_"
"""How the names of such functions begin in a traced program."""
Args = ParamSpec("Args")
Out = TypeVar("Out")


def own_program(static: tuple[int, ...] = ()) -> Callable[[Callable[Args, Out]], Callable[Args, Out]]:
    """Marks such a function. It must depend on nothing but its arguments. It is traced once for equal `static` arguments (their
    positions) and equal shapes of the others."""

    def marked(f: Callable[Args, Out]) -> Callable[Args, Out]:
        f.__name__ = MARK + f.__name__.strip("_")
        program: Callable[Args, Out] = jax.jit(f, static_argnums=static)
        return program

    return marked
