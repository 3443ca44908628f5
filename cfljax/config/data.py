"""The `data` table: from its values to checked options of a source, a partition and what both
share, and to the data themselves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfljax.config.frozen import canonical, to_essential, to_plain
from cfljax.config.views import read_drift, read_views, write_drift
from cfljax.errors import DataError, SpecError, suggest
from cfljax.federation import PARTITIONS
from cfljax.federation.options import Crossed, DriftOptions, GroupView
from cfljax.federation.validation import count_newcomers
from cfljax.registry.checksums import hash_file, hash_or_failure, hash_partition
from cfljax.registry.gone import RENAMED
from cfljax.registry.options import Options, T, Table, check, list_files, option, show

if TYPE_CHECKING:
    from cfljax.types import Parts, Source

_ARRIVE = ("clients", "rate", "round", "from", "until")
# Options that change how the data are read, not which data: no part of an id
_NOT_IN_ID = ("checksums",)


@dataclasses.dataclass(frozen=True)
class Arrive:
    """Late-arriving clients: `{ clients = 20, round = 30 }`, all at once, or `{ rate = 0.1, from =
    10, until = 50 }`, one after another. All others can take part from round 0."""

    # The number of late clients; 0 if `rate` is given
    clients: int = 0
    # The fraction of late clients among those that train; 0 if `clients` is given
    rate: float = 0.0
    # The earliest round in which a late client arrives
    first: int = 0
    # The latest; the round of each client is drawn uniformly from `first` to `last`
    last: int = 0

    def to_table(self) -> Table:
        """Return the table `data.arrive` as a spec writes it."""
        count = {"clients": self.clients} if self.clients else {"rate": self.rate}
        return {**count, "from": self.first, "until": self.last}


@dataclasses.dataclass(frozen=True)
class NewClients:
    """The table `data.new_clients`: clients that never train and come when all rounds are over."""

    share: float = option(help="share of the clients that train", above=0)
    shots: int = option(
        10,
        "labelled samples that each of them has; 0: its training samples, without their labels",
        low=0,
    )
    steps: tuple[int, ...] = option(
        (0, 1, 5), "local steps on these samples after which each is scored", low=0
    )
    rule: str | None = option(
        None, "for methods that need labels: the model of least mean entropy", choices=("entropy",)
    )

    def check(self, where: str) -> None:
        """Reject a share of all clients, steps that do not ascend, and what has no meaning with or
        without labels."""
        if self.share >= 1:
            raise SpecError(f"{where}.share = {self.share}: must be less than 1, as in 0.2")
        if not self.steps or list(self.steps) != sorted(set(self.steps)):
            raise SpecError(
                f"{where}.steps = {show(self.steps)}: must be whole numbers in ascending "
                "order, as in [0, 1, 5]"
            )
        if not self.shots and self.steps != (0,):
            raise SpecError(
                f"{where}.steps = {show(self.steps)}: clients cannot train with shots = 0; "
                "leave steps out"
            )
        if self.shots and self.rule is not None:
            raise SpecError(
                f'{where}.rule = "{self.rule}": is for clients without labels; give shots = '
                "0, or leave rule out"
            )


@dataclasses.dataclass(frozen=True)
class _ArriveKeys:
    """The keys of the table `data.arrive`. `start` stands for `from`, which is a word of Python."""

    clients: int | None = option(None, "how many clients come late", low=1)
    rate: float | None = option(None, "which fraction of the clients comes late", above=0, high=1)
    round: int | None = option(None, "the round in which they come", low=1)
    until: int | None = option(None, "the last round in which one comes", low=1)
    start: int | None = option(None, "the first round in which one comes (written `from`)", low=0)


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """The options that every data set and partition has."""

    path: str | None = option(None, "folder or file of the data, instead of $CFLJAX_DATA")
    seed: int | str = option(
        0,
        'seed of the partition, which all runs share; "run": each run uses its own seed',
        low=0,
        high=2**31 - 1,
        choices=("run",),
    )
    normalise: str = option(
        "unit",
        "unit: to [0, 1]; pixel: each pixel to mean 0 and deviation 1 over the training samples of "
        "all clients, as they see them; pixel_all: over all samples",
        choices=("unit", "pixel", "pixel_all", "none"),
    )
    arrive: Table | None = option(
        None, "newcomers: { clients = 20, round = 30 } or { rate = 0.1, from = 10, until = 50 }"
    )
    new_clients: Table | None = option(
        None,
        "clients that never train, scored at the end: { share = 0.2, shots = 10, steps = [0, "
        "1, 5] }",
        lists=("steps",),
    )
    validation: float = option(
        0.0,
        "share of each client's training samples set aside for tuning and early stopping",
        low=0,
    )

    views: tuple[Any, ...] = option(
        (),
        'how groups of clients see the data, crossed: ["label_swap", { name = "rotated", '
        "groups = 4, copies = false }]",
    )
    true_groups: str | None = option(
        None, 'a view whose groups are the true ones, or "partition"; left out: the combinations'
    )
    view_shares: tuple[float, ...] = option(
        (), "share of the clients in each combination of groups; left out: equal", low=0
    )
    views_draw: str = option(
        "turns",
        "clients have the combinations in turn, or each draws one (with view_shares as "
        "probabilities)",
        choices=("turns", "random"),
    )
    drift: Table | None = option(
        None,
        'clients that change: { kind = "sudden", at = [30, 60], share = 0.5, what = "group" '
        '} or { file = "changes.csv" }',
        lists=("at",),
    )

    def check(self, where: str) -> None:
        """Reject a share that leaves nothing to train on."""
        if self.validation >= 1:
            raise SpecError(
                f"{where}.validation = {self.validation}: must be less than 1, as in 0.1"
            )


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set, and how it is divided among clients."""

    name: str
    partition: str
    # Options of the data set
    source: Options
    # Options of the partition
    parts: Options
    path: str | None = None
    seed: int | str = 0
    normalise: str = "unit"
    arrive: Arrive | None = None
    validation: float = 0.0
    new_clients: NewClients | None = None
    drift: DriftOptions | None = None
    views: tuple[GroupView, ...] = ()
    true_groups: str | None = None
    view_shares: tuple[float, ...] = ()
    views_draw: str = "turns"

    def with_seed(self, seed: int) -> Data:
        """Replace `seed = "run"` by the seed of a run. Other data are returned as they are."""
        if self.seed != "run":
            return self
        drawn = dataclasses.replace(self, seed=seed)
        # Both read the same files: `contents` hashes them once for all seeds
        vars(drawn)["_before_seeding"] = self
        return drawn

    def to_table(self, plain: Callable[[Options], Table] = to_plain) -> Table:
        """Return one table, as in a spec. `plain` converts an Options instance to a table."""
        table = {
            key: value
            for key, value in plain(self).items()
            if key not in ("source", "parts") and value != []
        }
        if self.arrive is not None:
            table["arrive"] = self.arrive.to_table()
        if self.drift is not None:
            table["drift"] = write_drift(self.drift)
        if self.views:
            table["views"] = [each.to_table(plain) for each in self.views]
        return table | plain(self.source) | plain(self.parts)

    @property
    def clients(self) -> int | None:
        """The number of clients, if all have training samples; None: only the data tell, such as
        their users, their domains or a file."""
        clients = getattr(self.parts, "clients", None)
        if not isinstance(clients, int) or not clients or self.partition in ("user", "file"):
            return None
        return clients

    @property
    def clients_that_train(self) -> int | None:
        """The number of clients that train in some round; None: only the data tell."""
        clients = self.clients
        if clients is None:
            return None
        new = self.new_clients
        return clients if new is None else clients - count_newcomers(clients, new.share)

    @cached_property
    def identity(self) -> str:
        """Return all that decides who holds which samples: canonical JSON of the options, and
        checksums of what is read."""
        return " ".join([self._canonical_options, *self.contents.values()])

    @cached_property
    def cheap_id(self) -> str:
        """Return the same as `identity` without reading the data: a file counts by its path instead
        of its contents. A sweep groups its runs by it before any file is read."""
        read = {"path": Path(self.path).expanduser()} if self.path is not None else {}
        read |= self._files | list_files(self.parts)
        paths = [f"{name}={os.path.realpath(file)}" for name, file in read.items()]
        return " ".join([self._canonical_options, *paths])

    @property
    def _files(self) -> dict[str, Path]:
        """The files that options of the data set and of its drift name."""
        drift = {} if self.drift is None else list_files(self.drift)
        return list_files(self.source) | {f"drift.{name}": file for name, file in drift.items()}

    @cached_property
    def _canonical_options(self) -> str:
        """The options as canonical JSON, with the names that they had when ids were introduced."""
        said = {
            key: value
            for key, value in self.to_table(to_essential).items()
            if key not in (*_NOT_IN_ID, "path")
        }
        own = {field.name for field in dataclasses.fields(self.parts)}
        for old, new in RENAMED.get(self.name, {}).items():
            # Until 0.2.0 one key held the value of both sides if the partition had an option of the
            # old name. Ids keep that spelling, so that they stay as they were.
            if old in own and old in said:
                said[new] = getattr(self.source, new)
            elif old not in own and new in said:
                said[old] = said.pop(new)
        return canonical(said if self.drift is None else said | {"drift": to_essential(self.drift)})

    @cached_property
    def contents(self) -> dict[str, str]:
        """SHA-256 of what is read: `data` for files and for a user's data set, `data.glove` for a
        file that the option `glove` names, `partition.file` for a file that says who holds which
        rows, `partition` for a user's partition. They are computed when they are first needed;
        `load` and `divide` raise a DataError if the contents have changed since."""
        from cfljax.data import SOURCES, data_checksum

        users_partition = PARTITIONS.origin(self.partition) is not None
        # The package's sources and partitions read the same files whatever the seed; a user's may
        # not, so that theirs are hashed for each seed
        if (
            "_before_seeding" in vars(self)
            and not users_partition
            and SOURCES.origin(self.name) is None
        ):
            return dict(vars(self)["_before_seeding"].contents)
        found = {"data": data_checksum(self.name, self.source, self.path, seed=self._source_seed)}
        found |= {f"data.{name}": hash_file(file) for name, file in self._files.items()}
        if not users_partition:
            found |= self._hash_partition_files()
        else:
            found["partition"] = hash_or_failure(
                lambda: hash_partition(self.divide_unchecked(self._load(found["data"])))
            )
        return {what: value for what, value in found.items() if value}

    def _hash_partition_files(self) -> dict[str, str]:
        """SHA-256 of the files that options of the partition name; what a user's partition makes of
        its files is hashed instead."""
        return {
            f"partition.{name}": hash_file(file) for name, file in list_files(self.parts).items()
        }

    @property
    def _source_seed(self) -> int:
        """The seed that a generated data set is drawn from; 0 for a data set that is read."""
        from cfljax.data import SOURCES

        return int(self.seed) if self.name in SOURCES and self.seed != "run" else 0

    def load(self) -> Source:
        """Load the data set; raise a DataError if it has changed since `contents` was computed."""
        return self._load(self.contents.get("data", ""))

    def _load(self, checksum: str) -> Source:
        """Load the data set; raise a DataError if it has another checksum ("": any will do)."""
        from cfljax.data import load_checked

        return load_checked(self.name, self.source, self.path, self._source_seed, checksum)

    def divide(self, source: Source) -> Parts:
        """Divide the samples among clients; raise a DataError if that has changed since `contents`
        was computed."""
        parts = self.divide_unchecked(source)
        if (wanted := self.contents.get("partition")) is not None:
            changed = hash_partition(parts) != wanted
        else:
            changed = not self._hash_partition_files().items() <= self.contents.items()
        if changed:
            raise DataError(
                f'data.partition = "{self.partition}": has changed since the runs were '
                "planned; start the sweep again"
            )
        return parts

    def divide_unchecked(self, source: Source) -> Parts:
        """Divide the samples among clients, without comparing the result with `contents`."""
        from cfljax.federation.quantiles import check_parts, to_quantiles
        from cfljax.federation.views import divide_with_views

        if source.y_train.dtype.kind == "f":
            return check_parts(self.divide_unchecked(to_quantiles(source)), self.partition)
        make = PARTITIONS.entry(self.partition).make
        seed = int(self.seed)
        if self.views:
            return divide_with_views(
                make,
                self.parts,
                Crossed(self.views, self.view_shares, self.true_groups, self.views_draw),
                source,
                seed,
            )
        return make(self.parts, source, np.random.default_rng(seed))


