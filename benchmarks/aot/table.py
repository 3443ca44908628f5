"""The rows as a Markdown table."""

from __future__ import annotations

from typing import Any

HEAD = (
    "workload", "method", "target", "training", "compile, s", "launches a step", "steps in a row", "loops by the host", "exchanges",
    "needs, MB", "foreseen, MB", "round, ms", "evaluation, ms",
)  # fmt: skip


def shown(rows: list[dict[str, Any]]) -> str:
    """The table, and what it says of each whole spec."""
    specs = dict.fromkeys(row["workload"] for row in rows if "total_s" in row)
    return "\n\n".join([table(rows), *(said(rows, name) for name in specs)])


def said(rows: list[dict[str, Any]], name: str) -> str:
    """The time of each method of a spec on each target, and the most memory, as a comment for its head."""
    words = []
    for target in dict.fromkeys(row["target"] for row in rows if row["workload"] == name):
        own = [row for row in rows if row["workload"] == name and row["target"] == target and "total_s" in row]
        times = ", ".join(f"{row['method']} {_time(row['total_s'])}" for row in own)
        words.append(f"#   {target}: {times}; {max(row['needed_bytes'] for row in own) / 1e9:.2g} GB of its memory")
    about = f"# All runs of a method, as `python -m benchmarks.aot --workloads experiments/{name}.toml` predicts:"
    return "\n".join([about, *words])


def _time(seconds: float) -> str:
    """As two figures in a unit that suits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(rows: list[dict[str, Any]]) -> str:
    """One line per row; what could not be compiled has its error."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * 4 + " ---: |" * (len(HEAD) - 4)]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(row: dict[str, Any]) -> str:
    words = [row["workload"], row["method"], row["target"], "one kernel" if row.get("one_kernel") else "XLA"]
    if "error" in row:
        return "| " + " | ".join([*words, row["error"].replace("|", "/"), *[""] * (len(HEAD) - 5)]) + " |"
    hosts = sum(loop["on_host"] + loop["branches_on_host"] for loop in row["loops"])
    figures = (
        f"{row['compile_s']:.3g}", row["launches_per_step"], f"{row['steps_in_a_row']:g}", hosts, sum(row["collectives"].values()),
        _mega(row["needed_bytes"]), _mega(row["predicted_bytes"]), f"{1e3 * row['predicted_s']:.3g}",
        f"{1e3 * row['evaluate']['predicted_s']:.3g}",
    )  # fmt: skip
    return "| " + " | ".join([*words, *map(str, figures)]) + " |"


def _mega(count: float) -> str:
    return f"{count / 1e6:.3g}" if count < 1e9 else f"{count / 1e6:.0f}"
