"""Measure cfljax on a GPU or TPU in eight minutes, the most valuable parts first.

    python -m benchmarks.accelerator --json benchmarks/results/DEVICE.json
    python -m benchmarks.accelerator --json FILE --data FOLDER    # with mnist.npz and cifar10.npz
    python -m benchmarks.accelerator --json FILE --only wide-W1,table --seconds 280
    python -m benchmarks.accelerator --json FILE --small          # small sizes, anywhere
    python -m benchmarks.accelerator --json FILE --reference      # two cores, to compare with
    python -m benchmarks.accelerator --show benchmarks/results/DEVICE.json

Nothing is installed or downloaded: without `--data` arrays of the data sets' shapes are made from a
seed. Parts (`PIECES`, in this order): a) W1 and W2, 256 runs side by side; b) ten methods of
FedGroup's Table 3, 32 seeds each, with programs that are compiled before; c) W3, W5 and a ResNet-18
with batch normalisation, one run and 16 side by side, and whether models agree with a CPU's; d) all
methods of the board with a CNN, 5 seeds; e) plain PyTorch on the same device: a loop over clients,
`torch.func.vmap` over them, and 16 processes; g) sweeps of experiments/todo.toml, whose records lie
beside FILE. A row that misses its aim (`AIMS`) has f) a profile: the dearest kernels, launches per
local step, and gaps. `MORE` is measured if `--only` names it.

Each piece is a process of its own, which is ended when its time is over; this one never starts JAX.
FILE is written after each piece, whole or not at all, also when this program is ended by Ctrl-C or
SIGTERM; the same command again measures what the file lacks. A piece that fails leaves a row with
the `reason`, one that cannot be measured here says why (`skipped`). What the pieces print goes to
FILE's .log. Exit code 1: a piece failed, or the device disagrees with the CPU.
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
from typing import Any, NamedTuple

from benchmarks.markdown import markdown
from benchmarks.measure import write_rows

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "benchmarks.accelerator_pieces"]
REFERENCE = Path(__file__).with_name("results") / "reference-2-cores.json"
"""What two cores need, as `--reference` writes it."""
AGAIN = ("reason", "skipped", "left")
"""Of rows that are measured at the next start: it failed, could not be, or is not at its end."""
GRACE = 5.0
"""Seconds that a piece has to end by itself, before it is killed."""
SLOWLY = 3600.0
"""Seconds after which a piece is ended on a CPU, which may have other work."""
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


class Piece(NamedTuple):
    """A measurement in a process of its own."""

    part: str  # Its letter in the list above
    kind: str  # The function of `accelerator_pieces`
    seconds: float  # It is ended after these


PIECES = {
    "wide-W1": Piece("a", "wide", 75),
    "wide-W2": Piece("a", "wide", 75),
    "table": Piece("b", "table", 240),
    "wide-W3": Piece("c", "wide", 75),
    "wide-W5": Piece("c", "wide", 100),
    "wide-R18": Piece("c", "wide", 110),
    "agreement": Piece("c", "agreement", 60),
    "board": Piece("d", "board", 120),
    "peer-W1-torch": Piece("e", "peer", 60),
    "peer-W3-torch": Piece("e", "peer", 60),
    "peer-W1-torch-vmap": Piece("e", "peer", 60),
    "peer-W3-torch-vmap": Piece("e", "peer", 60),
    "peer-W1-torch-16": Piece("e", "peer", 90),
    "peer-W3-torch-16": Piece("e", "peer", 90),
    "evidence": Piece("g", "evidence", 3600),
}
MORE = {
    **{f"widths-{name}": Piece("more", "widths", 280) for name in ("W1", "W2", "W4", "Q", "QI")},
    **{f"flags-{name}": Piece("more", "flags", 280) for name in FLAGS},
    **{f"precision-{name}": Piece("more", "precision", 280) for name in ("W4", "W2", "W3")},
    **{
        f"peer-{name}-{system}": Piece("more", "peer", 280)
        for name in ("W1", "W4")
        for system in ("fedjax", "torch", "torch-vmap")
        if (name, system[:5]) != ("W1", "torch")
    },
}
REFERRED = ("wide-W1", "wide-W2", "wide-W3", "wide-W5", "table")
"""The pieces that `--reference` measures."""


class Aim(NamedTuple):
    """What a figure of a row should reach."""

    figure: str
    least: float


AIMS = {
    ("W1", 256): Aim("times_two_cores", 10),
    ("W2", 256): Aim("times_two_cores", 10),
    ("table", 320): Aim("times_two_cores", 10),
    ("W3", 1): Aim("share_of_peak", 0.5),
    ("W3", 16): Aim("share_of_peak", 0.5),
    # Products of 16 to 64 channels: two cores reach half of their own peak with them
    ("W5", 1): Aim("share_of_peak", 0.25),
    ("W5", 16): Aim("share_of_peak", 0.25),
    ("R18", 1): Aim("share_of_peak", 0.5),
    ("R18", 16): Aim("share_of_peak", 0.5),
}
"""(name, runs) -> its aim."""
HIDDEN = (
    *("piece", "part", "small", "piece_s", "aim", "profile"),
    *("device", "backend", "versions", "git"),
)
"""Keys of a row that its line leaves out."""
Row = dict[str, Any]


def two_cores() -> dict[str, float]:
    """Return name -> milliseconds of a run and round on two cores."""
    rows = json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.is_file() else []
    return {row["name"]: row["ms_per_run_round"] for row in rows if "ms_per_run_round" in row}


def judge(row: Row) -> Row:
    """Return the row with what it is compared with: two cores, and its aim. Small sizes have
    none."""
    if row.get("small"):
        return row
    there = two_cores().get(row.get("name", ""))
    if there is not None and "ms_per_run_round" in row:
        row = row | {"times_two_cores": there / row["ms_per_run_round"]}
    aim = AIMS.get((row.get("name", ""), row.get("runs", 0)))
    if aim is None or aim.figure not in row:
        return row
    found = row[aim.figure]
    return row | {
        "aim": {"of": aim.figure, "at_least": aim.least, "found": found, "met": found >= aim.least}
    }


def read_rows(file: Path | None) -> list[Row]:
    """Return the rows of a file; none if there is no file."""
    if file is None or not file.is_file():
        return []
    rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def end(child: subprocess.Popen[bytes]) -> None:
    """End a piece and all that it has started: kindly, then by force."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)


