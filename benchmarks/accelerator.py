"""Measure cfljax on a GPU or TPU: agreement with a CPU, runs side by side, a row of a published
table, precision, flags of XLA, and other simulators on the same device.

    python -m benchmarks.accelerator --json benchmarks/results/DEVICE.json
    python -m benchmarks.accelerator --json FILE --only wide-W1,table --seconds 280
    python -m benchmarks.accelerator --tiny        # the same on small sizes, anywhere
    python -m benchmarks.accelerator --show benchmarks/results/DEVICE.json

Each piece is a process of its own, because a TPU belongs to one process; this one never starts JAX.
The pieces run in the order of `PIECES`, most valuable first. The file is written after each piece;
the same command again measures what the file lacks. A piece that fails leaves a row with the
`reason` and is tried again at the next start. No piece begins after `--seconds`. What the pieces
print goes to DEVICE.log. Exit code 1: a piece failed, or the device disagrees with the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.markdown import markdown
from benchmarks.measure import write_rows

ROOT = Path(__file__).parents[1]
PATIENCE = 280
"""Seconds after which a piece is given up."""
COMMAND_BUFFERS = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION"
)
FLAGS = {
    "default": "",
    "while": f"{COMMAND_BUFFERS},WHILE,CONDITIONAL",
    "while-small": f"{COMMAND_BUFFERS},WHILE,CONDITIONAL --xla_gpu_graph_min_graph_size=1",
    "unrolled": "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_AUTO_UNROLL",
    "no-buffers": "--xla_gpu_enable_command_buffer=",
}
"""XLA flags that may change how many kernels the host launches."""
PIECES = {
    "agreement": "agreement",
    "wide-W1": "wide",
    "flags-default": "flags",
    "flags-while": "flags",
    "flags-while-small": "flags",
    "wide-Q": "wide",
    "wide-QI": "wide",
    "wide-W2": "wide",
    "wide-W4": "wide",
    "table": "table",
    "flags-unrolled": "flags",
    "flags-no-buffers": "flags",
    "precision-W4": "precision",
    "precision-W2": "precision",
    "wide-W3": "wide",
    "wide-W5": "wide",
    "precision-W3": "precision",
    "peer-W1-torch": "peer",
    "peer-W4-torch": "peer",
    "peer-W1-torch-vmap": "peer",
    "peer-W4-torch-vmap": "peer",
    "peer-W1-fedjax": "peer",
    "peer-W4-fedjax": "peer",
}
"""Name -> kind, most valuable first."""
Row = dict[str, Any]


def run_piece(name: str, given: argparse.Namespace, folder: Path, log: Any) -> list[Row]:
    """Measure one piece in a process of its own; a failure is a row with its reason."""
    out = folder / "piece.json"
    out.unlink(missing_ok=True)
    flags = FLAGS[name.removeprefix("flags-")] if name.startswith("flags-") else ""
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
    command = [
        sys.executable,
        "-m",
        "benchmarks.accelerator_pieces",
        name,
        str(folder),
        str(out),
    ] + ["--tiny"] * given.tiny
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        code = child.wait(PATIENCE)
        reason = f"exit code {code}"
    except subprocess.TimeoutExpired:
        reason = f"not done after {PATIENCE} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    rows: list[Row] = (
        json.loads(out.read_text(encoding="utf-8"))
        if out.is_file()
        else [{"name": name, "reason": reason}]
    )
    return [
        {"piece": name, **row, "piece_s": round(time.perf_counter() - begin, 1)} for row in rows
    ]


def format_row(row: Row) -> str:
    """Return a row as one line."""
    if "reason" in row:
        return f"{row['piece']}: FAILED: {row['reason']}"
    figures = {
        k: v for k, v in row.items() if k not in ("piece", "name", "device", "piece_s", "versions")
    }
    return f"{row['piece']}: " + ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()
    )


def show(rows: list[Row]) -> str:
    """Return the rows in Markdown: a table of runs side by side, and a line for each other row."""
    head = (
        "device",
        "workload",
        "runs",
        "ms a round, all runs",
        "ms a run and round",
        "of the float32 peak",
        "peak, MiB",
    )
    wide = [r for r in rows if "ms_per_run_round" in r]
    cells = [
        (
            r["device"],
            r["name"],
            r["runs"],
            f"{r['ms_per_round']:.3g}",
            f"{r['ms_per_run_round']:.3g}",
            f"{100 * r['share_of_peak']:.2g} %",
            f"{r.get('device_peak_mib', 0):.0f}",
        )
        for r in wide
    ]
    return "\n".join(
        [markdown(head, cells), "", *(f"- {format_row(r)}" for r in rows if r not in wide)]
    )


def measure(given: argparse.Namespace) -> int:
    """Measure the pieces that the file lacks."""
    begin = time.perf_counter()
    wanted = given.only.split(",") if given.only else list(PIECES)
    if unknown := [name for name in wanted if name not in PIECES]:
        raise SystemExit(f"--only {unknown[0]}: there are {', '.join(PIECES)}")
    rows: list[Row] = (
        json.loads(given.json.read_text(encoding="utf-8"))
        if given.json and given.json.is_file()
        else []
    )
    log_file = given.json.with_suffix(".log") if given.json else Path(os.devnull)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    well = True
    with (
        tempfile.TemporaryDirectory(prefix="cfljax-accelerator-") as folder,
        log_file.open("a", encoding="utf-8") as log,
    ):
        for name in wanted:
            if any(row["piece"] == name and "reason" not in row for row in rows):
                continue
            if time.perf_counter() - begin > given.seconds:
                print(
                    f"{given.seconds:.0f} s are over: {name} and later pieces are left for "
                    "the next start",
                    flush=True,
                )
                break
            new = run_piece(name, given, Path(folder), log)
            rows = [row for row in rows if row["piece"] != name] + new
            for row in new:
                print(format_row(row), flush=True)
                well = well and "reason" not in row and row.get("holds", True)
            write_rows(rows, given.json)
    print(f"{time.perf_counter() - begin:.0f} s in all")
    return 0 if well else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="the file of results; it is resumed")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it run?")
    parser.add_argument("--only", default="", help="some pieces, separated by commas")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no piece after this many seconds"
    )
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print this file as Markdown; measure nothing"
    )
    given = parser.parse_args(arguments)
    if given.show is not None:
        print(show(json.loads(given.show.read_text(encoding="utf-8"))))
        return 0
    return measure(given)


if __name__ == "__main__":
    for each in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # so that the piece ends, too, and leaves the device
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
