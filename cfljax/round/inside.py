"""A method whose state is kept inside of a larger one: beside it is what the server or clients remember, whatever the method is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfljax.types import Init, Method, Round


def inside(method: Method, init: Init[Any], round: Round[Any]) -> Method:
    """Return the method on states whose field `inner` is its own state. `init` and `round` make such states."""

    def read(function: Callable[..., Any] | None) -> Any:
        return None if function is None else lambda state, *more: function(state.inner, *more)

    def write(function: Callable[..., Any] | None, at: int) -> Any:
        if function is None:
            return None
        return lambda *a, **k: a[at]._replace(inner=function(*a[:at], a[at].inner, *a[at + 1 :], **k))

    names = ("models", "score", "extras", "also", "mixture", "adapt", "shares")
    outer = {name: read(getattr(method, name)) for name in names} | {"settle": None, "init": init, "round": round}
    return method._replace(**outer, follow=write(method.follow, 0), regroup=write(method.regroup, 1))
