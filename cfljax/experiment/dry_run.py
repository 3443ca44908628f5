"""What would run, in words: batches, programs, memory and communication of a sweep, before anything
is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cfljax.config.frozen import to_plain
from cfljax.config.run import Run
from cfljax.experiment.batching import (
    Batch,
    Size,
    count_client_state,
    estimate_memory,
    format_bytes,
)
from cfljax.experiment.times import advise_on_evaluation, describe_estimates, estimate
from cfljax.registry.options import Table, show

if TYPE_CHECKING:
    from cfljax.experiment.privacy import Crowd


class _Planned(NamedTuple):
    """A batch, the sizes of its runs, the seconds that it is expected to take, if known, and what
    is to be said of its evaluations."""

    batch: Batch
    size: Size
    seconds: float | None
    advice: str


def dry_run(
    batches: list[Batch],
    size: Size | Callable[[Batch], Size],
    crowd: Callable[[Batch], Crowd] | None = None,
    sent: Iterable[str] = (),
) -> str:
    """Describe in lines what would run.

    Args:
        batches: all batches of the sweep.
        size: the sizes of the runs of all batches, or a function that returns them for a batch.
        crowd: returns the clients that a batch draws from, for the ε of `train.privacy`.
        sent: lines on what the methods send."""
    programs = {batch.program_key for batch in batches}
    lines = [
        f"runs {sum(len(batch.runs) for batch in batches)}, batches {len(batches)}, programs to "
        f"compile {len(programs)}"
    ]
    planned = _plan(batches, size)
    lines += [
        _format_line(
            "data", "method", "runs", "batches", "programs", "memory", "down", "up", "a run"
        )
    ]
    lines += [_describe_group(names, group) for names, group in _group(planned).items()]
    lines += dict.fromkeys(note for each in planned for note in _list_notes(each, crowd))
    if batches:
        largest = max(estimate_memory(each.batch, each.size) for each in planned)
        lines.append(f"memory {format_bytes(largest)} for the largest batch (estimate)")
        lines += [
            "down, up: bytes (simulated) for one model down and one update up per "
            "participant and round; what is sent is",
            *sent,
        ]
        lines.append(describe_estimates([each.seconds for each in planned]))
    return "\n".join(lines)


def to_table(batches: list[Batch], size: Callable[[Batch], Size]) -> Table:
    """Return the numbers of `dry_run` as a table, for `--json`: memory and traffic in bytes, and
    seconds (None: not known) for all batches of a row, one after another."""
    planned = _plan(batches, size)
    rows = []
    for (data, method), group in _group(planned).items():
        counted = _count_group(group)
        known = [each.seconds for each in group if each.seconds is not None]
        rows.append(
            {"data": data, "method": method}
            | counted._asdict()
            | {"seconds": sum(known) if len(known) == len(group) else None}
        )
    return {
        "runs": sum(len(batch.runs) for batch in batches),
        "batches": len(batches),
        "programs": len({batch.program_key for batch in batches}),
        "rows": rows,
    }


def _plan(batches: list[Batch], size: Size | Callable[[Batch], Size]) -> list[_Planned]:
    """Join each batch with its sizes and its seconds."""
    sizes = [size(batch) if callable(size) else size for batch in batches]
    columns = (batches, sizes, estimate(batches, sizes), advise_on_evaluation(batches, sizes))
    return [_Planned(*each) for each in zip(*columns, strict=True)]


def _group(planned: list[_Planned]) -> dict[tuple[str, str], list[_Planned]]:
    """Group batches by their data set and the label of their method."""
    groups: dict[tuple[str, str], list[_Planned]] = {}
    for each in planned:
        run = each.batch.first
        groups.setdefault((run.data.name, run.label), []).append(each)
    return groups


class _Counted(NamedTuple):
    """The numbers of the batches of one data set and method."""

    runs: int
    batches: int
    programs: int
    # Bytes of the largest batch (estimate)
    memory: int
    # Bytes (simulated) of all runs
    down: float
    up: float


def _count_group(group: list[_Planned]) -> _Counted:
    traffic = [communication(run, each.size) for each in group for run in each.batch.runs]
    down, up = map(sum, zip(*traffic, strict=True))
    largest = max(estimate_memory(each.batch, each.size) for each in group)
    programs = len({each.batch.program_key for each in group})
    return _Counted(len(traffic), len(group), programs, int(largest), down, up)


def _describe_group(names: tuple[str, str], group: list[_Planned]) -> str:
    """Describe the batches of one data set and method in a line of the table."""
    counted = _count_group(group)
    of_runs = [each.seconds / len(each.batch.runs) for each in group if each.seconds is not None]
    return _format_line(
        *names,
        *counted[:3],
        *map(format_bytes, counted[3:]),
        f"{sum(of_runs) / len(of_runs):.3g} s" if of_runs else "?",
    )


def _list_notes(planned: _Planned, crowd: Callable[[Batch], Crowd] | None) -> Iterator[str]:
    """Yield lines on what a batch holds for its clients, on the time of its evaluations, on a
    frozen body's features, and on its ε."""
    batch, size = planned.batch, planned.size
    if needed := count_client_state(batch.first, size):
        yield f"  {batch.first.label} holds for its clients: {format_bytes(needed)}"
    if planned.advice:
        yield f"  {batch.first.label}: {planned.advice}"
    if size.features:
        yield f"  features of the frozen body, computed once: {format_bytes(4 * size.features)}"
    if crowd is not None:
        yield from _describe_privacy(batch, crowd)


def communication(run: Run, size: Size) -> tuple[float, float]:
    """Return the bytes (down, up) of a whole run: a model and an update per participant and round,
    or per start or arrival."""
    participants = run.train.participants(size.learners)
    d = size.parameters
    started = reported = participants * run.train.rounds
    if (table := run.train.asynchronous) is not None:
        # The server waits for some updates, and starts as many clients after each step but the last
        reported = min(table.buffer, participants) * run.train.rounds
        started = participants + min(table.buffer, participants) * (run.train.rounds - 1)
    down = run.train.vector_bytes_down(d) or 4 * d
    return float(down * started), float(run.train.vector_bytes(d) * reported)


def _describe_privacy(batch: Batch, crowd: Callable[[Batch], Crowd]) -> list[str]:
    """Describe the ε of each run of the batch that has `train.privacy`."""
    from cfljax.experiment.privacy import epsilon, epsilon_of_choices

    lines = []
    for run in batch.runs:
        privacy = run.train.transit.privacy
        if privacy is not None:
            spent = epsilon(run, crowd(batch))
            choices = epsilon_of_choices(run, crowd(batch))
            part = "" if choices is None else f" (of the choices alone: {choices:.4g})"
            lines.append(f"  {run.label} with {show(to_plain(privacy))}: ε = {spent:.4g}{part}")
    return lines


def _format_line(*cells: object) -> str:
    """Format a line of the table: two names, then numbers."""
    names = "".join(f"{str(cell)[:20]:<21}" for cell in cells[:2])
    numbers = "".join(f"{cell!s:>10}" for cell in cells[2:])
    return f"  {names}{numbers}".rstrip()
