"""JAX, and what comes with it, for the modules of this package: `from cfljax.lazy import jax, jnp`. A command's process imports
them when they are first used, since importing them takes longer than all that a command does which trains nothing. In every other
process these names are the modules themselves."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    import chex
    import jax
    import optax
    from flax import linen as nn
    from jax import export, lax
    from jax import numpy as jnp
    from jax.experimental import pallas as pl
    from jax.extend import core

    __all__ = ["chex", "core", "export", "jax", "jnp", "lax", "nn", "optax", "pl"]

_MODULES = {
    "chex": "chex",
    "core": "jax.extend.core",
    "export": "jax.export",
    "jax": "jax",
    "jnp": "jax.numpy",
    "lax": "jax.lax",
    "nn": "flax.linen",
    "optax": "optax",
    "pl": "jax.experimental.pallas",
}
_waits = sys.argv[:1] == ["-m"] and any(word.startswith("cfljax.") for word in sys.orig_argv)
"""Whether JAX is not imported before it is used. `python -m cfljax.methods` imports modules of the package before the command."""
_then: list[Callable[[], None]] = []
"""What is to be done when JAX has been imported."""
_one_at_a_time = threading.RLock()
Args = ParamSpec("Args")
Out = TypeVar("Out")
Rule = TypeVar("Rule", bound=Callable[..., object])
Tree = TypeVar("Tree")


def wait() -> None:
    """Do not import JAX before it is used, either, for what it must know of the package's classes. For commands alone: a user's
    program may use JAX without this module, and must find them known."""
    global _waits
    _waits = "jax" not in sys.modules


def load() -> None:
    """Import JAX, and tell it what it must know."""
    global _waits
    importlib.import_module("jax")
    with _one_at_a_time:
        while _then:
            _then.pop(0)()
        _waits = False


def when_loaded(do: Callable[[], None]) -> None:
    """Do this when JAX has been imported: at once, where it has been."""
    _then.append(do)
    if "jax" in sys.modules:
        load()


def tree(fields: type[Tree]) -> type[Tree]:
    """Marks a dataclass that JAX must know, as it is a tree of arrays."""
    _then.append(lambda: _module("jax").tree_util.register_dataclass(fields))
    if not _waits:
        load()
    return fields


class Formed(Generic[Args, Out]):
    """A function to which JAX gives a form when it is first called, as `jax.jit` does when the function is defined."""

    def __init__(self, form: str, options: dict[str, Any], f: Callable[Args, Out]):
        self._form, self._options, self._f = form, options, f
        self._rules: list[tuple[str, tuple[Callable[..., object], ...]]] = []
        functools.update_wrapper(self, f)

    def __call__(self, *args: Args.args, **more: Args.kwargs) -> Out:
        out: Out = self.made(*args, **more)
        return out

    @functools.cached_property
    def made(self) -> Any:
        """The function in its form."""
        home, _, form = self._form.rpartition(".")
        load()
        made = getattr(importlib.import_module(home), form)(self._f, **self._options)
        for name, rules in self._rules:
            getattr(made, name)(*rules)
        return made

    def forget(self) -> None:
        """Trace a function with the form of `jax.jit` anew when it is called next."""
        if "made" in vars(self):
            self.made.clear_cache()

    def defvjp(self, forward: Callable[..., object], backward: Callable[..., object]) -> None:
        """As `jax.custom_vjp` has it."""
        self._rules.append(("defvjp", (forward, backward)))

    def defjvp(self, rule: Rule) -> Rule:
        """As `jax.custom_jvp` has it."""
        self._rules.append(("defjvp", (rule,)))
        return rule

    def def_vmap(self, rule: Rule) -> Rule:
        """As `jax.custom_batching.custom_vmap` has it."""
        self._rules.append(("def_vmap", (rule,)))
        return rule


def _form(name: str) -> Callable[..., Callable[[Callable[Args, Out]], Formed[Args, Out]]]:
    return lambda **options: functools.partial(Formed, name, options)


jit, custom_jvp, custom_vjp = _form("jax.jit"), _form("jax.custom_jvp"), _form("jax.custom_vjp")
custom_vmap = _form("jax.custom_batching.custom_vmap")


class _OfArrays(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _module("jax").Array)


class _Array(metaclass=_OfArrays):
    """Stands for `jax.Array` in types."""


class _Later(types.ModuleType):
    """Stands for a module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        load()
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        load()
        return dir(importlib.import_module(self.__name__))


def _module(name: str) -> Any:
    if name in sys.modules:
        return importlib.import_module(name)
    later = _Later(name)
    if name == "jax":
        later.Array = _Array  # type: ignore[attr-defined]
    return later


def __getattr__(name: str) -> types.ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'cfljax.lazy' has no attribute {name!r}")
    return globals().setdefault(name, _module(_MODULES[name]))  # type: ignore[no-any-return]
