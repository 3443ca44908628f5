"""What scoring every client after each round costs, as a share of training, on W1 and W2. To hold: less than a tenth.

python -m benchmarks.evaluation --json FILE
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.inside import peak_rss_mib, time_rounds, use_all_cores
from benchmarks.measure import row, write_rows
from benchmarks.shared import data_folder
from benchmarks.workloads import WORKLOADS

BAR = 0.10


def measure(name: str, rounds: int, repeats: int, folder: Path) -> dict:
    """Runs that evaluate after each round and runs that do not, by turns; the shares are those of the medians."""
    workload = WORKLOADS[name]
    place, words = data_folder(workload, folder)
    totals: dict[bool, list[float]] = {True: [], False: []}
    compiled = 0.0
    for repeat in range(repeats + 1):
        for each in (False, True):
            table = workload.spec(rounds, place)
            table["train"]["eval_every"] = 1 if each else rounds
            timed = time_rounds(table, one_by_one=False)
            if repeat:  # the first pair compiles and warms up
                totals[each].append(timed.total)
            else:
                compiled += timed.output.seconds.compile
    with_, without = statistics.median(totals[True]), statistics.median(totals[False])
    per_evaluation = (with_ - without) / (rounds - 1)
    share = per_evaluation / (without / rounds)
    spread = [(a - b) / (rounds - 1) for a, b in zip(totals[True], totals[False], strict=True)]
    about = {"data": words, "rounds": rounds, "seconds_per_round": without / rounds}
    about |= {"share": share, "bar": BAR, "holds": share < BAR}
    return row(
        f"{name}-evaluation", "cfljax", about, median_s=per_evaluation, min_s=min(spread), max_s=max(spread),
        compile_s=compiled, peak_rss_mib=peak_rss_mib(), accuracy=float(timed.output.history["accuracy"][-1]),
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=lambda text: text.split(","), default=["W1", "W2"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given, rows = parser.parse_args(arguments), []
    use_all_cores()
    with tempfile.TemporaryDirectory(prefix="cfljax-evaluation-") as folder:
        for name in given.workloads:
            rows.append(measure(name, given.rounds, given.repeats, Path(folder)))
            about, cost = rows[-1]["about"], 1000 * rows[-1]["median_s"]
            verdict = "holds" if about["holds"] else "DOES NOT HOLD"
            print(f"{name}: {cost:.2f} ms per evaluation, {100 * about['share']:.1f} % of training: {verdict}", flush=True)
    write_rows(rows, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
