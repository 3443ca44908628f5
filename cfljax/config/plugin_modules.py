"""From a plugin's file to its module. Modules beside a plugin are kept apart from modules of the same name in other folders.

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
    """Finds the modules of packages that stand for folders of plugins."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module spec that Python finds, with a loader whose modules look in their folder first."""
        if fullname.partition(".")[0] not in _folders:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module of a package that stands for a folder of plugins."""

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002
        """The code of the source as it is now. A cached compilation may be outdated within one tick of the file system's clock."""
        return self.source_to_code(self.get_data(self.path), self.path)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with an import statement that looks in the folder first."""
        root = module.__name__.partition(".")[0]
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import_in(root)}
        super().exec_module(module)


def _import_in(root: str) -> Callable[..., ModuleType]:
    """The function that import statements in modules of this package call."""
    folder = _folders[root]

    def find(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not beside(folder, top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{root}.{name}", globals, locals, fromlist or (), 0)
        return module if fromlist else sys.modules[f"{root}.{top}"]

    return find
