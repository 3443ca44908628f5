"""Plain English: words and phrases that readers had to read twice, and what to write in their place.

They are looked for in the pages, in README, and in all docstrings, comments, help and errors of the package and its tools.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RETIRED = {
    r"so many\b(?! that\b)": "the number: `this number of`, or its name",
    r"by heart": "`stored`, or what is meant",
    r"at hand": "`available`, or who has it",
    r"places? to spare": "padding",
    r"looked at": "`read`, `measured`, `compared`",
    r"liars?(?![\w\"`=.:])(?! =)": "attackers",
    r"one that raises": "a failed run",
    r"fits nobody": "may serve none of them well",
    r"those that take longest first": "the longest jobs first",
    r"happens? to part": "what is meant: `splits at random`",
    r"(counted|\d+|two|twelve) turns\b": "repetitions",
    r"is told a number": "gets a number",
    r"nobody lies": "nobody attacks",
    r"\blied about": "falsified",
}
"""Pattern -> what to write."""
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.py")),
    *(path for folder in ("cfljax", "benchmarks", "drills") for path in sorted((ROOT / folder).rglob("*.py"))),
    *sorted((ROOT / "cfljax").rglob("*.toml")),
    *sorted((ROOT / "cfljax").rglob("*.js")),
]


def retired(text):
    """(line number, what is written, what to write) of each retired word; a phrase may go over the end of a line."""
    flat = re.sub(r"\s", " ", re.sub(r"\n\s*(#|//)? ?", lambda end: " " * len(end[0]), text))
    found = []
    for pattern, better in RETIRED.items():
        spaced = pattern.replace(" ", r"\s+")
        found += [(text[: at.start()].count("\n") + 1, at[0], better) for at in re.finditer(rf"(?i)(?<![\w\"`]){spaced}", flat)]
    return sorted(found)


@pytest.mark.parametrize("folder", ["pages", "package"])
def test_no_retired_word_is_used(folder):
    chosen = [path for path in TEXTS if (path.suffix == ".md") == (folder == "pages")]
    assert len(chosen) > 20
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}: write {better}"
        for path in chosen
        for line, word, better in retired(path.read_text())
    ]
    assert bad == []


def test_a_retired_word_is_found_over_the_end_of_a_line_and_an_option_is_none():
    assert [line for line, *_ in retired("One\n# of so\n#    many clients\n")] == [2]
    assert retired('liars = 0.2, `liars`, "liars", liars=0.1, so many that') == []
    assert len(retired("Liars lie. A liar, at hand; looked at by heart")) == 5
