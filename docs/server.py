"""The table of "Servers that do more than average", from a results folder: `python docs/server.py
results/server`.

The spec is docs/server.toml. Of the rates of a server the one counts that has the best validation
accuracy after the last round, mean of the seeds. Its accuracy on test data is shown, mean and
standard deviation over the seeds, in per cent; in brackets the mean accuracy of each rate.
"""

import sys

import cfljax


def markdown(folder):
    """Make a row per server."""
    results = cfljax.load(folder)
    frame = results.to_pandas()
    servers = [
        results.records[run]["config"]["train"].get("server", {"name": "none", "lr": 0.0})
        for run in frame["run"]
    ]
    frame["server"], frame["rate"] = [s["name"] for s in servers], [s["lr"] for s in servers]
    last = results.history().sort_values("round").groupby("run").last()
    for name in ("accuracy", "val_accuracy"):
        frame[name] = [100 * last[name][run] for run in frame["run"]]
    rows = [["`train.server`", "tried `lr` (accuracy)", "chosen", "validation", "accuracy"]]
    for name, mine in frame.groupby("server", sort=False):
        rates = mine.groupby("rate")
        best = rates["val_accuracy"].mean().idxmax()
        chosen = rates.get_group(best)
        each = ", ".join(
            f"{rate:g} ({accuracy:.1f})" for rate, accuracy in rates["accuracy"].mean().items()
        )
        told = ["–", "–"] if name == "none" else [each, f"{best:g}"]
        rows.append(
            [
                f"`{name}`",
                *told,
                *(_percent(chosen[column]) for column in ("val_accuracy", "accuracy")),
            ]
        )
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *rest])


def _percent(runs):
    return f"{runs.mean():.1f} ± {runs.std(ddof=1):.1f}"


if __name__ == "__main__":
    print(markdown(sys.argv[1]))
