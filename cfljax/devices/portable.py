"""HOST. Traced programs as bytes: another process compiles them to the same kernels, and traces nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from cfljax.files import programs_folder
from cfljax.lazy import core, export, jax
from cfljax.types import Tree

LAPACK = b"lapack_"
"""The bytes by which a program that calls LAPACK is known."""
CALLERS: dict[str, bool | str] = {
    "jax_include_full_tracebacks_in_locations": False,
    "jax_hlo_source_file_canonicalization_regex": ".*/",
}
"""JAX's settings in `_without_callers`."""
Forms = tuple["jax.ShapeDtypeStruct", ...]


class Portable(NamedTuple):
    """A traced program of arrays."""

    f: Callable[..., Sequence[Tree]]
    forms: Forms
    """The shapes and types of its arguments (and, on a mesh, where they lie)."""
    results: Forms
    name: Hashable
    """Equal for programs that are the same: the sum of the bytes, or what was traced."""
    data: bytes = b""
    """The program in the format of `jax.export`; empty: it has no bytes."""


_kept: dict[Hashable, Portable] = {}
"""What `with_bytes_once` has made, by the names of the programs that it was given."""


def wanted() -> bool:
    """Whether the programs of short runs get bytes before they are compiled: where compiled programs are kept."""
    return programs_folder() is not None


def of_traced(closed: core.ClosedJaxpr, forms: Forms | None = None) -> Portable:
    """A program as it was traced. `forms`: where its arguments lie on a mesh."""
    return Portable(core.jaxpr_as_fun(closed), forms or _forms(closed.in_avals), _forms(closed.out_avals), closed)


def named(f: Callable[..., Tree], name: str) -> Callable[..., Tree]:
    """f under another name."""

    def with_name(*arrays: jax.Array) -> Tree:
        return f(*arrays)

    with_name.__name__ = name
    return with_name


def with_bytes(program: Portable, called: str) -> Portable:
    """The program with its bytes; without, where JAX cannot make them, as of one that calls the host. `called`: its name there."""
    if program.data:
        return program
    try:
        with _without_callers():
            data = bytes(export.export(jax.jit(named(program.f, called)))(*program.forms).serialize())
    except (ValueError, NotImplementedError):
        return program
    return of_bytes(data, program.forms)


def with_bytes_once(program: Portable, called: str) -> Portable:
    """As `with_bytes`, for a program that many others call: its bytes are made once."""
    if program.name not in _kept:
        _kept[program.name] = with_bytes(program, called)
    return _kept[program.name]


def forget() -> None:
    """Keep none of the programs of `with_bytes_once`."""
    _kept.clear()


def of_bytes(data: bytes, placed: Forms | None = None) -> Portable:
    """The program that these bytes are. `placed`: where its arguments lie on a mesh."""
    made = export.deserialize(bytearray(data))
    if LAPACK not in data:
        made = _without_lapack(made)
    return Portable(made.call, placed or _forms(made.in_avals), _forms(made.out_avals), hashlib.sha256(data).hexdigest(), data)


@contextlib.contextmanager
def _without_callers() -> Iterator[None]:
    """In this context JAX notes of each operation its function and the name of the file, and leaves out the callers and the folder,
    so that equal programs have equal bytes."""
    before = {name: jax.config.values[name] for name in CALLERS if name in jax.config.values}
    try:
        for name in before:
            jax.config.update(name, CALLERS[name])
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _without_lapack(made: export.Exported) -> export.Exported:
    """The same program under another platform's name, which JAX then does not compare. Under the name of a CPU it would import
    scipy's linear algebra, which takes 0.2 s."""
    checks = (*made.disabled_safety_checks, export.DisabledSafetyCheck.platform())
    return dataclasses.replace(made, platforms=("any",), disabled_safety_checks=checks)


def _forms(avals: Sequence[Tree]) -> Forms:
    return tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in avals)
