"""The tables of the page "Privacy, compression, attackers", from a results folder: `python
docs/touches.py results/touches`.

The spec is docs/touches.toml. Accuracy is that of the last evaluation in per cent, of the honest
clients, mean and standard deviation over the seeds.
"""

import sys

import cfljax


def markdown(folder):
    """Make the four tables."""
    results = cfljax.load(folder)
    frame = results.to_pandas()
    for name in ("attack", "robust", "compress", "privacy"):
        frame[name] = [results.records[run]["config"]["train"].get(name) for run in frame["run"]]
    lied = frame[frame["attack"].notna()].copy()
    lied["lie"] = [
        f"{a['name']}, {a['share']:.0%}" if a["share"] else "nobody attacks" for a in lied["attack"]
    ]
    lied["rule"] = [r["name"] if isinstance(r, dict) else "mean" for r in lied["robust"]]
    rest = frame[frame["attack"].isna()]
    sent = rest[rest["privacy"].isna()].copy()
    sent["way"] = [_way(c) for c in sent["compress"]]
    private = rest[rest["privacy"].notna()].copy()
    private["noise"] = [p["noise"] for p in private["privacy"]]
    chance = private[private["method"] == "ifca"].copy()
    chance["choice"] = [p.get("choice", {}).get("epsilon", "none") for p in chance["privacy"]]
    return "\n\n".join(
        [
            _liars(lied),
            _sent(sent),
            _private(private[private["method"] == "fedavg"]),
            _chosen(chance),
        ]
    )


def _liars(frame):
    rules = list(dict.fromkeys(frame["rule"]))
    rows = [["method", "attackers", *rules]]
    for (method, lie), mine in frame.groupby(["method", "lie"], sort=False):
        rows.append(
            [f"`{method}`", lie, *(_accuracy(mine[mine["rule"] == rule]) for rule in rules)]
        )
    return _table(rows)


def _sent(frame):
    ways = frame.groupby("way", sort=False)
    rows = [
        [f"`{way}`", _accuracy(mine), f"{mine['bytes_up'].mean() / 1e6:.2f}"] for way, mine in ways
    ]
    return _table([["`compress`", "accuracy", "sent up, MB"], *rows])


def _private(frame):
    noises = frame.groupby("noise", sort=False)
    rows = [
        [str(noise), _accuracy(mine), f"{mine['epsilon'].mean():.1f}"] for noise, mine in noises
    ]
    return _table([["`noise` (clip 1)", "accuracy", "ε for δ = 1e-5"], *rows]).replace("nan", "–")


def _chosen(frame):
    rows = []
    for epsilon, mine in frame.groupby("choice", sort=False):
        ari = f"{mine['ari_last'].mean():.2f} ± {mine['ari_last'].std(ddof=1):.2f}"
        rows.append([str(epsilon), _accuracy(mine), ari, f"{mine['epsilon_choice'].mean():.0f}"])
    return _table(
        [["ε of a choice", "accuracy", "ARI", "ε of all twenty, δ = 1e-5"], *rows]
    ).replace("nan", "–")


def _way(table):
    if not isinstance(table, dict):
        return "none"
    kept = f", keep {table['keep']:g}" if "keep" in table else ""
    return table["name"] + kept + (", feedback" if table.get("feedback") else "")


def _accuracy(runs):
    accuracy = 100 * runs["accuracy_last"]
    return f"{accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f}"


def _table(rows):
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *rest])


if __name__ == "__main__":
    print(markdown(sys.argv[1]))
