"""The documentation is true: its code runs, its examples are short, its numbers are those of their scripts."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from tests.docs import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
RUN = [page for page in PAGES if any(b.lang and not blocks.skipped(b) for b in blocks.blocks(page))]
SLOW = {"clock.md", "index.md", "own.md", "results.md", "tools.md", "touches.md", "tutorial.md", "which.md"}
"""Pages that take more than some seconds; `pytest -m long tests/docs`."""


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder to work in, with the files that the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("cfljax.commands.process._end_soon_after_signals", lambda: None)
    lines = ["age,pulse,hospital,sick", *(f"{20 + i % 50},{60 + i % 37},{'NSEW'[i % 4]},{'yn'[i % 3 == 0]}" for i in range(80))]
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    return monkeypatch


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.long if p.name in SLOW else ()) for p in RUN], ids=lambda p: p.stem
)
def test_every_block_of_the_page_runs(page, reader):
    assert blocks.run(page, reader) > 0


def test_the_own_method_of_the_page_runs(reader):
    """The one example that each run of the tests carries out from the page on own things; the others are `long`."""
    page = {b.title: b.text for b in blocks.blocks(DOCS / "own.md") if b.title}
    for name in ("my_method.py", "median.toml"):
        Path(name).write_text(page[name])
    blocks.shell("cfljax sweep median.toml --out r --set method=median --set train.rounds=1", "own.md", reader)


@pytest.mark.parametrize("title", [b.title for b in blocks.blocks(DOCS / "own.md") if b.title.endswith(".py")])
def test_examples_are_short_and_complete(title):
    text = next(b.text for b in blocks.blocks(DOCS / "own.md") if b.title == title)
    assert len(text.splitlines()) < 40 and "import cfljax" in text
    compile(text, title, "exec")


def test_every_block_is_run_or_says_why_not():
    for page in PAGES:
        for block in blocks.blocks(page):
            assert not block.mark or re.fullmatch(r"(skip|needs) .+", block.mark), f"{page.name}:{block.line}"


def test_the_numbers_of_the_theory_page_are_those_of_its_script():
    assert runpy.run_path(str(DOCS / "bound.py"))["markdown"]() in (DOCS / "theory.md").read_text()


def test_the_navigation_and_every_link_lead_somewhere():
    named = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert named and all((DOCS / name).exists() for name in named)
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (DOCS / target).exists(), f"{page.name}: {target}"


def test_nothing_is_asked_of_foreign_hosts():
    assert "font: false" in (ROOT / "mkdocs.yml").read_text()
    assert not [p.name for p in PAGES if re.search(r"<(script|img|link)[^>]+https?:", p.read_text())]


def test_the_script_of_the_comparison_page_makes_its_table(tmp_path):
    from tests.report import synthetic

    synthetic.sweep(tmp_path / "r")
    table = runpy.run_path(str(DOCS / "which.py"))["markdown"]([tmp_path / "r"])
    assert table.splitlines()[0] == "| method | `rotated` | sent, MB |" and table.count("\n| `") == 3


@pytest.mark.long
def test_the_script_of_the_servers_makes_its_table(tmp_path):
    import cfljax

    spec = tomllib.loads((DOCS / "server.toml").read_text())
    spec["data"]["clients"], spec["model"], spec["seeds"] = 5, "mclr", [0, 1]
    spec["train"] |= {"rounds": 1, "eval_every": 1, "server": ["none", {"name": "adam", "lr": [0.1, 0.0]}]}
    cfljax.sweep(spec, out=tmp_path / "r")
    head, _, plain, adam = runpy.run_path(str(DOCS / "server.py"))["markdown"](tmp_path / "r").splitlines()
    assert head == "| `train.server` | tried `lr` (accuracy) | chosen | validation | accuracy |"
    assert plain.startswith("| `none` | – | – | ")
    assert re.match(r"\| `adam` \| 0 \([\d.]+\), 0.1 \(([\d.]+)\) \| 0.1 \| .* \| \1 ±", adam)
