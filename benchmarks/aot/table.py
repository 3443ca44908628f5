"""The rows as a Markdown table."""

from __future__ import annotations

from typing import Any

HEAD = (
    "workload", "method", "target", "training", "compile, s", "launches a step", "steps in a row", "loops by the host", "exchanges",
    "needs, MB", "foreseen, MB", "round, ms", "evaluation, ms",
)  # fmt: skip


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
