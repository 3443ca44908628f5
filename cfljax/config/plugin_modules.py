"""Modules that stand beside a plugin: each folder's are kept apart from another's and from everything else of the same name.

The files of a folder are imported as modules of a package that stands for the folder, and their import statements look there
first. Python's path and the names of other modules stay as they are."""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from cfljax.registry.sources import beside

_folders: dict[str, Path] = {}
"""The package that stands for a folder → the folder."""


def execute(path: Path) -> ModuleType:
    """The file, executed as a new module of its folder's package."""
    root = _package(path.parent)
    name = f"{root}.{path.stem if path.stem.isidentifier() else re.sub(r'[^0-9A-Za-z_]', '_', 'plugin_' + path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _package(folder: Path) -> str:
    root = f"cfljax_plugin_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if root not in _folders:
        _folders[root] = folder
        package = sys.modules[root] = ModuleType(root)
        package.__path__ = [str(folder)]
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    return root


class _Finder(MetaPathFinder):
    """Finds the modules of such packages."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As Python's own, with a loader whose modules look beside them first."""
        if fullname.partition(".")[0] not in _folders:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Of a module of such a package."""

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002
        """Of the source as it is now: a kept compilation may be older by less than a file's clock tells."""
        return self.source_to_code(self.get_data(self.path), self.path)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """With an import of its own."""
        root = module.__name__.partition(".")[0]
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import_in(root)}
        super().exec_module(module)


def _import_in(root: str) -> Callable[..., Any]:
    """What an import statement in a module of this package does."""
    folder = _folders[root]

    def find(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not beside(folder, top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{root}.{name}", globals, locals, fromlist or (), 0)
        return module if fromlist else sys.modules[f"{root}.{top}"]

    return find
