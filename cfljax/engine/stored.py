"""HOST. Traced programs in the cache folder, so that a process which begins where another has been traces nothing. A file holds the
programs of a batch, in a zip archive: each as `jax.export` writes it, and in JSON how they belong together."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from cfljax import files
from cfljax.devices import portable
from cfljax.devices.compiled import shapes
from cfljax.devices.cut import Cut, Piece
from cfljax.engine.groups import Group
from cfljax.engine.settings import Assembled
from cfljax.engine.traced import Pick, Traced, chooses
from cfljax.files.npy import read_member
from cfljax.lazy import jax
from cfljax.software import software_hash
from cfljax.types import Federation, Tree

MOST = 64 << 20
"""The most bytes of a batch's programs that are kept. Larger ones hold weights that a model starts from."""
ABOUT = "batch.json"
BESIDE = ("jax_log", "jax_debug_log", "jax_dump", "jax_compilation_cache", "jax_persistent_cache", "jax_enable_compilation_cache")
"""The beginnings of the names of those settings of JAX that change no traced program."""


class Unwritable(Exception):
    """Something that this file's format has no words for."""


def place_of(parts: Assembled, group: Group, federation: Federation) -> Path | None:
    """The file of the traced programs of a batch; None where they are not kept: those of long runs, and what is the user's own."""
    folder = files.programs_folder()
    if folder is None or not parts.ours or parts.sharded or not parts.plan.quick or not portable.wanted():
        return None
    keys, mesh = (parts.program_key, parts.model_key), parts.mesh
    grid = None if mesh is None else (dict(mesh.shape), str(mesh.axis_types))
    static = (keys, parts.plan, parts.settings.of_programs, chooses(parts), grid, shapes((tuple(group), federation)))
    name = repr((static, software_hash(), _settings()))
    if " at 0x" in name or jax.process_count() > 1:  # an object that is named by its place in memory
        return None
    return folder / files.TRACED / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.zip"


def _settings() -> tuple[Any, ...]:
    """JAX's backend and settings, but for those of its logs and of the cache."""
    settings = {name: value for name, value in jax.config.values.items() if not name.startswith(BESIDE)}
    return (jax.default_backend(), jax.dtypes.canonicalize_dtype("f8"), settings)


def read(place: Path, mesh: jax.sharding.Mesh | None) -> Traced[Cut] | None:
    """The programs of a batch; None where there are none, or none that can be read."""
    try:
        with zipfile.ZipFile(place) as archive:
            about = json.loads(archive.read(ABOUT))
            cuts: Tree = {name: of and _cut_of(archive, of, mesh) for name, of in about["cuts"].items()}
            pick = about["pick"] and Pick(tuple(about["pick"]["places"]), _tree_of(about["pick"]["form"]))
            traced = Traced(**cuts, pick=pick, models=about["models"])
    except Exception:  # no file, or whatever the parsers of a damaged one raise: it is traced anew
        return None
    with contextlib.suppress(OSError):  # a folder that cannot be written to
        os.utime(place)  # what has not been used for the longest time is dropped first
    return traced


def write(place: Path, traced: Traced[Cut]) -> None:
    """Keep the programs of a batch for other processes, where that can be done."""
    held = io.BytesIO()
    try:
        with zipfile.ZipFile(held, "w") as archive:
            cuts = {name: of and _words_of(archive, of) for name, of in traced._asdict().items() if name not in ("pick", "models")}
            pick = traced.pick and {"places": list(traced.pick.places), "form": _as_json(traced.pick.form)}
            archive.writestr(ABOUT, json.dumps({"cuts": cuts, "pick": pick, "models": traced.models}))
    except Unwritable:
        return
    if held.tell() <= MOST:
        with contextlib.suppress(OSError):  # a folder that cannot be written to: they are traced again
            place.parent.mkdir(exist_ok=True)
            with files.written_whole(place) as part:
                part.write_bytes(held.getvalue())


