"""On an accelerator: whether one kernel per client trains as XLA's kernels do, W1 to W4 both ways, a sweep of 32 seeds x 8 learning
rates of IFCA on W4's data, the server's kernels, and the device's measured peaks, in one JSON with the device's name.

    python -m benchmarks.accelerator --json benchmarks/results/DEVICE.json
    python -m benchmarks.accelerator --tiny        # the same on small sizes, anywhere
    python -m benchmarks.accelerator --show benchmarks/results/DEVICE.json

Each piece is a process of its own; this one never starts JAX. The file is written after each piece, and the same command again
goes on with the pieces that the file lacks of this kind of device. A piece that fails has a row with the `reason`; the next start
tries it again, last. What the processes say goes to DEVICE.log. Exit code 1: a piece has failed, or the two ways of training
disagree.

To hold: both ways agree to 1e-4; W4 at 30 % of the measured float32 matrix peak (TF32 off).
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
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.measure import row, write_rows
from benchmarks.measured import shown, way_of
from benchmarks.pieces import FULL, TINY, Given, Size
from benchmarks.two_ways import AGREEMENTS

ROOT = Path(__file__).parents[1]
PATIENCE = 1800
"""Seconds after which a piece is given up; none should take ten minutes."""
KERNELS = 5
"""Rows of `benchmarks.kernels`."""
Row = dict[str, Any]


class Failed(Exception):
    """A piece that has failed; the message is one line."""


class Piece(NamedTuple):
    """What one process measures."""

    name: str
    kernel: str = "auto"
    """Of a workload: its `train.plan.kernel`; "other": the way that "auto" does not take, if there is one."""


def pieces(size: Size, kernel: str) -> list[Piece]:
    """All of them, in their order."""
    both = ("auto", "other") if kernel == "both" else (kernel,)
    found = [*map(Piece, AGREEMENTS), *(Piece(name, way) for name in size.workloads for way in both), Piece("sweep")]
    return found if size == TINY else [*found, Piece("kernels")]


def chosen(all_of_them: list[Piece], only: str) -> list[Piece]:
    """Those that `--only` names; SystemExit where it names one that there is not."""
    names = list(dict.fromkeys(piece.name for piece in all_of_them))
    known = ["agreement", *names]
    wanted = only.split(",") if only else names
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--only {unknown[0]}: there are {', '.join(known)}")
    return [piece for piece in all_of_them if piece.name in wanted or (piece.name in AGREEMENTS and "agreement" in wanted)]


def key_of(piece: Piece, rows: list[Row], size: Size) -> tuple[str, str] | None:
    """(workload, system) of the piece's row; None: there is no other way of training this workload."""
    if piece.name == "sweep":
        return size.sweep_row, "cfljax"
    if piece.kernel == "auto":
        return piece.name, "cfljax"
    if piece.kernel != "other":
        return piece.name, f"cfljax-{piece.kernel}"
    measured = [r["about"] for r in rows if (r["workload"], r["system"]) == (piece.name, "cfljax") and "reason" not in r["about"]]
    other = measured[0].get("other") if measured else "xla"  # where "auto" has failed, XLA's kernels may do
    return None if other is None else (piece.name, f"cfljax-{other}")


def is_done(key: tuple[str, str], rows: list[Row]) -> bool:
    return any((r["workload"], r["system"]) == key and "reason" not in r["about"] for r in rows)


def put(rows: list[Row], new: Iterable[Row]) -> None:
    """The new rows in place of older ones of the same name and the same kind of device."""
    for each in new:
        rows[:] = [r for r in rows if _name(r) != _name(each)] + [each]


def _name(r: Row) -> tuple[Any, ...]:
    return r["workload"], r["system"], kind_of(r)


def kind_of(r: Row) -> str | None:
    """JAX's name of the device that the row is of."""
    kind: str | None = r["about"].get("machine", {}).get("kind")
    return kind


def process(command: list[str], log: IO[str] | None) -> None:
    """Carry out a command; Failed where it is killed, ends with an error, or takes too long. What it has started ends with it."""
    quiet = subprocess.DEVNULL if log is None else log
    child = subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=log, start_new_session=True)
    try:
        code = child.wait(PATIENCE)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"not done after {PATIENCE / 60:.0f} minutes") from None
        raise
    if code:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise Failed(f"its process ended {how}")


def carried_out(name: str, given: Given, folder: Path, log: IO[str] | None) -> Any:
    """What `benchmarks.pieces` makes of the piece, in a process of its own."""
    out = folder / "piece.json"
    process([sys.executable, "-m", "benchmarks.pieces", name, json.dumps(given._asdict()), str(out)], log)
    found = json.loads(out.read_text(encoding="utf-8"))
    if isinstance(found, dict) and "reason" in found:
        raise Failed(found["reason"])
    return found


def kernels(file: Path, peak: Row, log: IO[str] | None) -> str:
    """`benchmarks.kernels` writes rows of its own, beside ours, without the peers, which compute on the host."""
    if _kernels_of(file) == [peak["device"]] * KERNELS:
        return f"kernels: {file}"
    process([sys.executable, "-m", "benchmarks.kernels", "--no-peers", "--json", str(file.resolve())], log)
    strange = [device for device in _kernels_of(file) if device != peak["device"]]
    if strange:
        raise Failed(f"JAX computed on {strange[0]}, not on {peak['device']}: has another process the device?")
    return f"kernels: {file}"


