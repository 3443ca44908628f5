"""JAX, and what comes with it, for the modules of this package: `from cfljax.lazy import jax, jnp`.
Commands import them at first use, since importing JAX takes longer than all else that `--help` and
`--dry-run` do."""

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
    from jax import flatten_util, lax
    from jax import numpy as jnp
    from jax.extend import core

    __all__ = ["chex", "core", "flatten_util", "jax", "jnp", "lax", "nn", "optax"]

_MODULES = {
    "chex": "chex",
    "core": "jax.extend.core",
    "jax": "jax",
    "jnp": "jax.numpy",
    "lax": "jax.lax",
    "nn": "flax.linen",
    "optax": "optax",
    "flatten_util": "jax.flatten_util",
}
_waits = sys.argv[:1] == ["-m"] and any(word.startswith("cfljax.") for word in sys.orig_argv)
"""Whether this is a command's process, which does not import JAX before it is used. While `python
-m cfljax.methods` imports the package, only the command line says so."""
# What is to be done when JAX has been imported
_then: list[Callable[[], object]] = []
_one_at_a_time = threading.RLock()
Args = ParamSpec("Args")
Out = TypeVar("Out")
Tree = TypeVar("Tree")


def wait() -> None:
    """Import JAX when it is used. For commands alone: a user's program may import JAX itself, and
    must find the package's classes registered."""
    global _waits
    _waits = "jax" not in sys.modules


def load() -> None:
    """Import JAX, and do what waited for it."""
    global _waits
    importlib.import_module("jax")
    with _one_at_a_time:
        while _then:
            _then.pop(0)()
        _waits = False


def when_loaded(do: Callable[[], object]) -> None:
    """Do this when JAX has been imported: in a command later, elsewhere at once."""
    with _one_at_a_time:
        _then.append(do)
        now = "jax" in sys.modules or not _waits
    if now:
        load()


def tree(fields: type[Tree]) -> type[Tree]:
    """Register a dataclass with JAX as a tree of arrays."""
    when_loaded(lambda: importlib.import_module("jax").tree_util.register_dataclass(fields))
    return fields


class Transformed(Generic[Args, Out]):
    """A function that a transformation of JAX, as `jax.jit`, is applied to at the first call."""

    def __init__(self, transformation: str, options: dict[str, Any], f: Callable[Args, Out]):
        functools.update_wrapper(self, f, updated=())
        self._transformation, self._options, self._f = transformation, options, f
        self._rules: list[tuple[str, tuple[Callable[..., object], ...]]] = []

    def __call__(self, *args: Args.args, **more: Args.kwargs) -> Out:
        out: Out = self.made(*args, **more)
        return out

    @functools.cached_property
    def made(self) -> Any:
        """The transformed function."""
        home, _, name = self._transformation.rpartition(".")
        load()
        made = getattr(importlib.import_module(home), name)(self._f, **self._options)
        for rule, functions in self._rules:
            getattr(made, rule)(*functions)
        return made

    def forget(self) -> None:
        """Trace a function of `jax.jit` again at the next call."""
        if "made" in vars(self):
            self.made.clear_cache()

    def _define(self, rule: str, *functions: Callable[..., object]) -> Any:
        self._rules.append((rule, functions))
        return functions[0]

    defvjp = functools.partialmethod(_define, "defvjp")
    defjvp = functools.partialmethod(_define, "defjvp")
    def_vmap = functools.partialmethod(_define, "def_vmap")


def _lazily(name: str) -> Callable[..., Callable[[Callable[Args, Out]], Transformed[Args, Out]]]:
    return lambda **options: functools.partial(Transformed, name, options)


jit, custom_jvp, custom_vjp = (
    _lazily("jax.jit"),
    _lazily("jax.custom_jvp"),
    _lazily("jax.custom_vjp"),
)
custom_vmap = _lazily("jax.custom_batching.custom_vmap")


class _OfArrays(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), cls)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return "jax" in sys.modules and issubclass(subclass, importlib.import_module("jax").Array)


class _Array(metaclass=_OfArrays):
    """Stands for `jax.Array` in the types of a command that has not imported JAX."""


class _Module(types.ModuleType):
    """Stands for a module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        if (self.__name__, name) == ("jax", "Array") and _waits:
            return _Array
        load()
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        load()
        return dir(importlib.import_module(self.__name__))


def __getattr__(name: str) -> types.ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'cfljax.lazy' has no attribute {name!r}")
    path = _MODULES[name]
    module: types.ModuleType = globals().setdefault(name, sys.modules.get(path) or _Module(path))
    return module
