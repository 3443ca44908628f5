"""A run: the checked options that decide its result, and the id that is made of them and of nothing
else."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from functools import cached_property

from cfljax.config.data import Data
from cfljax.config.frozen import OfFile, canonical, to_essential, to_plain
from cfljax.config.revisions import Configured, list_revisions
from cfljax.config.train import Train
from cfljax.registry import list_origins
from cfljax.registry.checksums import hash_file
from cfljax.registry.entries import Origin
from cfljax.registry.options import Key, Options, Table, Value, find_differing, list_files
from cfljax.round.config import MethodConfig

# Part of every run's id. Raise it when most runs give another result than before; where it is some
# runs, add these to `revisions.REVISIONS`.
RESULTS_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A name that the spec chooses from a registry, and its options."""

    name: str
    options: Options


@dataclasses.dataclass(frozen=True)
class Run:
    """One method on one federation with one seed."""

    method: str  # The name of the method in the registry
    label: str  # The name of the run's row in tables and figures; not part of the id
    options: MethodConfig
    data: Data
    model: Chosen
    train: Train
    seed: int
    varies: Table = dataclasses.field(default_factory=dict, compare=False, hash=False)
    """Dotted name → value of the options that differ between the runs of a sweep (method and seed
    are not listed)."""
    called: tuple[tuple[str, bool], ...] = dataclasses.field(default=(), compare=False, hash=False)
    """(label, whether the data are drawn from the run's seed) of each entry of the spec that asks
    for this run."""

    @cached_property
    def _drawn(self) -> Data:
        return self.data.drawn_for(self.seed)

    @property
    def data_seed(self) -> int:
        """The seed that data and partition are drawn from."""
        return self.seed if self.data.seed == "run" else int(self.data.seed)

    @cached_property
    def origins(self) -> tuple[Origin, ...]:
        """The origins of the users' data sets, partitions, models, methods and metrics that the run
        names."""
        data = [("data set", self.data.name), ("partition", self.data.partition)]
        metrics = [("metric", name) for name in self.train.metrics or ()]
        return list_origins([*data, ("model", self.model.name), ("method", self.method), *metrics])

    @property
    def foreign(self) -> tuple[str, ...]:
        """Return the part of the id for the origins: their checksums. It is empty for a run that
        uses the package alone."""
        return tuple(sorted({origin.code for origin in self.origins}))

    @cached_property
    def contents(self) -> dict[str, str]:
        """SHA-256 of the files and data that the run reads, by what they are for."""
        clock = self.train.clocked
        parts = (
            ("model", self.model.options),
            ("method", self.options),
            *(() if clock is None else (("train.clock", clock),)),
        )
        named = {
            f"{what}.{name}": hash_file(file)
            for what, options in parts
            for name, file in list_files(options).items()
        }
        return self._drawn.contents | named

    def resolved(self) -> Table:
        """Return every option with its value, as nested tables without None. `seeds`, `method` and
        `plugins` are as in a spec."""
        plugins = sorted({origin.plugin for origin in self.origins if origin.plugin})
        return ({"plugins": plugins} if plugins else {}) | {
            "data": self._drawn.flat(),
            "model": {"name": self.model.name, **to_plain(self.model.options)},
            "method": {"name": self.method, **to_plain(self.options)},
            "train": to_plain(self.train),
            "seeds": [self.seed],
        }

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits: equal for runs that compute the same, whatever their labels or
        spelling."""
        spelled = self._spell(self._drawn.identity, hash_file)
        mended = list_revisions(
            Configured(
                self.method,
                self.options,
                self.data,
                self.model.name,
                self.model.options,
                self.train,
            )
        )
        parts = (f"run {RESULTS_VERSION}", *spelled, *self.foreign, *mended)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def spelled(self) -> str:
        """Return a string that is equal for runs with the same options. The data are not read, so
        that paths count as they are."""
        return "\n".join(self._spell(self._drawn.spelled, os.path.realpath))

    def _spell(self, data: str, of_file: OfFile) -> tuple[str, ...]:
        model = canonical(self.model.options, of_file)
        method = canonical(self.options, of_file)
        train = canonical(self.train, of_file)
        return data, f"{self.model.name} {model}", f"{self.method} {method}", train, str(self.seed)

    @property
    def parts(self) -> tuple[Data, Chosen, Train, MethodConfig]:
        """The objects that have its options. Runs of a sweep share them."""
        return self.data, self.model, self.train, self.options


def merge_equal(runs: Iterable[Run]) -> list[Run]:
    """Return the distinct runs in their order, each with the rows of the table that ask for it and
    the options that vary."""
    found: dict[str, Run] = {}
    called: dict[str, dict[tuple[str, bool], None]] = {}
    for run in runs:
        found.setdefault(run.spelled, run)
        called.setdefault(run.spelled, {})[run.label, run.data.seed == "run"] = None
    for spelled, run in found.items():
        object.__setattr__(run, "called", tuple(called[spelled]))
    return add_varies(list(found.values()))


def add_varies(runs: list[Run]) -> list[Run]:
    """Add to each run the options that differ between runs, compared with the same data set,
    partition, model or method."""
    views: dict[int, dict[Key, Value]] = {}
    for run in runs:
        for part in run.parts:
            if id(part) not in views:
                views[id(part)] = dict(_list_values(run, part))
    differ = find_differing(views.values())
    shown = {
        part: {name: value for (group, name), value in view.items() if (group, name) in differ}
        for part, view in views.items()
    }
    varied = []
    for run in runs:
        varies = {name: value for part in run.parts for name, value in shown[id(part)].items()}
        varied.append(dataclasses.replace(run, varies=varies))
        # Which knows its spelling
        vars(varied[-1])["_drawn"] = run._drawn
    return varied


def _list_values(run: Run, part: Value) -> list[tuple[Key, Value]]:
    """Map (group, dotted name) to a part's values."""
    if part is run.data:
        views = [each.written(to_essential) for each in part.views]
        common = [
            (("", f"data.{k}"), views if k == "views" else v)
            for k, v in _list_pairs(part)
            if k not in ("source", "parts")
        ]
        group = f"{part.name}/{part.partition}"
        own = [*_list_pairs(part.source), *_list_pairs(part.parts)]
        return common + [((group, f"data.{k}"), v) for k, v in own]
    if part is run.model:
        return [(("", "model.name"), part.name)] + [
            ((part.name, f"model.{k}"), v) for k, v in _list_pairs(part.options)
        ]
    if part is run.train:
        return [(("", f"train.{k}"), v) for k, v in _list_pairs(part)]
    return [((run.method, f"method.{k}"), v) for k, v in _list_pairs(part)]


def _list_pairs(options: Options) -> list[tuple[str, Value]]:
    return [(f.name, to_plain(getattr(options, f.name))) for f in dataclasses.fields(options)]
