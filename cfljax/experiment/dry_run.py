"""What would run, in words: batches, programs, memory and communication of a sweep, before anything
is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cfljax.config.frozen import to_plain
from cfljax.config.run import Run
from cfljax.experiment.batching import Batch, Size, count_held, estimate_memory, format_bytes
from cfljax.experiment.times import describe_estimates, estimate
from cfljax.registry.options import show

if TYPE_CHECKING:
    from cfljax.experiment.privacy import Crowd


def dry_run(
    made: list[Batch],
    size: Size | Callable[[Batch], Size],
    crowd: Callable[[Batch], Crowd] | None = None,
    sent: Iterable[str] = (),
) -> str:
    """Describe in lines what would run. `size`: of all batches, or of each. `crowd`: the clients
    that a batch draws from, for the ε of `train.privacy`. `sent`: lines on what methods send."""
    programs = {batch.program_key for batch in made}
    lines = [
        f"runs {sum(len(batch.runs) for batch in made)}, batches {len(made)}, programs to "
        f"compile {len(programs)}"
    ]
    groups: dict[tuple[str, str], list[tuple[Batch, Size, float | None]]] = {}
    notes: dict[str, None] = {}
    sizes = [size(batch) if callable(size) else size for batch in made]
    seconds = estimate(made, sizes)
    for batch, of_batch, spent in zip(made, sizes, seconds, strict=True):
        groups.setdefault((batch.first.data.name, batch.first.label), []).append(
            (batch, of_batch, spent)
        )
        if needed := count_held(batch.first, of_batch):
            notes[f"  {batch.first.label} holds for its clients: {format_bytes(needed)}"] = None
        if of_batch.features:
            notes[
                "  features of the frozen body, computed once: "
                f"{format_bytes(4 * of_batch.features)}"
            ] = None
        notes |= {} if crowd is None else dict.fromkeys(_privacy(batch, crowd))
    lines += [
        _line("data", "method", "runs", "batches", "programs", "memory", "down", "up", "a run")
    ]
    largest = 0
    for names, group in groups.items():
        traffic = [
            communication(run, of_batch) for batch, of_batch, _ in group for run in batch.runs
        ]
        down, up = map(sum, zip(*traffic, strict=True))
        most = max(estimate_memory(batch, of_batch) for batch, of_batch, _ in group)
        largest = max(largest, most)
        compiled = len({batch.program_key for batch, *_ in group})
        of_runs = [spent / len(batch.runs) for batch, _, spent in group if spent is not None]
        each = f"{sum(of_runs) / len(of_runs):.3g} s" if of_runs else "?"
        lines.append(
            _line(
                *names,
                len(traffic),
                len(group),
                compiled,
                format_bytes(most),
                format_bytes(down),
                format_bytes(up),
                each,
            )
        )
    lines += list(notes)
    if made:
        lines.append(f"memory {format_bytes(largest)} for the largest batch (estimate)")
        lines += [
            "down, up: bytes (simulated) for one model down and one update up per "
            "participant and round; what is sent is",
            *sent,
        ]
        lines.append(describe_estimates(seconds))
    return "\n".join(lines)


def communication(run: Run, size: Size) -> tuple[float, float]:
    """Return the bytes (down, up) of a whole run: a model and an update per participant and round,
    or per start or arrival."""
    participants = run.train.participants(size.learners)
    d = size.parameters
    trained = participants * run.train.rounds
    begun, arrived = trained, trained
    if (table := run.train.asynchronous_table) is not None:
        arrived = min(table.buffer, participants) * run.train.rounds
        begun = participants + min(table.buffer, participants) * (run.train.rounds - 1)
    return 4.0 * d * begun, float(run.train.vector_bytes(d) * arrived)


def _privacy(batch: Batch, crowd: Callable[[Batch], Crowd]) -> list[str]:
    from cfljax.experiment.privacy import epsilon, epsilon_of_choices

    def line(run: Run) -> str:
        spent = epsilon(run, crowd(batch))
        choices = epsilon_of_choices(run, crowd(batch))
        part = "" if choices is None else f" (of the choices alone: {choices:.4g})"
        return (
            f"  {run.label} with {show(to_plain(run.train.transit.privacy))}: ε = {spent:.4g}{part}"
        )

    return [line(run) for run in batch.runs if run.train.transit.privacy is not None]


def _line(*cells: object) -> str:
    left, numbers = cells[:2], cells[2:]
    return (
        "  " + "".join(f"{str(c)[:20]:<21}" for c in left) + "".join(f"{c!s:>10}" for c in numbers)
    ).rstrip()
