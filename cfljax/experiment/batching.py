"""Runs into batches: those that share shapes and static options run as one compiled program, side by side."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cfljax.config.frozen import canonical, plain
from cfljax.config.run import Run
from cfljax.errors import SpecError
from cfljax.local.sizes import block_of
from cfljax.registry.options import show, static, traced

if TYPE_CHECKING:
    from cfljax.experiment.privacy import Crowd

ABSENT_AT_ZERO = {"momentum": (), "weight_decay": (), "dropout": (), "stragglers": ("straggler_work",)}
"""Numbers that `hyper` lacks when they are zero, with those that mean nothing without them: code that looks for the name
then has no momentum buffer and draws no stragglers. So zero and not zero are two programs."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Runs that go through one compiled program together."""

    runs: tuple[Run, ...]
    width: int
    """How many runs the program is compiled for; the last batch of a group may have fewer and repeats its last run."""
    key: str
    """Equal for runs with the same federation and program."""
    program_key: str
    """Equal for batches that share a compiled program, as far as shapes that depend on the data's seed allow."""

    @property
    def id(self) -> str:
        """16 hexadecimal digits, made of the runs and their order alone."""
        return _short("\n".join(run.id for run in self.runs))

    @property
    def first(self) -> Run:
        """The run that stands for what all share."""
        return self.runs[0]

    @property
    def padded(self) -> tuple[Run, ...]:
        """The runs, the last one repeated up to `width`."""
        return self.runs + self.runs[-1:] * (self.width - len(self.runs))

    @property
    def seeds(self) -> list[int]:
        """One per place in the program."""
        return [run.seed for run in self.padded]

    @property
    def hypers(self) -> list[dict[str, float]]:
        """The traced numbers of each place in the program."""
        return [hyper_of(run) for run in self.padded]

    @property
    def hyper(self) -> dict[str, list[float]]:
        """The same, stacked: name → a number per place."""
        each = self.hypers
        return {name: [h[name] for h in each] for name in each[0]}


def hyper_of(run: Run) -> dict[str, float]:
    """The numbers of a run that reach compiled code: those of `train` and those of the method."""
    training = dict(_once(run.train, "_traced", lambda: traced(run.train)))
    own = _once(run.options, "_traced", lambda: traced(run.options))
    both = training.keys() & own.keys()
    if both:
        raise TypeError(f"{run.method}: {', '.join(sorted(both))}: an option of the method has the name of a training number")
    for name, others in ABSENT_AT_ZERO.items():
        if training[name] == 0:
            for key in (name, *others):
                training.pop(key)
    return {**training, **own}


def _once(options: Any, name: str, make: Callable[[], Any]) -> Any:
    """What immutable options lead to, kept with them: a sweep's runs share their options."""
    memory = getattr(options, "__dict__", None)
    if memory is None:  # a class with slots
        return make()
    if name not in memory:
        memory[name] = make()
    return memory[name]


def _static(options: Any) -> str:
    return str(_once(options, "_static", lambda: canonical(static(options))))


def static_key(run: Run, seed: bool = True) -> str:
    """What must be equal for runs to share a federation and a program; without `seed`, to share a program."""
    parts = (
        run.data.drawn_for(run.seed).identity if seed else dataclasses.replace(run.data, seed=0).spelled,
        f"{run.model.name} {canonical(run.model.options)}",
        f"{run.method} {_static(run.options)}",
        _static(run.train),
        ",".join(sorted(hyper_of(run))),
        *run.foreign,
    )
    return _short("\n".join(parts))