class Ended(Exception):
    """This program was asked to end while a piece was measured, of which there are these rows."""

    def __init__(self, rows: list[Row], code: int):
        super().__init__()
        self.rows, self.code = rows, code


def run_piece(
    name: str, given: argparse.Namespace, folder: Path, log: Any, seconds: float
) -> list[Row]:
    """Measure one piece in a process of its own; a failure is a row with its reason. What it has
    measured before it fails, or is ended, is kept."""
    out = folder / "piece.json"
    out.unlink(missing_ok=True)
    about = {
        "name": name,
        "folder": str(folder),
        "out": str(out),
        "keep": str((given.json or folder / "none.json").absolute().with_suffix(".evidence")),
        "small": given.small,
        "reference": given.reference,
        "seconds": seconds,
    }
    environment = dict(os.environ)
    if flags := FLAGS.get(name.removeprefix("flags-"), ""):
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}".strip()
    if given.data is not None:
        environment["CFLJAX_DATA"] = str(given.data.absolute())
    if given.reference:
        environment["JAX_PLATFORMS"] = "cpu"
    command = [*COMMAND, json.dumps(about)]
    begin, code = time.perf_counter(), 0
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        ended = child.wait(seconds)
        reason = f"exit code {ended}" if ended else ""
    except subprocess.TimeoutExpired:
        reason = f"not done after {seconds:.0f} s"
    except (KeyboardInterrupt, SystemExit) as error:
        reason, code = "interrupted", error.code if isinstance(error, SystemExit) else 130
    finally:
        end(child)
    rows = read_rows(out)
    if reason:
        rows.append({"name": name, "reason": reason})
    spent = round(time.perf_counter() - begin, 1)
    part = (PIECES | MORE)[name].part
    rows = [{"piece": name, "part": part, **judge(row), "piece_s": spent} for row in rows]
    if code:
        raise Ended(rows, code)
    return rows


def format_row(row: Row) -> str:
    """Return a row as one line."""
    if "reason" in row:
        return f"{row['piece']}: FAILED: {row['reason']}"
    if "skipped" in row:
        return f"{row['piece']}: skipped: {row['skipped']}"
    figures = {k: v for k, v in row.items() if k not in HIDDEN}
    line = f"{row['piece']}: " + ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()
    )
    return line + (f"; aim {format_aim(row['aim'])}" if "aim" in row else "")


def format_aim(aim: Row) -> str:
    """Return an aim in words, and whether it is met."""
    return f"{aim['of']} ≥ {aim['at_least']:g}: {'met' if aim['met'] else 'MISSED'}"


