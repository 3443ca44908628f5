"""Functions that are programs of their own where what calls them is cut into pieces (`devices.cut`), so that they are compiled once
for all that call them. Elsewhere they are computed where they stand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from cfljax.devices import portable
from cfljax.lazy import Formed, jit

MARK = "own_program_"
"""How the names of such functions begin in a traced program."""
MOST = 128
"""After this number of traces all are forgotten, since each keeps some memory."""
_made: list[Formed[..., Any]] = []
"""All such functions."""
_traces = 0
Args = ParamSpec("Args")
Out = TypeVar("Out")


def own_program(static: tuple[int, ...] = ()) -> Callable[[Callable[Args, Out]], Callable[Args, Out]]:
    """Marks such a function. It must depend on nothing but its arguments. It is traced once for equal `static` arguments (their
    positions) and equal shapes of the others."""

    def marked(f: Callable[Args, Out]) -> Callable[Args, Out]:
        @functools.wraps(f)
        def traced(*args: Args.args, **more: Args.kwargs) -> Out:
            global _traces
            _traces += 1
            return f(*args, **more)

        traced.__name__ = MARK + f.__name__.strip("_")
        _made.append(jit(static_argnums=static)(traced))
        return _made[-1]

    return marked


def forget_traces() -> None:
    """Trace such functions anew when they are called next."""
    global _traces
    _traces = 0
    portable.forget()
    for program in _made:
        program.forget()


def forget_many_traces() -> None:
    """`forget_traces`, where there are more than MOST."""
    if _traces > MOST:
        forget_traces()
