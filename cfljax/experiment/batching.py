"""How runs form batches: runs that share shapes and static options go through one compiled program
together."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from cfljax.config.frozen import FrozenTable, canonical
from cfljax.config.optimisers import count_state
from cfljax.config.rules import has_client_side_parts
from cfljax.config.run import Run
from cfljax.config.transit import uses_error_feedback
from cfljax.errors import SpecError
from cfljax.local.queue import choose_block
from cfljax.local.rates import FACTORS_OF
from cfljax.registry.options import Value, drop_traced, list_traced
from cfljax.types import HostHyper

if TYPE_CHECKING:
    from cfljax.types import Federation

ABSENT_AT_ZERO = {
    "momentum": (),
    "weight_decay": (),
    "dropout": (),
    "stragglers": ("straggler_work",),
}
"""Numbers that `hyper` lacks when they are zero, with those that mean nothing without them: code
that looks for the name then has no momentum buffer and draws no stragglers. So zero and not zero
are two programs."""

Made = TypeVar("Made")


class Size(NamedTuple):
    """The sizes of a run that its memory and its communication depend on."""

    clients: int
    # The number d of parameters
    parameters: int
    # Clients that train
    learners: int
    # Bytes of all samples, held once
    pool_bytes: int = 0
    # Numbers of the features of a frozen body, which are computed once and kept
    features: int = 0


def count_size(federation: Federation, parameters: int) -> Size:
    """Return the sizes of a run with this federation and a model with this number of parameters."""
    # Imported here because it needs JAX: reading a spec and batching its runs do not
    from cfljax.federation.pack import count_bytes

    return Size(
        federation.clients,
        parameters,
        int(np.asarray(federation.trains).sum()),
        count_bytes(federation),
    )


@dataclasses.dataclass(frozen=True)
class Batch:
    """Runs that go through one compiled program together."""

    runs: tuple[Run, ...]
    # How many runs the program is compiled for; the last batch of a group may have fewer and
    # repeats its last run
    width: int
    # Equal for runs with the same program, whatever the width
    program: str

    @property
    def program_key(self) -> str:
        """Equal for batches that share a compiled program, as far as shapes that depend on the
        data's seed allow."""
        return f"{self.program}/{self.width}"

    @property
    def shape_key(self) -> str:
        """As `program_key`, and equal whatever the number of rounds: what times are known by."""
        return f"{static_key(_with_one_round(self.first), seed=False)}/{self.width}"

    @property
    def code_key(self) -> str:
        """Equal for batches whose programs have the same code, whatever their rounds, widths and
        data: compiled programs are known by it and by the shapes of their arguments."""
        return _short_hash("\n".join(_list_code(_with_one_round(self.first))))

    @property
    def model_key(self) -> str:
        """Equal for runs with the same model, the same adapters in it and the same plug-ins."""
        run = self.first
        return (
            f"{run.model.name} {canonical(run.model.options)} {canonical(run.train.lora)} "
            f"{run.plugin_hashes}"
        )

    @property
    def id(self) -> str:
        """16 hexadecimal digits, made of the runs and their order alone."""
        return _short_hash("\n".join(run.id for run in self.runs))

    @property
    def first(self) -> Run:
        """The first run. What the runs of a batch share is read from it."""
        return self.runs[0]

    @property
    def padded(self) -> tuple[Run, ...]:
        """The runs, the last one repeated up to `width`."""
        return self.runs + self.runs[-1:] * (self.width - len(self.runs))

    @property
    def seeds(self) -> list[int]:
        """The seed of each slot of the program."""
        return [run.seed for run in self.padded]

    @property
    def hypers(self) -> list[HostHyper]:
        """The traced numbers of each slot of the program."""
        return [list_hyper(run) for run in self.padded]


def list_hyper(run: Run) -> HostHyper:
    """Return the numbers of a run that reach compiled code: the traced options of `train` and of
    the method, and the factors of schedules."""
    training = dict(_cache_in_options(run.train, "_traced", lambda: list_traced(run.train)))
    of_method = _cache_in_options(run.options, "_traced", lambda: list_traced(run.options))
    both = training.keys() & of_method.keys()
    if both:
        raise TypeError(
            f"method {run.method}: its option {', '.join(sorted(both))} has the name of an "
            "option of train; rename it"
        )
    for name, others in ABSENT_AT_ZERO.items():
        if training[name] == 0:
            for key in (name, *others):
                training.pop(key)
    tables = {FACTORS_OF[rate]: each.factors() for rate, each in run.train.schedules.items()}
    return {**training, **tables, **of_method}


def _cache_in_options(options: object, name: str, make: Callable[[], Made]) -> Made:
    """Return what `make` returns, cached in the immutable options that it is made from: a sweep's
    runs share their options."""
    memory: dict[str, Made] | None = getattr(options, "__dict__", None)
    # An object of a class with slots has no place for the cache
    if memory is None:
        return make()
    if name not in memory:
        memory[name] = make()
    return memory[name]


