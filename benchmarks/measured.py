"""What `benchmarks.accelerator` has measured, in Markdown: a table of the workloads, and a line for each of the other pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.markdown import markdown

Row = dict[str, Any]
HEAD = (
    "workload", "training", "median round, ms", "mean in a chunk, ms", "predicted, ms", "of the matrix peak", "peak, MiB",
    "foreseen, MiB",
)  # fmt: skip


def shown(rows: list[Row], said: Callable[[Row], str]) -> str:
    """`said`: a row in a line."""
    timed = sorted((r for r in rows if "chunk_s" in r["about"]), key=lambda r: (r["workload"], r["system"]))
    others = [r for r in rows if r["system"] != "floor" and "chunk_s" not in r["about"]]
    return "\n".join([markdown(HEAD, map(_cells, timed)), "", *(f"- {said(r)}" for r in others)])


def _cells(r: Row) -> tuple[object, ...]:
    about = r["about"]
    return (
        r["workload"], way_of(about), _ms(r["median_s"]), _ms(about["chunk_s"]), _ms(about["predicted_s"]),
        f"{100 * about['share_of_peak']:.2g} %", _whole(about.get("device_peak_mib")), _whole(about["foreseen_mib"]),
    )  # fmt: skip


def way_of(about: Row) -> str:
    """How a workload was trained."""
    return ("one kernel" if about["kernel"] == "pallas" else "XLA") + (" (auto)" if about["kernel"] == about["auto"] else "")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3g}"


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:.0f}"
