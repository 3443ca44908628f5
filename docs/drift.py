"""The table of "Groups that change", from a results folder: `python docs/drift.py
results/groups-that-change`.

The spec is experiments/drift.toml. Each cell: `accuracy_in_drift` in per cent, mean and standard
deviation over the seeds; means of `ari_in_drift`, and of `recovery_rounds` over the runs that have
recovered, with their number where it is not all.
"""

import sys

import cfljax
from cfljax.results.statistics import mean_and_deviation

KINDS = ("sudden", "incremental", "recurrent")


def markdown(folder):
    """Make the table."""
    groups = {}
    for run in cfljax.load(folder):
        if run.status == "done":
            groups.setdefault(run.label, {}).setdefault(
                run.config["data"]["drift"]["kind"], []
            ).append(run.summary)
    kinds = [kind for kind in KINDS if any(kind in of_kind for of_kind in groups.values())]
    rows = [
        [f"`{label}`", *(_cell(of_kind[kind]) for kind in kinds)]
        for label, of_kind in groups.items()
    ]
    table = [["method", *kinds], ["---"] * (1 + len(kinds)), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _cell(runs):
    accuracy, deviation = mean_and_deviation(100 * run["accuracy_in_drift"] for run in runs)
    ari = mean_and_deviation(run["ari_in_drift"] for run in runs)[0]
    spread = "" if deviation is None else f" ± {deviation:.1f}"
    return (
        f"{accuracy:.1f}{spread} · {ari:.2f} · "
        f"{_recovery([run['recovery_rounds'] for run in runs])}"
    )


def _recovery(rounds):
    known = [each for each in rounds if each is not None]
    if not known:
        return "never"
    return f"{mean_and_deviation(known)[0]:.1f}" + (
        "" if len(known) == len(rounds) else f" ({len(known)} of {len(rounds)})"
    )


if __name__ == "__main__":
    print(markdown(sys.argv[1]))