def show(rows: list[Row]) -> str:
    """Return the rows in Markdown: a table of runs side by side, a line for each other row, and the
    profiles."""
    head = (
        "device",
        "workload",
        "runs",
        "ms a round, all runs",
        "ms a run and round",
        "times two cores",
        "of the float32 peak",
        "peak, MiB",
        "aim",
    )
    wide = [r for r in rows if "share_of_peak" in r]
    cells = [
        (
            r["device"],
            r["name"],
            r["runs"],
            f"{r['ms_per_round']:.3g}",
            f"{r['ms_per_run_round']:.3g}",
            f"{r['times_two_cores']:.3g}" if "times_two_cores" in r else "–",
            f"{100 * r['share_of_peak']:.2g} %",
            f"{r.get('device_peak_mib', 0):.0f}",
            format_aim(r["aim"]) if "aim" in r else "–",
        )
        for r in wide
    ]
    lines = [markdown(head, cells), "", *(f"- {format_row(r)}" for r in rows if r not in wide)]
    for row in rows:
        if profile := row.get("profile"):
            lines += ["", *show_profile(f"{row['name']} × {row['runs']}", profile)]
    return "\n".join(lines)


def show_profile(name: str, profile: Row) -> list[str]:
    """Return the lines of a profile."""
    if not profile["kernels"]:
        return [f"{name}: the trace has no kernel."]
    gaps = profile["gaps"]
    head = (
        f"{name}: {profile['launches_per_step']:.1f} launches per local step, "
        f"{100 * profile['share_in_products']:.0f} % of the kernels' time in products, "
        f"{100 * gaps['share_of_span']:.0f} % of the time in gaps (median {gaps['median_us']:.1f} "
        f"µs, longest {gaps['longest_us']:.0f} µs)"
    )
    cells = [
        (f"`{each['name']}`", each["launches"], f"{each['ms']:.3g}", f"{100 * each['share']:.1f} %")
        for each in profile["kernels"]
    ]
    return [head, "", markdown(("kernel", "launches", "ms", "share"), cells)]


def measure(given: argparse.Namespace) -> int:
    """Measure the pieces that the file lacks."""
    begin = time.perf_counter()
    usual = REFERRED if given.reference else PIECES
    wanted = given.only.split(",") if given.only else list(usual)
    if unknown := [name for name in wanted if name not in PIECES | MORE]:
        raise SystemExit(f"--only {unknown[0]}: there are {', '.join(PIECES | MORE)}")
    rows, well = read_rows(given.json), True
    log_file = given.json.with_suffix(".log") if given.json else Path(os.devnull)
    log_file.parent.mkdir(parents=True, exist_ok=True)

    def add(name: str, new: list[Row]) -> None:
        nonlocal rows, well
        rows = [row for row in rows if row["piece"] != name] + new
        for row in new:
            print(format_row(row), flush=True)
            well = well and "reason" not in row and row.get("holds", True)
        write_rows(rows, given.json)

    with (
        tempfile.TemporaryDirectory(prefix="cfljax-accelerator-") as folder,
        log_file.open("a", encoding="utf-8") as log,
    ):
        for name in wanted:
            old = [row for row in rows if row["piece"] == name]
            if old and not any(word in row for word in AGAIN for row in old):
                continue
            left = given.seconds - (time.perf_counter() - begin) - GRACE
            if left <= 0:
                print(f"{given.seconds:.0f} s are over: the next start goes on with {name}")
                break
            most = SLOWLY if given.reference or given.small else (PIECES | MORE)[name].seconds
            try:
                new = run_piece(name, given, Path(folder), log, min(left, most))
            except Ended as ended:
                add(name, ended.rows)
                return ended.code
            add(name, new)
            if any("no accelerator" in row.get("reason", "") for row in new):
                break
    print(f"{time.perf_counter() - begin:.0f} s in all")
    return 0 if well else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="the file of results; it is resumed")
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz and cifar10.npz")
    parser.add_argument("--small", action="store_true", help="small sizes: does it run?")
    parser.add_argument(
        "--reference", action="store_true", help="measure a CPU, one run on all cores"
    )
    parser.add_argument("--only", default="", help="some pieces, separated by commas")
    parser.add_argument(
        "--seconds", type=float, help="end after this many seconds; default: 480, or no end"
    )
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print this file as Markdown; measure nothing"
    )
    given = parser.parse_args(arguments)
    if given.show is not None:
        print(show(read_rows(given.show)))
        return 0
    if given.seconds is None:
        given.seconds = float("inf") if given.reference else 480.0
    return measure(given)


if __name__ == "__main__":
    for each in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # so that the piece ends, too, and leaves the device
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # between two pieces
        sys.exit(130)
