"""Earlier names of modules: importing a module by its earlier name gives the module under its name of today."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "callable_module": "commands.callable_module",
    "cli": "commands.cli",
    "command": "commands.process",
    "completion": "commands.completion",
    "data.describe": "commands.describe",
    "methods.listing": "commands.listing",
    "beside": "config.plugin_modules",
    "plugins": "config.plugins",
    "config.identity": "config.changes",
    "config.touches": "config.transit",
    "npy": "files.npy",
    "launch.devices": "devices.cores",
    "distributed": "devices.distributed",
    "mesh": "devices.mesh",
    "local.shards": "devices.placement",
    "local.spread": "devices.spread",
    "resume": "engine.checkpoint",
    "clock": "engine.clock",
    "evaluate": "engine.scoring",
    "metrics": "engine.metrics",
    "simulate": "engine.simulate",
    "assemble": "experiment.assemble",
    "plan": "experiment.batching",
    "execution": "experiment.execution",
    "privacy": "experiment.privacy",
    "cohort": "federation.cohort",
    "paths": "files",
    "launch.checkpoint": "launch.checkpoints",
    "launch.keeper": "launch.checkpoints",
    "launch.together": "launch.lockstep",
    "launch.settled": "launch.plan_file",
    "progress": "launch.progress",
    "local.speed": "local.predict",
    "methods.together": "local.rounds",
    "methods.choice": "methods.shared.choice",
    "methods.cold_start": "methods.shared.cold_start",
    "methods.common": "extend",
    "methods.inside": "methods.shared.host_clusters",
    "methods.pretrain": "methods.shared.pretrain",
    "methods.similarity": "methods.shared.similarity",
    "sums": "registry.checksums",
    "meaning": "registry.meaning",
    "options": "registry.options",
    "origin": "registry.origin",
    "sources": "registry.sources",
    "report.against": "report.replication.page",
    "report.claims": "report.replication.claims",
    "report.compare": "report.comparison",
    "report.content": "report.report_data",
    "report.detail": "report.run_pictures",
    "report.embed": "report.page_data",
    "report.gather": "report.configurations",
    "report.how": "report.replication.provenance",
    "report.measure": "report.replication.measured",
    "report.panels": "report.figure_panels",
    "report.published": "report.replication.published",
    "report.take": "report.replication.quantity",
    "frames": "results.frames",
    "result": "results.result",
    "sparkline": "results.sparkline",
}
"""Earlier name → name of today, both without `cfljax.`"""


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

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec; the module has been executed already."""
        module.__spec__ = self.spec


def find_moved_modules() -> None:
    """Let import statements find modules by their earlier names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
