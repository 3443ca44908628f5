"""Make every page again from the records, and say what differs; then run one number of each paper
again.

    CFLJAX_DATA=FOLDER python -m experiments
    python -m experiments --write            # write the pages, and run nothing

Exits with 1 where a page or a number differs, and with 2 where a run cannot be made."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from cfljax.errors import CfljaxError
from experiments import check
from experiments.replication import overview
from experiments.replication.pages import ALL, list_hours, made_of, read_sections, unused_figures

ROOT = Path(__file__).parent.parent
EVIDENCE = Path("docs", "evidence")
TABLE = re.compile(r"^\| paper \| decided \|.*?(?=^\n)", re.MULTILINE | re.DOTALL)
"""README's table of what reproduces."""
NUMBERS = {
    "FedGroup": "fedgroup_table3_mnist_mclr 2",
    "CFL-MGD": "rotated_mnist 2",
    "Joint gradient and loss": "joint_accuracy 2",
    "OCFL": "ocfl_fig4 1",
    "CCS + RFedAvg": "rfedavg_spread 9",
}
"""Of each paper a claim of which a run is made again."""


def pages(root: Path = ROOT) -> dict[Path, str]:
    """File -> its text, of all that is made from the records."""
    records = sorted(path for path in (root / "experiments" / "records").iterdir() if path.is_dir())
    page, sections = read_sections(records, [root / "experiments" / "published"])
    made = made_of(page, sections, f"../{EVIDENCE.as_posix()}/")
    found = {root / EVIDENCE / name: text for name, text in made.items() if name != ALL}
    found[root / "experiments" / "README.md"] = made[ALL]
    table = overview.what_reproduces(
        page, sections, f"{EVIDENCE.as_posix()}/{{file}}.md", list_hours(sections)
    )
    readme = (root / "README.md").read_text()
    found[root / "README.md"] = TABLE.sub(lambda _: f"{table}\n", readme)
    return found


def differing(found: dict[Path, str], root: Path = ROOT) -> list[Path]:
    """List the files that are not as the records have them, and figures that no page has."""
    names = {path.name: text for path, text in found.items()}
    return [
        *(path for path, text in found.items() if not path.is_file() or path.read_text() != text),
        *unused_figures(root / EVIDENCE, names),
    ]


def main(words: list[str] | None = None) -> int:
    """Run the command."""
    flags = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    flags.add_argument("--write", action="store_true", help="write the pages, and run nothing")
    given = flags.parse_args(words)
    try:
        found = pages()
    except CfljaxError as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2
    wrong = differing(found)
    if given.write:
        for path in wrong:
            if path in found:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(found[path])
            else:
                path.unlink()
    done = "written" if given.write else "differs from the records"
    print(
        "\n".join(f"{path.relative_to(ROOT)}: {done}" for path in wrong), end="\n" if wrong else ""
    )
    print(
        f"{len(found) - len(wrong)} of {len(found)} pages and figures are as the records have them"
    )
    if given.write:
        return 0
    ended = [1 if wrong else 0]
    for paper, code in NUMBERS.items():
        print(f"\n{paper}:", flush=True)
        ended.append(check.main([code]))
    return max(ended)


if __name__ == "__main__":
    sys.exit(main())
