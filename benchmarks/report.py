"""The table and the plot of measured rows.

python -m benchmarks.report benchmarks/results/*.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

NAMES = {
    "torch": "PyTorch, plain loop",
    "torch-lean": "PyTorch, lean",
    "fedjax": "FedJAX (release, jax 0.5)",
    "fedjax-new": "FedJAX (release, jax 0.10)",
    "pfl": "pfl-research",
    "flower": "Flower",
    "floor": "floor: real operations at the machine's peak",
}


def read(files: list[Path]) -> list[dict[str, Any]]:
    """The rows of comparisons in these files."""
    rows = []
    for file in files:
        content = json.loads(file.read_text())
        if not isinstance(content, list):
            raise SystemExit(f"{file}: is no list of rows")
        rows += [
            r for r in content if isinstance(r, dict) and "median_s" in r and r.get("workload")
        ]
    return rows


def seconds(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return "–"
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, one table per workload: seconds per round, how many times as long as cfljax,
    compile time, memory, accuracy."""
    parts = []
    for workload in dict.fromkeys(r["workload"] for r in rows):
        mine = [r for r in rows if r["workload"] == workload]
        own = next((r["median_s"] for r in mine if r["system"] == "cfljax"), None)
        lines = [
            f"| {workload} | per round (min – max) | × cfljax | compile | peak memory | accuracy |",
            "| --- " * 6 + "|",
        ]
        lines += [_line(r, own) for r in mine]
        notes = [f"{NAMES.get(r['system'], r['system'])}: {_note(r)}" for r in mine if _note(r)]
        parts.append("\n".join(lines) + ("\n\n" + "\n".join(notes) if notes else ""))
    return "\n\n".join(parts)


def _line(r: dict[str, Any], own: float | None) -> str:
    name, median = NAMES.get(r["system"], r["system"]), r["median_s"]
    if median is None:
        return f"| {name} | not measured | – | – | – | – |"
    times = "–" if own is None else f"{median / own:.3g}"
    memory = "–" if r["peak_rss_mib"] is None else f"{r['peak_rss_mib']:,.0f} MiB"
    accuracy = "–" if r["accuracy"] is None else f"{100 * r['accuracy']:.1f} %"
    spread = f"{seconds(median)} ({seconds(r['min_s'])} – {seconds(r['max_s'])})"
    return f"| {name} | {spread} | {times} | {seconds(r['compile_s'])} | {memory} | {accuracy} |"


def _note(r: dict[str, Any]) -> str:
    about = r.get("about", {})
    if "reason" in about:
        return f"not measured: {about['reason']}"
    if "newest_source" in about:
        times = about["newest_source"]["times_faster_than_release"]
        return (
            f"its newest source was {times} times faster than this release, measured once and "
            "not in this run"
        )
    return ""


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Bars on a logarithmic scale, the floor drawn across them; PNG and SVG."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    workloads = list(dict.fromkeys(r["workload"] for r in rows))
    systems = [s for s in dict.fromkeys(r["system"] for r in rows) if s != "floor"]
    figure, axes = plt.subplots(
        1, len(workloads), figsize=(1.2 + 2.6 * len(workloads), 3.6), squeeze=False
    )
    colours = {
        s: "tab:blue" if s == "cfljax" else f"{0.35 + 0.5 * i / max(len(systems), 1):.2f}"
        for i, s in enumerate(systems)
    }
    for ax, workload in zip(axes[0], workloads, strict=True):
        mine = {r["system"]: r for r in rows if r["workload"] == workload and r["median_s"]}
        there = [s for s in systems if s in mine]
        for at, s in enumerate(there):
            r = mine[s]
            spread = [[r["median_s"] - r["min_s"]], [r["max_s"] - r["median_s"]]]
            ax.bar(at, r["median_s"], color=colours[s], yerr=spread, ecolor="0.2", capsize=2)
            words = {
                "ha": "center",
                "va": "bottom",
                "fontsize": 7,
                "xytext": (0, 2),
                "textcoords": "offset points",
            }
            words["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
            ax.annotate(seconds(r["median_s"]), (at, r["max_s"]), **words)
        if "floor" in mine:
            level, right = mine["floor"]["median_s"], ("axes fraction", "data")
            ax.axhline(level, color="tab:red", linestyle="--", linewidth=1)
            ax.annotate(
                "floor",
                (1, level),
                xycoords=right,
                color="tab:red",
                fontsize=7,
                ha="right",
                va="bottom",
            )
        ax.set_yscale("log")
        ax.tick_params(axis="y", which="minor", labelsize=6)
        ax.margins(y=0.15)
        ax.set_title(workload, fontsize=10)
        ax.set_xticks(range(len(there)), there, rotation=40, ha="right", fontsize=8)
        ax.tick_params(axis="y", labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("seconds per round", fontsize=8)
    figure.tight_layout()
    for suffix in (".png", ".svg"):
        figure.savefig(file.with_suffix(suffix), dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument(
        "--out", type=Path, help="folder of table and plots; default: beside the first file"
    )
    given = parser.parse_args(arguments)
    for file in given.files:
        rows = [r for r in read([file]) if r["workload"].startswith(("W", "toy"))]
        if not rows:
            continue
        folder = given.out or file.parent
        folder.mkdir(parents=True, exist_ok=True)
        plot(rows, folder / file.stem)
        (folder / f"{file.stem}.md").write_text(table(rows) + "\n")
        print(f"{file}\n\n{table(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
