"""The table of the page "Which method when", from a results folder: `python docs/which.py results/which`.

The spec is docs/which.toml. Accuracy is that of the last evaluation in per cent, mean and standard deviation over the seeds,
each client scored by the model of its own cluster; in brackets the mean adjusted Rand index against the true groups.
"""

import sys

import cfljax


def markdown(folder):
    """A row per method, a column per partition, and the bytes that a run sends."""
    results = cfljax.load(folder)
    frame = results.to_pandas()
    frame["partition"] = [results.records[run]["config"]["data"]["partition"] for run in frame["run"]]
    frame = frame[frame["status"] == "done"]
    partitions = list(dict.fromkeys(frame["partition"]))
    head = ["method", *(f"`{p}`" for p in partitions), "sent, MB"]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    for method in dict.fromkeys(frame["method"]):
        mine = frame[frame["method"] == method]
        cells = [_cell(mine[mine["partition"] == p]) for p in partitions]
        sent = (mine["bytes_up"] + mine["bytes_down"]).mean() / 1e6
        lines.append(f"| `{method}` | " + " | ".join(cells) + f" | {sent:.1f} |")
    return "\n".join(lines)


def _cell(runs):
    if not len(runs):
        return "–"
    accuracy, ari = 100 * runs["accuracy_last"], runs["ari_last"].mean()
    found = "" if ari != ari else f" ({ari:.2f})"
    return f"{accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f}{found}"


if __name__ == "__main__":
    print(markdown(sys.argv[1]))