def make_data(names: dict[str, str], classes: tuple[type, ...], where: str, values: Table) -> Data:
    """Check a `data` table and make the Data.

    Args:
        names: the `name` of the data set, and the `partition`.
        classes: the Options classes of the source and of the partition, and DataOptions.
        where: the table as messages name it.
        values: the options of all three classes."""

    def check_own(cls: type[T]) -> T:
        """Check the options of one class; `make_drafts` has made sure that each belongs to one."""
        known = {field.name for field in dataclasses.fields(cls)}
        return check(cls, {key: value for key, value in values.items() if key in known}, where)

    source: Options = check_own(classes[0])
    parts: Options = check_own(classes[1])
    common = check_own(DataOptions)
    late = None if common.arrive is None else read_arrive(common.arrive, f"{where}.arrive")
    new = None
    if common.new_clients is not None:
        # Clients without labels cannot train: their default is to be scored without a step
        unlabelled = {"steps": [0]} if common.new_clients.get("shots") == 0 else {}
        new = check(NewClients, unlabelled | common.new_clients, f"{where}.new_clients")
    crossed = Crossed(common.views, common.view_shares, common.true_groups, common.views_draw)
    views = read_views(crossed, names["partition"], parts, where)
    drift = None
    if common.drift is not None:
        drift = read_drift(common.drift, names["partition"], parts, views, f"{where}.drift")
    return Data(
        names["name"],
        names["partition"],
        source,
        parts,
        path=common.path,
        seed=common.seed,
        normalise=common.normalise,
        arrive=late,
        validation=common.validation,
        new_clients=new,
        drift=drift,
        views=views,
        true_groups=common.true_groups,
        view_shares=common.view_shares,
        views_draw=common.views_draw,
    )


