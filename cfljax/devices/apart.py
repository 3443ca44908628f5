"""Parts that many programs have in common. Where the engine cuts a program at them (`devices.cut`), each is a program of its own,
which is compiled once for all programs that have it; elsewhere they are computed where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

MARK = "apart_"
"""How the names of such parts begin in a traced program."""
Args = ParamSpec("Args")
Out = TypeVar("Out")


def apart(static: tuple[int, ...] = ()) -> Callable[[Callable[Args, Out]], Callable[Args, Out]]:
    """Marks a function as such a part. It reads its arguments alone, and is traced once for equal `static` ones (their positions)
    and equal shapes of the others."""

    def marked(f: Callable[Args, Out]) -> Callable[Args, Out]:
        f.__name__ = f"{MARK}{f.__name__.strip('_')}"
        part: Callable[Args, Out] = jax.jit(f, static_argnums=static)
        return part

    return marked