def batches(runs: Iterable[Run], limit: int | Callable[[Run], int]) -> list[Batch]:
    """The runs in batches of at most `limit` (a number, or a function of a run of the group), in the order of their first
    runs. A group is shared out evenly, so that all its batches have one width and need one program."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(static_key(run), []).append(run)
    made = []
    for key, group in groups.items():
        most = limit(group[0]) if callable(limit) else limit
        if most < 1:
            raise ValueError(f"a batch holds at least one run, not {most}")
        made += _even(group, key, static_key(group[0], seed=False), math.ceil(len(group) / most))
    return made


def halves(batch: Batch) -> list[Batch]:
    """The batch as two of half the width, for a device whose memory it does not fit; a batch of one stays."""
    if batch.width == 1:
        return [batch]
    return _even(list(batch.runs), batch.key, batch.program_key.partition("/")[0], min(2, len(batch.runs)))


def _even(group: list[Run], key: str, program: str, parts: int) -> list[Batch]:
    width = math.ceil(len(group) / parts)
    pieces = (tuple(group[at : at + width]) for at in range(0, len(group), width))
    return [Batch(piece, width, key, f"{program}/{width}") for piece in pieces]


def memory(batch: Batch, size: Mapping[str, int]) -> int:
    """Bytes on the device, roughly: the pool once, and for each run of the batch the models of clusters (kept, updated and
    evaluated) and of the participants that are held at once (start, weights, gradient, update), and what the method says it holds.
    `size` has clients, pool_bytes and parameters (d), and, where not all clients train, the learners."""
    participants = _at_once(batch.first, size)
    clusters = getattr(batch.first.options, "clusters", None)
    models = 3 * (clusters if isinstance(clusters, int) else 1) + 4 * participants
    own = sum(held(batch.first, size).values())
    return size["pool_bytes"] + batch.width * 4 * (models * size["parameters"] + own)


def _at_once(run: Run, size: Mapping[str, int]) -> int:
    """Of how many participants the updates are held at once."""
    participants = run.train.places(_able(size), size["clients"])
    if not getattr(run.options, "streams", True) or run.train.transit.robust is not None:
        return participants
    forced = run.train.forced.stream
    block = block_of(participants, size["parameters"]) if forced is None else forced
    return min(participants, block) if block else participants


def _able(size: Mapping[str, int]) -> int:
    """How many clients train."""
    return size.get("learners", size["clients"])


def held(run: Run, size: Mapping[str, int]) -> dict[str, int]:
    """What the method holds in memory at once, by its own account: words → numbers of four bytes."""
    says = getattr(run.options, "held", None)
    participants, d = run.train.places(_able(size), size["clients"]), size["parameters"]
    own = says(size["clients"], participants, d) if says else {}
    if run.train.transit.robust is not None:
        own = own | {"the updates of a round twice, for train.robust": 2 * participants * d}
    return own


def check_memory(batch: Batch, size: Mapping[str, int], there: int) -> None:
    """SpecError if what the method holds at once is more than all the memory there is, in bytes."""
    for what, numbers in held(batch.first, size).items():
        if 4 * numbers > there:
            fewer = '; similarity = "sketch" needs less' if getattr(batch.first.options, "similarity", "") == "exact" else ""
            raise SpecError(
                f"{batch.first.label}: {what} ({size['clients']:,} clients, {size['parameters']:,} parameters) would take "
                f"{amount(4 * numbers)} of memory, and there is {amount(there)}; take fewer clients or a smaller model{fewer}"
            )


def communication(run: Run, size: Mapping[str, int]) -> tuple[float, float]:
    """Bytes (down, up) of a whole run with one model down and one update up per participant and round."""
    trained, d = run.train.participants(_able(size)) * run.train.rounds, size["parameters"]
    return 4.0 * d * trained, float(run.train.vector_bytes(d) * trained)


Size = Mapping[str, int] | Callable[[Batch], Mapping[str, int]]


def dry_run(made: list[Batch], size: Size, crowd: Callable[[Batch], Crowd] | None = None) -> str:
    """What would run, as lines of text. `size`: clients, pool_bytes and parameters, of all batches or of each. `crowd`: of whom
    a batch draws, for what `train.privacy` spends."""
    sizes = [size(batch) if callable(size) else size for batch in made]
    runs = [run for batch in made for run in batch.runs]
    programs = {batch.program_key for batch in made}
    lines = [f"runs {len(runs)}, batches {len(made)}, programs to compile {len(programs)}"]
    rows: dict[tuple[str, str], list[Any]] = {}
    for batch, s in zip(made, sizes, strict=True):
        row = rows.setdefault((batch.first.data.name, batch.first.label), [0, 0, set(), 0, 0.0, 0.0])
        row[0] += len(batch.runs)
        row[1] += 1
        row[2].add(batch.program_key)
        row[3] = max(row[3], memory(batch, s))
        for run in batch.runs:
            down, up = communication(run, s)
            row[4] += down
            row[5] += up
    shown: dict[str, None] = {}
    for batch, s in zip(made, sizes, strict=True):
        for what, numbers in held(batch.first, s).items():
            shown[f"  {batch.first.label} holds {what}: {amount(4 * numbers)}"] = None
        shown |= {} if crowd is None else dict.fromkeys(_privacy(batch, crowd))
    lines += [_row("data", "method", "runs", "batches", "programs", "memory", "down", "up")]
    for (data, label), (count, parts, keys, most, down, up) in rows.items():
        lines.append(_row(data, label, count, parts, len(keys), amount(most), amount(down), amount(up)))
    lines += list(shown)
    if made:
        lines.append(f"memory {amount(max(row[3] for row in rows.values()))} for the largest batch (estimate)")
        down, up = (sum(row[at] for row in rows.values()) for at in (4, 5))
        lines.append(f"communication of all runs (simulated): {amount(down)} down, {amount(up)} up, if each participant gets one")
        lines.append("  model and sends one update in a round; what a method sends besides, or less: python -m cfljax.methods NAME")
    return "\n".join(lines)


def _privacy(batch: Batch, crowd: Callable[[Batch], Crowd]) -> list[str]:
    """What the runs with `train.privacy` spend."""
    from cfljax.experiment.privacy import epsilon

    found = []
    for run in batch.runs:
        if (privacy := run.train.transit.privacy) is not None:
            spent = epsilon(run, crowd(batch))
            found.append(f"  {run.label} with {show(plain(privacy))}: ε = {spent:.4g}")
    return found


def _row(*cells: Any) -> str:
    left, numbers = cells[:2], cells[2:]
    return ("  " + "".join(f"{str(c)[:20]:<21}" for c in left) + "".join(f"{c!s:>10}" for c in numbers)).rstrip()


def amount(count: float) -> str:
    """Bytes for people."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "B" else f"{count:.3g} {units[0]}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
