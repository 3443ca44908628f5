"""The files of a user's program, and the identity of a function that is in no file."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path


def find_program(files: Iterable[Path], folder: Path | None = None) -> list[Path]:
    """Return the files and what they import by name: modules and packages of `folder`, directly or
    through each other, and the user's own packages elsewhere on Python's path. Installed packages
    are left out, as their versions are on record."""
    waiting = [file.resolve() for file in files]
    found = set[Path]()
    elsewhere = set[Path]()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            for name in _find_imports(file.read_bytes()):
                if folder is not None and is_beside(folder, name.removeprefix(".")):
                    waiting += find_modules(folder / name.removeprefix("."))
                else:
                    elsewhere |= {each for each in find_package(name) if not _is_installed(each)}
    return sorted(found | elsewhere)


def find_package(module: str) -> list[Path]:
    """Return the files of the package of a module, as Python finds it; none for modules of Python
    and of cfljax."""
    spec = _find_spec(module.partition(".")[0])
    roots = (
        []
        if spec is None
        else list(spec.submodule_search_locations or [(spec.origin or "").removesuffix(".py")])
    )
    return [file for root in roots for file in find_modules(Path(root))]


def _find_spec(name: str) -> ModuleSpec | None:
    if name not in (*sys.stdlib_module_names, "__main__", "cfljax", ""):
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            return importlib.util.find_spec(name)
    return None


def find_modules(path: Path) -> list[Path]:
    """Return the file of the module of this path, which is without `.py`, or the files of all
    modules of the package there."""
    files = [path.with_name(f"{path.name}.py"), *path.rglob("*.py")] if path.name else []
    return [
        file.resolve()
        for file in files
        if file.is_file() and not _is_installed(file.relative_to(path.parent))
    ]


def is_beside(folder: Path, name: str) -> bool:
    """Return whether a file of this folder that imports the name means a module in the folder. A
    subfolder without `__init__.py` counts if no other module has its name; modules of Python and
    cfljax are never meant."""
    if name in (*sys.stdlib_module_names, "cfljax", ""):
        return False
    if (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file():
        return True
    other = _find_spec(name)
    return (
        (folder / name).is_dir()
        and bool(find_modules(folder / name))
        and (other is None or other.origin is None)
    )


def list_imports_beside(files: Iterable[Path], folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, name) where a file of this folder imports a module of the folder by a name by
    which Python does not find it."""
    for file in files:
        for name in _find_imports(file.read_bytes()) if file.is_relative_to(folder) else ():
            if is_beside(folder, name):
                beside = find_modules(folder / name)
                if set(beside).isdisjoint(find_package(name)):
                    yield file, name


def hash_code(files: Iterable[Path]) -> str:
    """Return the SHA-256 over the contents of files, whatever their order and path."""
    return hashlib.sha256(
        "".join(sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)).encode()
    ).hexdigest()


def source_text(thing: object) -> str:
    """Return what identifies an object that is in no file: the source of a function or class; for
    another object what it prints itself as, without addresses. Raise an OSError or TypeError if
    Python does not have the source."""
    if isinstance(thing, tuple):
        return "\n".join(map(source_text, thing))
    whole = inspect.unwrap(thing) if callable(thing) else thing
    if inspect.isclass(whole):
        return _class_text(whole)
    if inspect.isroutine(thing) or hasattr(thing, "__wrapped__"):
        return inspect.getsource(thing)  # type: ignore[arg-type]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def _class_text(cls: type) -> str:
    """Return the source of a class. Python finds it by the file of its module, which a notebook's
    cells do not have: there it is the source of the functions of the class, and its other
    attributes."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        pass
    described = []
    for name, value in sorted(vars(cls).items()):
        # A property, class method or static method has a function
        inside = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(inside) and not name.startswith("__"):
            described.append(inspect.getsource(inspect.unwrap(inside)))
        elif not name.startswith("__"):
            described.append(f"{name} = {value!r}")
    return re.sub(r" at 0x[0-9a-f]+", "", "\n".join([str(cls.__bases__), *described]))


def _is_installed(file: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts)


# Files are parsed again for each plug-in that imports them, so the answer is cached by contents
@functools.lru_cache(maxsize=4096)
def _find_imports(content: bytes) -> list[str]:
    """Return the first parts of the names that a file imports, with a dot in front if the import is
    relative."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):
        return []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            dot = "." if node.level else ""
            inside = [node.module] if node.module else [alias.name for alias in node.names]
            names += [dot + name for name in inside]
    roots = (re.match(r"\.?[^.]*", name) for name in names)
    return list(dict.fromkeys(root[0] for root in roots if root))