def _kernels_of(file: Path) -> list[str]:
    """The devices of the rows in that file."""
    return [r["machine"]["device"] for r in json.loads(file.read_text(encoding="utf-8"))] if file.is_file() else []


def said(r: Row) -> str:
    """A row in a line."""
    name, about = r["workload"], r["about"]
    if "reason" in about:
        return f"{name}, {r['system']}: FAILED: {about['reason']}"
    if "one_kernel" in about:
        if not about["one_kernel"]:
            return f"{name}: there is no such kernel here: {about['why']}"
        verdict = "holds" if about["holds"] else "DOES NOT HOLD"
        return f"{name}: one kernel per client is {about['error']:.2g} from XLA's kernels, at most {about['bar']:g}: {verdict}"
    if "ratio" in about:
        foretold = about["predicted_ratio"]
        predicted = "" if foretold is None else f" (predicted {foretold:.3g})"
        times = f"{about['runs']} runs in {about['ratio']:.3g} times the time of one{predicted}"
        halved = f", {about['halved']} batches cut into halves" if about["halved"] else ""
        return f"{times}, {about['side_by_side']} side by side{halved}"
    predicted = "" if about["predicted_s"] is None else f", predicted {1000 * about['predicted_s']:.3g}"
    times = f"{1000 * r['median_s']:.3g} ms per round one by one, {1000 * about['chunk_s']:.3g} in a chunk{predicted}"
    return f"{name}, {way_of(about)}: {times}; {100 * about['share_of_peak']:.3g} % of the matrix peak"


def go_through(todo: list[Piece], rows: list[Row], given: argparse.Namespace, peak: Row, log: IO[str] | None) -> bool:
    """Measure what is not done; whether all has gone well."""
    size, well = TINY if given.tiny else FULL, True
    mine = [r for r in rows if kind_of(r) == peak["kind"]]
    failed = {r["workload"] for r in mine if "reason" in r["about"]}
    name_of = {"sweep": size.sweep_row}
    with tempfile.TemporaryDirectory(prefix="cfljax-accelerator-") as folder:
        for piece in sorted(todo, key=lambda p: name_of.get(p.name, p.name) in failed):
            mine = [r for r in rows if kind_of(r) == peak["kind"]]
            key = key_of(piece, mine, size)
            if key is None or is_done(key, mine):
                continue
            try:
                if piece.name == "kernels":
                    print(kernels(given.json.with_name(f"{given.json.stem}-kernels.json"), peak, log), flush=True)
                    rows[:] = [r for r in rows if _name(r)[::2] != ("kernels", peak["kind"])]
                    continue
                told = Given(given.tiny, piece.kernel if key[1] == "cfljax" else key[1].removeprefix("cfljax-"), folder, peak)
                put(rows, made := carried_out(piece.name, told, Path(folder), log))
            except Failed as error:
                put(rows, made := [row(*key, {"machine": peak, "reason": str(error)})])
            print(said(made[0]), flush=True)
            well = well and "reason" not in made[0]["about"]
            write_rows(rows, given.json)
    return well


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="rows of this device are added to this file")
    parser.add_argument("--tiny", action="store_true", help="small sizes, without kernels: does it run?")
    parser.add_argument("--only", default="", help="some of agreement, W1, W2, W3, W4, sweep, kernels")
    parser.add_argument("--kernel", default="both", choices=("both", "auto", "xla", "pallas"), help="how W1 to W4 are trained")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the rows of this file as Markdown; measure nothing")
    given = parser.parse_args(arguments)
    if given.show is not None:
        print(shown(json.loads(given.show.read_text(encoding="utf-8")), said))
        return 0
    begin, todo = time.perf_counter(), chosen(pieces(TINY if given.tiny else FULL, given.kernel), given.only)
    if given.json is None:
        todo = [piece for piece in todo if piece.name != "kernels"]  # it has a file of its own beside that
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cfljax-accelerator-")))
        log = None
        if given.json is not None:
            given.json.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(given.json.with_suffix(".log").open("a", encoding="utf-8"))
        try:
            peak = carried_out("peaks", Given(given.tiny, "auto", str(folder), {}), folder, log)
        except Failed as error:
            print(f"the device's peaks: FAILED: {error}")
            return 1
        if peak["platform"] == "cpu" and not given.tiny:
            print("JAX computes on a CPU here, and nothing was measured: give --tiny, or see docs/colab.md")
            return 1
        about = f"{peak['flops'] / 1e12:.3g} TFLOP/s float32, {peak['copy_bytes_per_s'] / 1e9:.3g} GB/s"
        print(f"{peak['kind']}: {about}", flush=True)
        there = given.json is not None and given.json.is_file()
        rows = json.loads(given.json.read_text(encoding="utf-8")) if there else []
        well = go_through(todo, rows, given, peak, log)
    wrong = [r["workload"] for r in rows if kind_of(r) == peak["kind"] and r["about"].get("holds") is False]
    print(f"{time.perf_counter() - begin:.0f} s in all" + (f"; DOES NOT HOLD: {', '.join(wrong)}" if wrong else ""))
    return 0 if well and not wrong else 1


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGHUP):  # so that the piece ends, too, and leaves the device
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
