"""Earlier names of modules: importing a module by its earlier name gives the module under its name of today."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

MOVED = {
    "cli": "commands.cli",
    "evaluate": "engine.scoring",
    "kernels.dissimilarity": "kernels.cosine",
    "methods.common": "extend",
    "metrics": "engine.metrics",
    "options": "registry.options",
    "plugins": "config.plugins",
    "privacy": "experiment.privacy",
    "result": "results.result",
}
"""Earlier name → name of today, both without `cfljax.`: of modules that documents of earlier versions name."""


class _Finder(MetaPathFinder):
    """A finder of modules for their earlier names. Python asks it last, when no module has the name."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """The module spec for an earlier name; None for any other name."""
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, _Moved("cfljax." + MOVED[name])) if package == "cfljax" and name in MOVED else None


class _Moved(Loader):
    """A loader that gives the module of today for its earlier name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        """Import the module of today. Its spec is kept aside, because Python replaces it by that of the earlier name."""
        module = importlib.import_module(self.name)
        self.spec = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002
        """The code of the module, for `python -m` with the earlier name."""
        found = importlib.util.find_spec(self.name)
        return found.loader.get_code(self.name) if found and isinstance(found.loader, InspectLoader) else None

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec; the module has been executed already."""
        module.__spec__ = self.spec


def find_moved_modules() -> None:
    """Let import statements find modules by their earlier names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