def _describe_static(options: Value) -> str:
    """Return the options without traced numbers as canonical JSON."""
    return str(_cache_in_options(options, "_static", lambda: canonical(drop_traced(options))))


def static_key(run: Run, seed: bool = True) -> str:
    """Return a key that is equal for runs that share a federation and a program; without `seed`, a
    program."""
    if seed:
        data = run.data.with_seed(run.seed).identity
    else:
        data = dataclasses.replace(run.data, seed=0).cheap_id
    return _short_hash("\n".join((data, *_list_code(run))))


def _list_code(run: Run) -> list[str]:
    """List what a run's programs are made from, besides the shapes of its data."""
    return [
        f"{run.model.name} {canonical(run.model.options)}",
        f"{run.method} {_describe_static(run.options)}",
        _describe_static(run.train),
        ",".join(sorted(list_hyper(run))),
        *run.plugin_hashes,
    ]


def _with_one_round(run: Run) -> Run:
    """Return the run with one round of all clients, in place of what runs of other lengths and
    with other numbers of participants have."""
    plain = dataclasses.replace(run.train, rounds=1, eval_every=1, participation=1.0)
    return dataclasses.replace(run, train=plain)


def make_batches(runs: Iterable[Run], limit: int | Callable[[list[Run]], int]) -> list[Batch]:
    """Divide the runs into batches of at most `limit` (a number, or a function of the runs of a
    group), in the order of their first runs. A group is divided evenly, so that all its batches
    have one width and need one program."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(static_key(run), []).append(run)
    batches = []
    for group in groups.values():
        most = limit(group) if callable(limit) else limit
        if most < 1:
            raise ValueError(f"a batch holds at least one run, not {most}")
        program = static_key(group[0], seed=False)
        batches += _split_evenly(group, program, math.ceil(len(group) / most))
    return batches


def split_batch(batch: Batch) -> list[Batch]:
    """Divide the batch in two of half the width, if it does not fit the device's memory; a batch of
    one stays."""
    if batch.width == 1:
        return [batch]
    return _split_evenly(list(batch.runs), batch.program, min(2, len(batch.runs)))


def _split_evenly(group: list[Run], program: str, parts: int) -> list[Batch]:
    """Divide the runs into batches of one width, as equal as possible."""
    width = math.ceil(len(group) / parts)
    segments = (tuple(group[at : at + width]) for at in range(0, len(group), width))
    return [Batch(segment, width, program) for segment in segments]


def estimate_memory(batch: Batch, size: Size) -> int:
    """Estimate the bytes on a CPU: the pool once, and for each run of the batch the models of
    clusters (kept, updated and evaluated) and of the participants that are held at once (start,
    weights, gradient, update), what is held for each client, and the state of the server's
    optimiser."""
    run = batch.first
    d = size.parameters
    models = 3 * run.options.models_kept + 4 * _count_updates_held(run, size)
    if (server := run.train.server) is not None:
        models += (
            count_state(server.name, FrozenTable(server.arguments or {})) * run.options.models_kept
        )
    return size.pool_bytes + batch.width * (4 * models * d + count_client_state(run, size))


def _count_updates_held(run: Run, size: Size) -> int:
    """Return the number of participants whose updates are held at once."""
    participants = run.train.slots(size.learners, size.clients)
    options = run.options
    if run.train.asynchronous is not None:
        # The updates in flight, before and after a step
        return 2 * participants
    if options.own or options.similarity == "exact" or run.train.transit.robust is not None:
        return participants
    forced = run.train.plan_options.stream
    block = choose_block(participants, size.parameters) if forced is None else forced
    return min(participants, block) if block else participants


def count_client_state(run: Run, size: Size) -> int:
    """Return the bytes that a run holds for all its clients at once, besides what its participants
    need."""
    numbers = run.options.per_client(size.clients, size.parameters)
    if has_client_side_parts(run.options, run.train):
        # Each client has a model of its own when it is scored
        numbers += size.parameters
    if uses_error_feedback(run.options, run.train.transit):
        numbers += size.parameters
    if run.train.keeps_state:
        name, arguments = run.train.optimizer_pair
        numbers += size.parameters * max(1, count_state(name, FrozenTable(arguments)))
    return 4 * size.clients * numbers


def check_memory(batch: Batch, size: Size, available: int) -> None:
    """Reject a batch if a run holds more for its clients than the available bytes of memory."""
    if (needed := count_client_state(batch.first, size)) > available:
        fewer = (
            '; similarity = "sketch" needs less'
            if batch.first.options.similarity == "exact"
            else ""
        )
        raise SpecError(
            f"{batch.first.label}: its state per client ({size.clients:,} clients, "
            f"{size.parameters:,} parameters) would "
            f"take {format_bytes(needed)} of memory, and there is {format_bytes(available)}; "
            f"take fewer clients or a smaller model{fewer}"
        )


def format_bytes(count: float) -> str:
    """Format a number of bytes with three digits: "1.23 MB"."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "B" else f"{count:.3g} {units[0]}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
