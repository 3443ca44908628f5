"""The table of docs/reliability.md, from the JSON files that the drills have written: `python -m
drills.table`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from drills.common import RESULTS, ROOT

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- measured: python -m drills.table -->", "<!-- end -->"


def rows(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The results there are, in the order of the figures."""
    found = [json.loads(path.read_text()) | {"name": path.stem} for path in folder.glob("*.json")]
    return sorted(found, key=lambda row: (int(re.sub(r"\D", "", row["figure"]) or 99), row["name"]))


def measured(row: dict[str, Any]) -> str:
    """What came out, failures first."""
    text = f"{row['tried']:,} tried, {row['failed']} failed"
    facts = [f"{name} {value:.2g}" for name, value in sorted(row["worst"].items())]
    return text + ("; " + ", ".join(facts) if facts else "")


def short(command: str) -> str:
    """The command without the seeds and sizes of its parts."""
    return f"`{command.split(' --')[0]}`"


def table(found: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| what is tried | what must hold | measured | command |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {r['what']} | {r['bar']} | {measured(r)} | {short(r['command'])} |" for r in found
    ]
    lines += ["", *failures(found), *machines(found)]
    return "\n".join(lines)


def failures(found: list[dict[str, Any]]) -> list[str]:
    """What failed, in words."""
    bad = [row for row in found if row["failed"]]
    return [f"Figure {row['figure']}, for example: {row['failures'][0][:300]}" for row in bad] + (
        [""] if bad else []
    )


def machines(found: list[dict[str, Any]]) -> list[str]:
    """What all was measured on."""
    texts = []
    for row in found:
        m = row["machine"]
        texts.append(f"{m['processor']}, {m['cores']} cores, Python {m['python']}, JAX {m['jax']}")
    return ["Measured on " + "; ".join(dict.fromkeys(texts)) + "."] if texts else []


def main() -> int:
    """Write the table into the page, between its two marks."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table(rows())}\n{END}{tail}")
    print(f"{len(rows())} figures in {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