def _words_of(archive: zipfile.ZipFile, of: Cut) -> Tree:
    """What JSON says of a function. Its programs and constants go to the archive."""
    there = archive.namelist()
    pieces = []
    for piece, overwrites in zip(of.pieces, of.overwrites, strict=True):
        if not piece.program.data:
            raise Unwritable
        name = f"{piece.program.name}.program"
        if name not in there:
            archive.writestr(name, piece.program.data)
            there.append(name)
        specs = None if of.mesh is None else [_spec(form) for form in piece.program.forms]
        pieces.append([name, specs, piece.reads, piece.writes, piece.own, overwrites])
    constants = []
    for array in of.constants:
        constants.append(f"constant {len(there)}")
        there.append(constants[-1])
        with archive.open(f"{constants[-1]}.npy", "w") as file:
            np.save(file, _plain(array), allow_pickle=False)
    rest = {"room": of.room, "results": of.results, "copied": sorted(of.copied), "form": _as_json(of.form)}
    return {"pieces": pieces, "constants": constants, **rest}


def _cut_of(archive: zipfile.ZipFile, words: Tree, mesh: jax.sharding.Mesh | None) -> Cut:
    pieces, overwrites = [], []
    for name, specs, reads, writes, own, lost in words["pieces"]:
        program = portable.of_bytes(archive.read(name))
        if mesh is not None:
            forms = (
                jax.ShapeDtypeStruct(form.shape, form.dtype, sharding=jax.sharding.NamedSharding(mesh, jax.P(*spec)))
                for form, spec in zip(program.forms, specs, strict=True)
            )
            program = program._replace(forms=tuple(forms))
        pieces.append(Piece(program, tuple(reads), tuple(writes), own))
        overwrites.append(tuple(lost))
    constants = [jax.numpy.asarray(read_member(archive, name, "biufc")) for name in words["constants"]]
    results, copied = tuple(words["results"]), frozenset(words["copied"])
    return Cut(pieces, overwrites, constants, words["room"], results, copied, _tree_of(words["form"]), mesh)


def _spec(form: jax.ShapeDtypeStruct) -> list[str | None]:
    """Over which axes of a mesh an array is dealt."""
    spec = list(form.sharding.spec)
    if not all(axis is None or isinstance(axis, str) for axis in spec):
        raise Unwritable
    return spec


def _plain(array: Tree) -> np.ndarray:
    if not hasattr(array, "dtype") or array.dtype.kind not in "biufc" or not isinstance(array.dtype, np.dtype):
        raise Unwritable
    return np.asarray(array)


def _as_json(tree: Tree) -> Tree:
    """A tree of shapes: a list [its kind, what it holds]. A tuple with names is found again by the module of its class."""
    kind = type(tree)
    if tree is None:
        return None
    if kind is jax.ShapeDtypeStruct:
        if not isinstance(tree.dtype, np.dtype):
            raise Unwritable
        return ["array", [tree.shape, str(tree.dtype)]]
    if kind is dict and all(isinstance(name, str) for name in tree):
        return ["dict", {name: _as_json(tree[name]) for name in tree}]
    if kind in (tuple, list):
        return [kind.__name__, [_as_json(each) for each in tree]]
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and _class(kind.__module__, kind.__qualname__) is kind:
        return [f"{kind.__module__} {kind.__qualname__}", [_as_json(each) for each in tree]]
    raise Unwritable


def _tree_of(words: Tree) -> Tree:
    if words is None:
        return None
    kind, holds = words
    if kind == "array":
        return jax.ShapeDtypeStruct(tuple(holds[0]), np.dtype(holds[1]))
    if kind == "dict":
        return {name: _tree_of(each) for name, each in holds.items()}
    inside = [_tree_of(each) for each in holds]
    if kind in ("tuple", "list"):
        return tuple(inside) if kind == "tuple" else inside
    of = _class(*kind.split())
    if of is None:
        raise ValueError(f"{kind}: no such class here")
    return of(*inside)


def _class(module: str, name: str) -> Any:
    """A class of a module that has been imported; None where there is none of that name. Nothing is imported for a file."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, tuple) else None
