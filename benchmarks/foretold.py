"""What `results/aot.json` predicts for a chip from programs that were compiled for it, to stand beside what is measured there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results" / "aot.json"


def foretold(workload: str, peak: dict[str, Any], way: str, steps: float) -> float | None:
    """Seconds of a round with this number of steps in a row of the workload on this machine (`pieces.peaks`), by one kernel per
    client ("pallas") or by XLA's kernels ("xla"); None where that has not been compiled, and for several devices, which share the
    clients."""
    found = _row(workload, peak, way)
    return None if found is None else float(found["predicted_s"] * steps / found["steps_in_a_row"])


def ratio_foretold(peak: dict[str, Any], rounds: int) -> float | None:
    """How many times as long as one run of W4 the 256 runs of the sweep take, the evaluations at the start and the end included."""
    one, all_of_them = _row("W4", peak, "xla"), _row("sweep", peak, "xla")
    return None if one is None or all_of_them is None else _total(all_of_them, rounds) / _total(one, rounds)


def _total(row: dict[str, Any], rounds: int) -> float:
    return float(rounds * row["predicted_s"] + 2 * row["evaluate"]["predicted_s"])


def _row(workload: str, peak: dict[str, Any], way: str) -> dict[str, Any] | None:
    """The newest row that fits."""
    from cfljax.devices.chips import CHIPS

    target = next((name for name, chip in CHIPS.items() if chip.kind == peak["kind"] and peak["devices"] == 1), None)
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    fit = [r for r in rows if (r["workload"], r["target"]) == (workload, target) and "error" not in r]
    return next((r for r in reversed(fit) if bool(r.get("one_kernel")) == (way == "pallas")), None)
