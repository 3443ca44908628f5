"""The tables of the page "Which method when", from results folders: `python docs/which.py
results/which`.

The spec is docs/which.toml. Accuracy is that on the test samples at the evaluation with the best
validation accuracy (without a validation part, at the last one), in per cent, mean and standard
deviation over the seeds, each client scored by its own model; in brackets the mean adjusted Rand
index against the true groups.
"""

import sys

import cfljax


def markdown(folders):
    """Make a row per method, a column per partition, and the bytes that a run sends."""
    runs = [
        record
        for folder in folders
        for record in cfljax.load(folder).records.values()
        if record["status"] == "done"
    ]
    partitions = list(dict.fromkeys(run["config"]["data"]["partition"] for run in runs))
    lines = [
        " | ".join(["| method", *(f"`{p}`" for p in partitions), "sent, MB |"]),
        "| --- " * (len(partitions) + 2) + "|",
    ]
    for method in dict.fromkeys(run["label"] for run in runs):
        mine = [run for run in runs if run["label"] == method]
        cells = [
            _cell([run["summary"] for run in mine if run["config"]["data"]["partition"] == p])
            for p in partitions
        ]
        sent = (
            sum(run["summary"]["bytes_up"] + run["summary"]["bytes_down"] for run in mine)
            / len(mine)
            / 1e6
        )
        lines.append(f"| `{method}` | " + " | ".join(cells) + f" | {sent:.1f} |")
    return "\n".join(lines)


def _cell(summaries):
    if not summaries:
        return "–"
    accuracy = [100 * each.get("accuracy_at_best_val", each["accuracy_last"]) for each in summaries]
    mean = sum(accuracy) / len(accuracy)
    spread = (sum((a - mean) ** 2 for a in accuracy) / max(len(accuracy) - 1, 1)) ** 0.5
    index = [
        each["ari_last"] for each in summaries if each["ari_last"] == each["ari_last"]
    ]  # not without true groups
    return f"{mean:.1f} ± {spread:.1f}" + (f" ({sum(index) / len(index):.2f})" if index else "")


if __name__ == "__main__":
    print(markdown(sys.argv[1:]))
