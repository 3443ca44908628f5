"""The table of the page "Simulated time", from a results folder: `python docs/clock.py
results/time`.

The spec is experiments/time.toml. Mean and standard deviation over the seeds.
"""

import sys

import cfljax
from cfljax.results.statistics import mean_and_deviation

TARGET = 0.9


def markdown(folder):
    """Make the table."""
    results = cfljax.load(folder, target=TARGET)
    rows = [
        [
            "method",
            "deadline",
            "accuracy, %",
            "worst tenth, %",
            "rounds to 90 %",
            "seconds to 90 %",
            "seconds",
            "late, %",
        ]
    ]
    groups = {}
    for run in results:
        groups.setdefault((run.label, run.config["train"]["clock"].get("deadline_s")), []).append(
            run
        )
    for (label, deadline), runs in groups.items():
        rows.append([f"`{label}`", "none" if deadline is None else f"{deadline} s", *_cells(runs)])
    return "\n".join(
        f"| {' | '.join(row)} |" for row in [*rows[:1], ["---"] * len(rows[0]), *rows[1:]]
    )


def _cells(runs):
    percent = [
        [100 * run.summary[name] for run in runs]
        for name in ("accuracy_last10", "accuracy_worst10")
    ]
    reached = [
        [run.summary[name] for run in runs if run.summary[name] is not None]
        for name in ("round_to_target", "clock_to_target")
    ]
    many = "" if len(reached[0]) in (0, len(runs)) else f" ({len(reached[0])} of {len(runs)})"
    clock = mean_and_deviation(run.summary["clock_s"] for run in runs)[0]
    late = [
        _late(run) for run in runs if "late" in run.history and run.method != "ocfl"
    ]  # it draws others than the options say
    return [
        *map(_number, percent),
        *(_number(each) + many for each in reached),
        f"{clock:.1f}",
        _number(late),
    ]


def _late(run):
    """Per cent of those who were drawn."""
    train, data = run.config["train"], run.config["data"]
    return (
        100
        * float(run.history["late"][-1])
        / (train["rounds"] * round(train["participation"] * data["clients"]))
    )


def _number(values):
    mean, deviation = mean_and_deviation(values)
    if not values:
        return "–"
    return f"{mean:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


if __name__ == "__main__":
    print(markdown(sys.argv[1]))
