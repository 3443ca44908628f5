"""A sum of what a user's function means: of its code and of everything that it refers to, directly or indirectly. It is for
functions that a notebook or script registers, whose meaning is in no file: cells run in any order, and values come from
anywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from cfljax.registry.sources import is_users, program_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)
_NAMED = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
_WRITTEN = ("pathlib", "decimal", "fractions", "datetime", "uuid", "re", "enum", "typing", "types")
"""Modules of Python whose objects have a `repr` that says everything about them."""
_MADE = {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__", "__dataclass_params__",
         "__annotate__", "__annotate_func__", "__annotations_cache__", "__parameters__", "__orig_bases__"}  # fmt: skip
"""Attributes that Python or `dataclass` adds to a class; they say nothing about what it does."""


def meaning(*things: object) -> tuple[str, list[str]]:
    """(SHA-256 of what the things mean, the names of values that it refers to and whose contents cannot be summed)."""
    walk = _Walk()
    for thing in things:
        walk.add(thing, getattr(thing, "__name__", "it"))
    return walk.digest.hexdigest(), list(dict.fromkeys(walk.unknown))


class _Walk:
    """A walk over everything that a value refers to. Each object is visited once."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.unknown: list[str] = []
        self.seen: dict[int, tuple[int, object]] = {}
        """id of an object → (its number in the walk, the object). The object is kept, so that no other gets its id."""
        self.inside = 0
        """How many objects of libraries the walk is inside of. There, values that cannot be summed are not reported."""

    @contextlib.contextmanager
    def library(self, really: bool = True) -> Iterator[None]:
        """A context in which the walk is inside of an object of a library, if that is `really` so."""
        self.inside += really
        try:
            yield
        finally:
            self.inside -= really

    def write(self, *words: object) -> None:
        self.digest.update("\x1f".join(map(str, words)).encode() + b"\x1e")

    def add(self, value: object, name: str) -> None:
        """Add one value in the way of its kind. `name` is what the user calls it."""
        if isinstance(value, _PLAIN):
            return self.write(type(value).__name__, repr(value))
        if id(value) in self.seen:
            return self.write("again", self.seen[id(value)][0])
        self.seen[id(value)] = len(self.seen), value
        for kind, each in _KINDS:
            if isinstance(value, kind):
                return each(self, value, name)
        return self.instance(value, name)

    def items(self, value: Collection[object], name: str) -> None:
        self.write(type(value).__qualname__, len(value))
        for item in value:
            self.add(item, name)

    def table(self, value: Mapping[Any, object], name: str) -> None:
        self.write("table", len(value))
        for key, item in value.items():
            self.add(key, name)
            self.add(item, f"{name}[{key!r:.30}]")

    def set(self, value: Collection[object], name: str) -> None:  # noqa: ARG002
        sums = sorted(meaning(item)[0] for item in value)
        self.write(type(value).__qualname__, *sums)

    def function(self, value: types.FunctionType, name: str) -> None:
        """Add a user's function by its code and all that it refers to, a library's by its name, closure and defaults."""
        if not _is_users_function(value):
            self.write("function", value.__module__, value.__qualname__)
            with self.library():
                self.parts(value, name)
            return
        self.write("function")
        self.code(value.__code__, value.__globals__)
        self.parts(value, value.__name__)

    def parts(self, value: types.FunctionType, name: str) -> None:
        for cell, free in zip(value.__closure__ or (), value.__code__.co_freevars, strict=True):
            try:
                self.add(cell.cell_contents, free)
            except ValueError:  # not set yet
                self.write("empty")
        self.add(value.__defaults__, name)
        self.add(value.__kwdefaults__, name)
        for key, item in vars(value).items():  # what a decorator has wrapped, and what is written to the function
            self.write(key)
            with self.library(key != "__wrapped__"):
                self.add(item, f"{name}.{key}")

    def code(self, code: types.CodeType, around: dict[str, object]) -> None:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self.write(code.co_code.hex(), *counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant, around)
            else:
                self.add(constant, code.co_name)
        for name, value in _referred(code, around):
            self.write("global", name)
            self.add(value, name)

    def type(self, value: type, name: str) -> None:  # noqa: ARG002
        self.write("class", value.__module__ if not _of_user(value) else "", value.__qualname__)
        if not _of_user(value):
            return
        for base in value.__bases__:
            self.add(base, base.__name__)
        generated = dataclasses.is_dataclass(value)
        for key, item in vars(value).items():
            if key in _MADE or (generated and getattr(getattr(item, "__code__", None), "co_filename", "") == "<string>"):
                continue
            self.write(key)
            library = not _of_user(type(item)) and (key.startswith("_") or hasattr(type(item), "__get__"))
            with self.library(library and not isinstance(item, types.FunctionType)):
                self.add(item, f"{value.__name__}.{key}")

    def field(self, value: dataclasses.Field[object], name: str) -> None:
        self.write("field", value.name, value.type, value.init, value.kw_only)
        for each in (value.default, value.default_factory, dict(value.metadata)):
            if each is not dataclasses.MISSING:
                self.add(each, name)

    def descriptor(self, value: object, name: str) -> None:
        self.write(type(value).__name__)
        self.attributes(value, name, "fget", "fset", "__func__", "func")

    def attributes(self, value: object, name: str, *attributes: str) -> None:
        for attribute in attributes:
            self.add(getattr(value, attribute, None), name)

    def module(self, value: types.ModuleType, name: str) -> None:
        """Add a module: a user's with everything in it, as the code does not say which part it uses; a library's by its name."""
        self.write("module", value.__name__)
        if is_users(getattr(value, "__file__", None) or sys.executable):
            self.table({k: v for k, v in vars(value).items() if not k.startswith("__")}, name)

    def named(self, value: object, name: str) -> None:
        """Add something that has a name in a library; a method of an object (`TABLE.get`) with the object."""
        self.write("named", getattr(value, "__module__", ""), getattr(value, "__qualname__", repr(value)))
        if not isinstance(its := getattr(value, "__self__", None), types.ModuleType | None):
            self.add(its, name)

    def pattern(self, value: re.Pattern[str], name: str) -> None:  # noqa: ARG002
        self.write("pattern", repr(value.pattern), value.flags)

    def instance(self, value: Any, name: str) -> None:
        """Add any other object: an array, a dataclass, an object of a user's class, a wrapper such as that of jax.jit."""
        kind = type(value)
        self.write("instance")
        self.add(kind, kind.__name__)
        if hasattr(value, "dtype") and hasattr(value, "__array__"):
            return self.array(value, name)
        if dataclasses.is_dataclass(value):
            fields = ((f, getattr(value, f.name, None)) for f in dataclasses.fields(value))
            return self.table({f.name: v for f, v in fields if v is not f.default}, name)
        if hasattr(value, "__wrapped__"):  # jax.jit and its like
            return self.add(value.__wrapped__, name)
        if kind.__module__.partition(".")[0] in _WRITTEN:
            return self.write(repr(value))
        if _of_user(kind) or kind.__module__ == "argparse":
            slots = [s for c in kind.__mro__ for s in getattr(c, "__slots__", ()) if isinstance(s, str)]
            return self.table({s: getattr(value, s, None) for s in slots} | getattr(value, "__dict__", {}), name)
        if isinstance(getattr(value, "__name__", None), str):  # a ufunc, a primitive
            return self.named(value, name)
        return None if self.inside else self.unknown.append(f"{name} ({kind.__module__}.{kind.__qualname__})")

    def array(self, value: Any, name: str) -> None:
        import numpy as np

        try:
            if str(value.dtype).startswith("key<"):
                value = sys.modules["jax"].random.key_data(value)
            array = np.ascontiguousarray(value)
        except Exception:  # whatever a library raises that does not want to be one
            array = np.array(None)
        if array.dtype.hasobject:
            return self.unknown.append(f"{name} ({type(value).__qualname__})")
        self.write(array.dtype.str, array.shape)
        return self.digest.update(array.reshape(-1).view(np.uint8).data)


