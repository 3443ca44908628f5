"""The code blocks of a page of the documentation, in order, and running them as a reader would.

`<!-- test: skip WHY -->` before a block leaves it out, `<!-- test: needs PACKAGE -->` skips it
where the package is not there. A block with `title="FILE"` becomes that file; one without a
language is text. Python blocks of a page share their names; shell lines may be `cfljax …` and
`python FILE …`, which are run in this process; a line that ends in a backslash goes on in the next.
"""

import importlib.util
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from cfljax.commands import cli

DOCS = Path(__file__).parents[1] / "docs"
FENCE = re.compile(
    r"(?:<!-- test: (?P<mark>[^>]*?) -->\n)?^```(?P<lang>\w*)(?: "
    r'title="(?P<title>[^"]+)")?[^\n]*\n(?P<text>.*?)^```$',
    re.M | re.S,
)

SEARCHED = """hyperparameter, personalized, installation, reproducibility, significance, random seed, communication cost,
label skew, feature skew, quantity skew, class imbalance, out of memory, confusion matrix, custom dataset, troubleshooting,
license, upgrade, early stopping, callback, pdf, warm start, number of clusters, my own method""".replace(
    "\n", " "
).split(", ")
"""What readers search for: the words are on some page."""


class Block(NamedTuple):
    lang: str
    title: str
    text: str
    mark: str
    line: int


def blocks(page):
    content = page.read_text()
    return [
        Block(
            m["lang"],
            m["title"] or "",
            m["text"],
            m["mark"] or "",
            content[: m.start()].count("\n") + 1,
        )
        for m in FENCE.finditer(content)
    ]


def skipped(block):
    what, _, rest = block.mark.partition(" ")
    if what == "needs":
        return importlib.util.find_spec(rest) is None
    return what == "skip"


def run(page, monkeypatch):
    """Run all blocks of the page in the current folder; how many."""
    names, count = {"__name__": "__docs__"}, 0
    for block in blocks(page):
        if skipped(block):
            continue
        where = f"{page.name}:{block.line}"
        if block.title:
            file = Path(block.title)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.lang == "python":
            exec(compile(block.text, where, "exec"), names)
        elif block.lang == "bash":
            for line in block.text.replace("\\\n", "").splitlines():
                shell(line, where, monkeypatch)
        elif block.lang == "toml":
            raise AssertionError(f"{where}: a spec without a title is never run")
        elif block.lang:
            raise AssertionError(f"{where}: nothing runs a block of {block.lang}")
        count += 1
    return count


def shell(line, where, monkeypatch):
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "cfljax":
        if words[1] == "sweep" and "--dry-run" not in words:
            words += ["--workers", "1", "--no-report", "--quiet"]
        assert cli.main(words[1:]) == 0, f"{where}: {line}"
    elif words[0] == "python":
        monkeypatch.setattr(sys, "argv", words[1:])
        runpy.run_path(words[1], run_name="__main__")
    else:
        raise AssertionError(f"{where}: {line}: only cfljax and python are run")