def read_arrive(table: Table, where: str) -> Arrive:
    """Check the table `data.arrive`. `where`: the table as messages name it."""
    for key in table:
        if key not in _ARRIVE:
            raise SpecError(f"{where}.{key}: there is no such option" + suggest(key, _ARRIVE))
    late = check(
        _ArriveKeys,
        {"start" if key == "from" else key: value for key, value in table.items()},
        where,
    )
    if (late.clients is None) == (late.rate is None):
        raise SpecError(
            f"{where}: give either clients (how many arrive late) or rate (which fraction)"
        )
    if late.round is not None:
        if late.start is not None or late.until is not None:
            raise SpecError(
                f"{where}.round = {late.round}: give round, or from and until, not both"
            )
        first = last = late.round
    elif late.start is None or late.until is None:
        raise SpecError(f"{where}: give the time: round = 30, or from = 10 and until = 50")
    else:
        first, last = late.start, late.until
        if last < first:
            raise SpecError(f"{where}.until = {last}: comes before from = {first}")
    return Arrive(late.clients or 0, late.rate or 0.0, first, last)


def draw_arrivals(arrive: Arrive | None, trains: np.ndarray, seed: int) -> np.ndarray:
    """Draw the first round i32[C] in which each client can take part.

    Args:
        arrive: the option; None: all clients are there from round 0.
        trains: bool[C]: the clients that train. For the others the round is 0.
        seed: of the data."""
    rounds = np.zeros(len(trains), np.int32)
    if arrive is None:
        return rounds
    training = np.flatnonzero(trains)
    count = arrive.clients or round(arrive.rate * len(training))
    if count > len(training):
        raise SpecError(
            f"data.arrive.clients = {count}: there are only {len(training)} clients that train"
        )
    # The second word (the letters "arrv") keeps these draws apart from all others of the seed
    rng = np.random.default_rng([seed, 0x61727276])
    late = training[rng.permutation(len(training))[:count]]
    rounds[late] = rng.integers(arrive.first, arrive.last, size=count, endpoint=True)
    return rounds
