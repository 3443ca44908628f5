"""The sentences below a table: what its marks, intervals and columns mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cfljax.report.columns import columns_of
from cfljax.report.comparison import Row, headline
from cfljax.report.over_settings import group_blocks
from cfljax.results.advice import Entrant, advise_on_runs
from cfljax.results.statistics import BOOTSTRAP, FEWEST_TESTED, LEVEL

TEST_IN_WORDS = (
    f"two-sided paired t-test over shared seeds, Holm-corrected within the column, {LEVEL:.0%} "
    "level"
)


def list_notes(table: Sequence[Row], best: str, tied: str) -> list[str]:
    """List the sentences that explain a table. Marks and columns that it does not have are not
    explained.

    Args:
      table: The rows.
      best: The mark of the best cells.
      tied: The mark of cells that do not differ from the best.
    """
    said = ["mean ± standard deviation over the seeds of completed runs; accuracies in per cent"]
    said += _note_intervals(table) + _note_draws(table) + note_marks(table, best, tied)
    return said + note_left_out(table) + note_columns(table)


def note_left_out(table: Sequence[Row]) -> list[str]:
    """State which methods ran without options that the others have, because they refuse them."""
    found: dict[str, set[str]] = {}
    for row in table:
        for unit in row.configuration.units:
            left_out = unit.record.get("left_out") or {}
            found.setdefault(row.configuration.title, set()).update(left_out)
    return [
        f"{title}: without {', '.join(sorted(names))}, which the method refuses"
        for title, names in found.items()
        if names
    ]


def note_marks(table: Sequence[Row], best: str, tied: str) -> list[str]:
    """Explain the marks of the best cells and of those that do not differ from them, and say which
    rows were not compared."""
    lost = sum(bool(row.configuration.lost) for row in table)
    return _note_best(table, best, tied) + (
        [f"not compared: {lost} of {len(table)} rows, of which not all runs ended well"]
        if lost
        else []
    )


def _note_best(table: Sequence[Row], best: str, tied: str) -> list[str]:
    cells = [cell for row in table for cell in row.cells.values()]
    if not any(cell.best for cell in cells):
        return []
    blocks = len({row.configuration.block for row in table}) > 1
    said = [f"{best} best of the column{' on the same data' if blocks else ''}"]
    if any(cell.tied for cell in cells):
        said.append(f"{tied} not significantly different from the best ({TEST_IN_WORDS})")
    elif any(cell.p is not None for cell in cells):
        said.append(f"all others differ significantly from the best ({TEST_IN_WORDS})")
    if untested := explain_untested(table):
        return [*said, untested]
    marked = [c.key for c in columns_of(table) if c.better and not c.reaches]
    compared = [row.cells[key] for row in table if not row.configuration.lost for key in marked]
    if any(cell.p is None and not cell.best and cell.n for cell in compared):
        said.append(f"not tested: fewer than {FEWEST_TESTED} seeds in common with the best")
    return said


def note_columns(table: Sequence[Row]) -> list[str]:
    """Explain the columns whose headings do not say all."""
    said = []
    for column in columns_of(table):
        cells = [row.cells[column.key] for row in table]
        if column.reaches in ("target", "recovery"):
            applies = any(0 < cell.n < cell.total for cell in cells)
        else:
            applies = any(cell.n for cell in cells)
        if column.note and applies:
            said.append(column.note)
    return list(dict.fromkeys(said)) + _note_costs(table)


def _note_costs(table: Sequence[Row]) -> list[str]:
    """State what the seconds leave out, and what costs are counted to without FedAvg."""
    kinds = {column.key: column.kind for column in columns_of(table)}
    said = []
    if "seconds" in kinds.values():
        compiling = _describe_range([_average_timing(row, "compile") for row in table])
        setting_up = _describe_range([_average_timing(row, "setup") for row in table])
        said.append(
            f"not in the seconds, per run: compiling ({compiling}) and setting up, with "
            f"pre-training ({setting_up})"
        )
    done = [unit.record["summary"] for row in table for unit in row.configuration.by_status("done")]
    alone = sum("round_to_fedavg" not in summary for summary in done)
    if alone and any(column.reaches == "fedavg" for column in columns_of(table)):
        said.append(f"{alone} of {len(done)} runs have no FedAvg with the same seed and data")
    if len(table) > 1 and not _has_fedavg(table) and {"bytes", "seconds"} & set(kinds):
        said.append("costs are of whole runs: there is no FedAvg whose accuracy they could reach")
    return said


def _has_fedavg(table: Sequence[Row]) -> bool:
    """Return whether costs are, or could be, counted to the accuracy of FedAvg or to a target."""
    summaries = [unit.record["summary"] for row in table for unit in row.configuration.units]
    return any(row.configuration.method == "fedavg" for row in table) or any(
        "round_to_fedavg" in summary or summary.get("round_to_target") is not None
        for summary in summaries
    )


def _average_timing(row: Row, part: str) -> float:
    """Average the seconds of a part of the runs of a row that are done."""
    units = row.configuration.by_status("done")
    spent = [float(unit.record["timings"].get(part) or 0) for unit in units]
    return math.fsum(spent) / max(len(spent), 1)


def _describe_range(seconds: Sequence[float]) -> str:
    """Describe the least and the most seconds."""
    ends = [f"{end:.1f}" for end in (min(seconds), max(seconds))]
    return f"{' to '.join(dict.fromkeys(ends))} s"


def _note_intervals(table: Sequence[Row]) -> list[str]:
    """State how the intervals in brackets were computed; [] if there are none."""
    first = headline(table)
    if first is None:
        return []
    # The numbers of seeds of the rows with an interval
    counts = {row.cells[first.key].n for row in table if row.cells[first.key].interval}
    if not counts:
        return []
    how = "bootstrap over the seeds" if max(counts) >= BOOTSTRAP else "Student's t over the seeds"
    if min(counts) < BOOTSTRAP <= max(counts):
        how += f", Student's t with fewer than {BOOTSTRAP}"
    return [f"in brackets: {1 - LEVEL:.0%} interval of the mean ({how})"]


def _note_draws(table: Sequence[Row]) -> list[str]:
    """State whether the seeds draw who holds which data, too (`data.seed = "run"`)."""
    followed = {draws_data(row) for row in table if len(row.configuration.units) > 1}
    if not followed:
        return []
    if followed == {True}:
        return ['each seed draws its own partition (data.seed = "run"): ± and intervals include it']
    words = (
        "± and intervals cover seeds only: all seeds share one partition "
        '(data.seed = "run" draws one for each)'
    )
    if followed == {False}:
        return [words]
    draws = 'rows with data.seed = "run": ± and intervals include the draw of the partition'
    return [f"{draws}. Others: {words}"]


def draws_data(row: Row) -> bool:
    """Return whether each seed of the row draws who holds which data."""
    return (row.configuration.units[0].record["config"].get("data") or {}).get("seed") == "run"


def list_advice(table: Sequence[Row]) -> list[str]:
    """Return what is worth a look in the runs of a table."""
    configurations = [row.configuration for row in table]
    return advise_on_runs(
        Entrant(
            f"{each.title} ({each.heading})" if each.heading else each.title,
            each.block,
            [unit.record for unit in each.by_status("done")],
        )
        for each in configurations
    )


def count_seeds(table: Sequence[Row]) -> int:
    """Return the most runs of a row that have the headline; 0 for a table without it."""
    column = headline(table)
    return 0 if column is None else max((row.cells[column.key].n for row in table), default=0)


def explain_untested(table: Sequence[Row]) -> str:
    """Say that a comparison has too few seeds to test; "" if it has enough, or nothing to
    compare."""
    seeds = count_seeds(table)
    if not 0 < seeds < FEWEST_TESTED or max(map(len, group_blocks(table))) < 2:
        return ""
    # Without a flag: it stands in papers, too
    return f"{seeds} seed{'' if seeds == 1 else 's'}: too few to test, which takes {FEWEST_TESTED}"