_KINDS: tuple[tuple[type | tuple[type, ...], Callable[..., None]], ...] = (
    (type, _Walk.type),
    (types.FunctionType, _Walk.function),
    (types.MethodType, lambda walk, value, name: walk.attributes(value, name, "__func__", "__self__")),
    ((staticmethod, classmethod, property, functools.cached_property), _Walk.descriptor),
    (functools.partial, lambda walk, value, name: walk.attributes(value, name, "func", "args", "keywords")),
    (types.ModuleType, _Walk.module),
    (_NAMED, _Walk.named),
    (re.Pattern, _Walk.pattern),
    (dataclasses.Field, _Walk.field),
    ((dict, types.MappingProxyType), _Walk.table),
    ((set, frozenset), _Walk.set),
    ((list, tuple), _Walk.items),
    (types.SimpleNamespace, lambda walk, value, name: walk.table(vars(value), name)),
)


def _referred(code: types.CodeType, around: dict[str, object]) -> Iterator[tuple[str, object]]:
    """(name, value) of each global that the code reads; where it takes an attribute of a module, of that attribute alone. For a
    module that the code imports itself, the value is the sums of the module's files, as far as they are the user's."""
    steps = list(dis.get_instructions(code))
    for step, then in zip(steps, [*steps[1:], None], strict=True):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in around:
            value, name = around[step.argval], str(step.argval)
            takes = then is not None and then.opname in ("LOAD_ATTR", "LOAD_METHOD") and hasattr(value, str(then.argval))
            if isinstance(value, types.ModuleType) and takes:
                assert then is not None
                yield f"{name}.{then.argval}", getattr(value, then.argval)
            else:
                yield name, value
        elif step.opname == "IMPORT_NAME":
            files = program_of(str(step.argval), every=False)
            yield str(step.argval), [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def _is_users_function(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return bool(re.match(r"<(?!frozen)", name)) or is_users(name)


def _of_user(kind: type) -> bool:
    """Whether a class is the user's: its module is a notebook or script, or one of the user's files."""
    name = kind.__module__
    module = sys.modules.get(name)
    if name == "__main__" or module is None:
        return True
    file = getattr(module, "__file__", None)
    return file is not None and is_users(file)
