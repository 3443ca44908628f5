"""JAX, and what comes with it, for the modules of this package: `from cfljax.lazy import jax, jnp`. They are imported when they are
first used: importing JAX takes longer than all else that `--dry-run` does. The package's classes that JAX must know (`tree`) need
it at once in a user's own program, and in a command only when it is used."""

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
    from jax import export, flatten_util, lax
    from jax import numpy as jnp
    from jax.extend import core

    __all__ = ["chex", "core", "export", "flatten_util", "jax", "jnp", "lax", "nn", "optax"]

_MODULES = {
    "chex": "chex",
    "core": "jax.extend.core",
    "export": "jax.export",
    "jax": "jax",
    "jnp": "jax.numpy",
    "lax": "jax.lax",
    "nn": "flax.linen",
    "optax": "optax",
    "flatten_util": "jax.flatten_util",
}
_waits = sys.argv[:1] == ["-m"] and any(word.startswith("cfljax.") for word in sys.orig_argv)
"""Whether this is a command's process, in which `tree` does not import JAX. While `python -m cfljax.methods` imports the package,
only the command line says so."""
_then: list[Callable[[], object]] = []
"""What is to be done when JAX has been imported."""
_one_at_a_time = threading.RLock()
Args = ParamSpec("Args")
Out = TypeVar("Out")
Rule = TypeVar("Rule", bound=Callable[..., object])
Tree = TypeVar("Tree")


def wait() -> None:
    """Let `tree` wait for JAX. For commands alone: a user's program may import JAX itself, and must find the package's classes
    known to it."""
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


def when_loaded(do: Callable[[], object]) -> None:
    """Do this when JAX has been imported: in a command later, elsewhere at once."""
    with _one_at_a_time:
        _then.append(do)
        now = "jax" in sys.modules or not _waits
    if now:
        load()


def tree(fields: type[Tree]) -> type[Tree]:
    """Marks a dataclass that JAX must know, as it is a tree of arrays."""
    when_loaded(lambda: importlib.import_module("jax").tree_util.register_dataclass(fields))
    return fields


class Formed(Generic[Args, Out]):
    """A function to which JAX gives a form when it is first called, as `jax.jit` does when the function is defined."""

    def __init__(self, form: str, options: dict[str, Any], f: Callable[Args, Out]):
        functools.update_wrapper(self, f, updated=())
        self._form, self._options, self._f = form, options, f
        self._rules: list[tuple[str, tuple[Callable[..., object], ...]]] = []

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
        return "jax" in sys.modules and isinstance(instance, importlib.import_module("jax").Array)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return "jax" in sys.modules and issubclass(subclass, importlib.import_module("jax").Array)


class _Array(metaclass=_OfArrays):
    """Stands for `jax.Array` in the types of a command that has not imported JAX."""


class _Later(types.ModuleType):
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


def _module(name: str) -> Any:
    if name in sys.modules:
        return importlib.import_module(name)
    return _Later(name)


def __getattr__(name: str) -> types.ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'cfljax.lazy' has no attribute {name!r}")
    return globals().setdefault(name, _module(_MODULES[name]))  # type: ignore[no-any-return]
