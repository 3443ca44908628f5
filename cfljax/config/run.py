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
from cfljax.config.revisions import RunConfig, list_revisions
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
class NamedOptions:
    """A name that the spec chooses from a registry, and its options."""

    name: str
    options: Options


@dataclasses.dataclass(frozen=True)
class Run:
    """One method on one federation with one seed."""

    # The name of the method in the registry
    method: str
    # The name of the run's row in tables and figures; not part of the id
    label: str
    options: MethodConfig
    data: Data
    model: NamedOptions
    train: Train
    seed: int
    varies: Table = dataclasses.field(default_factory=dict, compare=False, hash=False)
    """Dotted name → value of the options that differ between the runs of a sweep (method and seed
    are not listed)."""
    left_out: Table = dataclasses.field(default_factory=dict, compare=False, hash=False)
    """Dotted name → value of the options that the spec gives and the method refuses, which were
    left out (`train.refused = "drop"`); not part of the id."""
    rows: tuple[tuple[str, bool], ...] = dataclasses.field(default=(), compare=False, hash=False)
    """(label, whether the data are drawn from the run's seed) of each entry of the spec that asks
    for this run."""

    @cached_property
    def _seeded_data(self) -> Data:
        return self.data.with_seed(self.seed)

    @property
    def data_seed(self) -> int:
        """The seed that data and partition are drawn from."""
        return self.seed if self.data.seed == "run" else int(self.data.seed)

    @cached_property
    def origins(self) -> tuple[Origin, ...]:
        """The origins of the users' data sets, partitions, models, methods, metrics,
        compressors and losses that the run names."""
        from cfljax.models.options import common_options

        data = [("data set", self.data.name), ("partition", self.data.partition)]
        metrics = [("metric", name) for name in self.train.metrics or ()]
        compress = self.train.transit.compress
        compressors = [] if compress is None else [("compressor", compress.name)]
        loss = common_options(self.model.options).loss
        losses = [] if loss is None else [("loss", loss)]
        named = [*data, ("model", self.model.name), ("method", self.method)]
        return list_origins([*named, *metrics, *compressors, *losses])

    @property
    def plugin_hashes(self) -> tuple[str, ...]:
        """The checksums of the users' sources, part of the id; () for a run that uses the package
        alone."""
        return tuple(sorted({origin.code for origin in self.origins}))

    @cached_property
    def contents(self) -> dict[str, str]:
        """SHA-256 of the files and data that the run reads, by what they are for."""
        clock = self.train.clock
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
        return self._seeded_data.contents | named

    def resolved(self) -> Table:
        """Return every option with its value, as nested tables without None. `seeds`, `method` and
        `plugins` are as in a spec."""
        plugins = sorted({origin.plugin for origin in self.origins if origin.plugin})
        return ({"plugins": plugins} if plugins else {}) | {
            "data": self._seeded_data.to_table(),
            "model": {"name": self.model.name, **to_plain(self.model.options)},
            "method": {"name": self.method, **to_plain(self.options)},
            "train": to_plain(self.train),
            "seeds": [self.seed],
        }

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits: equal for runs that compute the same, whatever their labels or
        spelling."""
        spelled = self._spell(self._seeded_data.identity, hash_file)
        mended = list_revisions(
            RunConfig(
                self.method,
                self.options,
                self.data,
                self.model.name,
                self.model.options,
                self.train,
            )
        )
        parts = (f"run {RESULTS_VERSION}", *spelled, *self.plugin_hashes, *mended)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def cheap_id(self) -> str:
        """A string that is equal for runs with the same options. No data are read for it: a file
        counts by its path."""
        return "\n".join(self._spell(self._seeded_data.cheap_id, os.path.realpath))

    def _spell(self, data: str, of_file: OfFile) -> tuple[str, ...]:
        """Return all options as text. `data`: the id of the data; `of_file`: what stands for a
        file."""
        model = canonical(self.model.options, of_file)
        method = canonical(self.options, of_file)
        train = canonical(self.train, of_file)
        return data, f"{self.model.name} {model}", f"{self.method} {method}", train, str(self.seed)

    @property
    def parts(self) -> tuple[Data, NamedOptions, Train, MethodConfig]:
        """The objects that have its options. Runs of a sweep share them."""
        return self.data, self.model, self.train, self.options


def merge_equal(runs: Iterable[Run]) -> list[Run]:
    """Return the distinct runs in their order, each with the rows of the table that ask for it and
    the options that vary."""
    found: dict[str, Run] = {}
    # Dicts without values keep the order in which rows ask for a run
    rows: dict[str, dict[tuple[str, bool], None]] = {}
    for run in runs:
        found.setdefault(run.cheap_id, run)
        rows.setdefault(run.cheap_id, {})[run.label, run.data.seed == "run"] = None
    for cheap_id, run in found.items():
        # A copy would lose the ids that the run has computed
        object.__setattr__(run, "rows", tuple(rows[cheap_id]))
    return add_varies(list(found.values()))


def add_varies(runs: list[Run]) -> list[Run]:
    """Add to each run the options that differ between runs. An option of a data set, partition,
    model or method is compared between the runs that have the same one."""
    # Runs share their parts: a sweep of a million runs has few. So each part is read once, and `id`
    # finds it; the runs keep the parts alive, so that no `id` is used twice.
    values: dict[int, dict[Key, Value]] = {}
    for run in runs:
        for part in run.parts:
            if id(part) not in values:
                values[id(part)] = dict(_list_values(run, part))
    differing = find_differing(values.values())
    shown = {
        part: {key[1]: value for key, value in each.items() if key in differing}
        for part, each in values.items()
    }
    varied = []
    for run in runs:
        varies = {name: value for part in run.parts for name, value in shown[id(part)].items()}
        varied.append(dataclasses.replace(run, varies=varies))
        # A copy would compute the cheap id of its data once more
        vars(varied[-1])["_seeded_data"] = run._seeded_data
    return varied


def _list_values(run: Run, part: Value) -> list[tuple[Key, Value]]:
    """List ((group, dotted name), value) of the options in one of the run's parts. The group is the
    name of the data set, model or method that an option belongs to; "" for options of all."""
    if part is run.data:
        views = [each.to_table(to_essential) for each in part.views]
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
    """List (name, plain value) of the options."""
    return [(f.name, to_plain(getattr(options, f.name))) for f in dataclasses.fields(options)]
