"""Which files a user's program consists of: a file or a package, and every module of the user's that it imports, directly or
indirectly. Modules of Python, of installed packages and of cfljax are not followed, as their versions are on record."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path

ENDINGS = (".py", *EXTENSION_SUFFIXES)
_PASSED_OVER = {"__pycache__", "site-packages", "node_modules"}
Imported = tuple[str, Path | None]
"""(The first part of the name of an imported module, the folder that a relative import looks in; None for an absolute import.)"""


def program(files: Iterable[Path], folder: Path | None = None) -> list[Path]:
    """The files, and the files of the user's modules that they import. `folder`: where to look first for imported modules."""
    waiting = [(file.resolve(), folder) for file in files]
    found, elsewhere = dict(waiting), functools.cache(_elsewhere)
    while waiting:
        file, here = waiting.pop()
        for name, place in imports(file):
            inside = place or (here if here is not None and beside(here, name) else None)
            for each in modules(inside, name) if inside else elsewhere(name):
                if each not in found:
                    found[each] = here if inside else None
                    waiting.append((each, found[each]))
    return list(found)


def program_of(name: str, every: bool = True) -> list[Path]:
    """The files of a module on Python's path, of all modules of its package, and of the user's modules that these import.
    `every`: also if the module itself belongs to an installed package."""
    return program(_elsewhere(name.partition(".")[0], every))


def imports(file: Path) -> list[Imported]:
    """The names that a file imports; no names for a file that is not Python."""
    try:
        return _read(file, file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []


@functools.lru_cache(maxsize=4096)
def _read(file: Path, content: bytes) -> list[Imported]:
    return list(dict.fromkeys(_names(file, ast.parse(content))))


def _names(file: Path, tree: ast.AST) -> Iterator[Imported]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0], None
        elif isinstance(node, ast.ImportFrom):
            place = file.parents[node.level - 1]
            names = [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from ((name, place) for name in names)
        elif isinstance(node, ast.Call) and (name := _called(node)):
            yield name, None


def _called(node: ast.Call) -> str:
    """The module that `importlib.import_module("name")` imports."""
    what = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if what not in ("import_module", "__import__") or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    name = node.args[0].value
    return name.partition(".")[0] if isinstance(name, str) else ""


def modules(folder: Path, name: str) -> list[Path]:
    """The files of the module of that name in a folder, or of all modules of the package of that name."""
    if not name:
        return []
    files = [file for ending in ENDINGS if (file := folder / f"{name}{ending}").is_file()]
    return [file.resolve() for file in (*files, *_below(folder / name))]


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _PASSED_OVER and not f.startswith("."))
        if "pyvenv.cfg" in files:  # an environment, with packages of its own
            folders.clear()
            continue
        yield from (Path(place, file) for file in sorted(files) if file.endswith(ENDINGS))


def beside(folder: Path, name: str) -> bool:
    """Whether a file of this folder that imports the name means a module in the folder. It never does for modules of Python and for
    cfljax; a subfolder without `__init__.py` counts if no other module has its name."""
    if name in sys.stdlib_module_names or name == "cfljax" or not name:
        return False
    if any((folder / f"{name}{ending}").is_file() or (folder / name / f"__init__{ending}").is_file() for ending in ENDINGS):
        return True
    spec = _spec(name)
    return next(_below(folder / name), None) is not None and (spec is None or spec.origin is None)


def _elsewhere(name: str, every: bool = False) -> list[Path]:
    """The files of a module that Python finds on its path, if they are the user's (`every`: also if not)."""
    spec = None if name in sys.stdlib_module_names or name in ("cfljax", "") else _spec(name)
    if spec is None:
        return []
    places = [Path(place) for place in spec.submodule_search_locations or ([spec.origin] if spec.origin else [])]
    places = [place for place in places if every or is_users(place)]
    files = (file for place in places for file in (_below(place) if place.is_dir() else [place]))
    return [file.resolve() for file in files if file.name.endswith(ENDINGS)]


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


def is_users(file: str | os.PathLike[str]) -> bool:
    """Whether a file is the user's: not part of Python, of an installed package, or of cfljax."""
    path = os.path.realpath(file)
    return not any(path.startswith(place + os.sep) for place in _installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    places = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    places += [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[1])]
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places))
