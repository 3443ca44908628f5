"""HOST. Traced programs, which can be written down as bytes. Another process compiles these to the same kernels and traces
nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import jax
from jax import export
from jax.extend import core

from cfljax.files import programs_folder
from cfljax.types import Tree

LAPACK = b"lapack_"
"""What a program has in it that calls LAPACK."""
Forms = tuple[jax.ShapeDtypeStruct, ...]


class Portable(NamedTuple):
    """A traced program of arrays."""

    f: Callable[..., Sequence[Tree]]
    forms: Forms
    """The shapes and types of its arguments (and, on a mesh, where they lie)."""
    results: Forms
    name: Hashable
    """Equal for programs that are the same: the sum of the bytes, or what was traced."""
    data: bytes = b""
    """The program in the format of `jax.export`; empty: it is not written down."""


_written: dict[Hashable, Portable] = {}
"""What `written_once` has written down, by the names of what was traced."""


def wanted() -> bool:
    """Whether the programs of short runs are written down before they are compiled: where compiled programs are kept."""
    return programs_folder() is not None


def of_traced(closed: core.ClosedJaxpr, forms: Forms | None = None) -> Portable:
    """A program as it was traced. `forms`: where its arguments lie on a mesh."""
    return Portable(core.jaxpr_as_fun(closed), forms or _forms(closed.in_avals), _forms(closed.out_avals), closed)


def written(program: Portable, called: str) -> Portable:
    """The program with its bytes. As it is where JAX cannot write it down: where it calls the host, say. `called`: its name."""
    if program.data:
        return program

    def f(*arrays: jax.Array) -> Sequence[Tree]:
        return program.f(*arrays)

    f.__name__ = called
    try:
        data = bytes(export.export(jax.jit(f))(*program.forms).serialize())
    except (ValueError, NotImplementedError):
        return program
    return of_bytes(data, program.forms)


def written_once(program: Portable, called: str) -> Portable:
    """As `written`, for a program that many others call: what is known by one name is written down once."""
    if program.name not in _written:
        _written[program.name] = written(program, called)
    return _written[program.name]


def forget() -> None:
    """Keep nothing of what was written down."""
    _written.clear()


def of_bytes(data: bytes, placed: Forms | None = None) -> Portable:
    """The program that these bytes are. `placed`: where its arguments lie on a mesh."""
    made = export.deserialize(bytearray(data))
    if LAPACK not in data:
        made = _without_lapack(made)
    return Portable(made.call, placed or _forms(made.in_avals), _forms(made.out_avals), hashlib.sha256(data).hexdigest(), data)


def _without_lapack(made: export.Exported) -> export.Exported:
    """For a program that was made for a CPU JAX imports scipy's linear algebra, which takes 0.2 s. It does not for one of another
    platform; whether that is this one is then not compared."""
    checks = (*made.disabled_safety_checks, export.DisabledSafetyCheck.platform())
    return dataclasses.replace(made, platforms=("any",), disabled_safety_checks=checks)


def _forms(avals: Sequence[Tree]) -> Forms:
    return tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in avals)
