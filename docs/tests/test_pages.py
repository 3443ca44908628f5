"""The documentation is true: its code runs, its examples are whole, its numbers are those of their
scripts."""

import dataclasses
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from cfljax.commands.sweep import parser
from cfljax.config.data import DataOptions
from cfljax.config.read import read_spec
from cfljax.config.train import Train
from cfljax.engine.metrics import RESERVED_NAMES
from cfljax.methods import METHODS, find_about
from cfljax.report.figures import FIGURES
from cfljax.results.frames import CURVES
from tests import blocks
from tests.blocks import DOCS

ROOT = Path(__file__).parents[2]
PAGES = sorted(DOCS.glob("*.md"))
RUN = [page for page in PAGES if any(b.lang and not blocks.skipped(b) for b in blocks.blocks(page))]
hooks, pages = (
    SimpleNamespace(**runpy.run_path(str(DOCS / name))) for name in ("hooks.py", "pages.py")
)
QUICK = {"scale.md"}
"""Pages whose code takes a few seconds. The others: `pytest -m long docs`."""


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder to work in, with the files that the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "data"))
    lines = [
        "age,pulse,hospital,sick",
        *(f"{20 + i % 50},{60 + i % 37},{'NSEW'[i % 4]},{'yn'[i % 3 == 0]}" for i in range(80)),
    ]
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    return monkeypatch


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=() if p.name in QUICK else pytest.mark.rare) for p in RUN],
    ids=lambda p: p.stem,
)
def test_every_block_of_the_page_runs(page, reader):
    assert blocks.run(page, reader) > 0


def test_the_own_method_of_the_page_runs(reader):
    """The one example that each run of the tests carries out from the page on own things; the
    others are `long`."""
    page = {b.title: b.text for b in blocks.blocks(DOCS / "own.md") if b.title}
    for name in ("my_method.py", "median.toml"):
        Path(name).write_text(page[name])
    blocks.shell(
        "cfljax sweep median.toml --out r --set method=median --set train.rounds=1",
        "own.md",
        reader,
    )


def test_the_first_method_of_the_page_prints_what_is_shown(reader, capsys):
    """Other processors compute other last digits."""
    method, command, shown = blocks.blocks(DOCS / "own.md")[:3]
    Path(method.title).write_text(method.text)
    blocks.shell(command.text.replace("\\\n", ""), "own.md", reader)
    printed = capsys.readouterr().out.splitlines()
    head, *rows, last = shown.text.splitlines()
    assert printed[0] == head and len(printed) == len(rows) + 2
    for row, found in zip(rows, printed[1:-1], strict=True):
        assert [*map(float, found.split())] == pytest.approx([*map(float, row.split())], abs=0.02)
    assert printed[-1].partition("accuracy")[0] == last.partition("accuracy")[0]


@pytest.mark.parametrize(
    "title", [b.title for b in blocks.blocks(DOCS / "own.md") if b.title.endswith(".py")]
)
def test_examples_are_complete(title):
    text = next(b.text for b in blocks.blocks(DOCS / "own.md") if b.title == title)
    assert "import cfljax" in text
    compile(text, title, "exec")


def test_every_block_is_run_or_says_why_not():
    for page in PAGES:
        for block in blocks.blocks(page):
            assert not block.mark or re.fullmatch(r"(skip|needs) .+", block.mark), (
                f"{page.name}:{block.line}"
            )


def test_the_numbers_of_the_theory_page_are_those_of_its_script():
    assert runpy.run_path(str(DOCS / "bound.py"))["markdown"]() in (DOCS / "theory.md").read_text()


def test_the_navigation_and_every_link_lead_somewhere():
    inside = {*hooks.PAGES, *hooks.PICTURES}
    named = set(re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    written = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
    assert named == {*written, *hooks.PAGES}
    for name, text in (written | {name: hooks.text(name) for name in hooks.PAGES}).items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert target in inside or (DOCS / name).parent.joinpath(target).exists(), (
                f"{name}: {target}"
            )


def test_the_reference_pages_are_those_that_the_code_writes():
    for name, page in pages.PAGES.items():
        assert (DOCS / name).read_text() == page().rstrip() + "\n", (
            f"run `python docs/pages.py` ({name})"
        )


def test_every_table_of_a_spec_has_its_keys_on_the_page():
    """A table that the package reads and the page leaves out would be found here: every class of
    options in `config`."""
    classes = set()
    for path in (ROOT / "cfljax" / "config").glob("*.py"):
        module = importlib.import_module(f"cfljax.config.{path.stem}")
        found = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and dataclasses.is_dataclass(each)
        ]
        classes |= {
            each
            for each in found
            if any("traced" in field.metadata for field in dataclasses.fields(each))
        }
    written = {*pages.TABLES.values(), DataOptions, Train}
    # `Compressor` is what `train.compress` becomes; `Compress`, which is written, has its keys
    assert {each.__name__ for each in classes - written} == {"_ArriveKeys", "Compressor"}


def test_every_column_of_the_history_has_a_line_on_the_page():
    page = (DOCS / "metrics.md").read_text()
    _, history = page.split("## History")
    # Of files and figures, not columns
    inside = {"traffic", "labels", "diag", "valid", "run", "bytes"}
    assert [
        name for name in (*CURVES, *sorted(RESERVED_NAMES - inside)) if f"`{name}`" not in history
    ] == []


def test_the_code_of_the_readme_runs(capsys):
    text = (ROOT / "README.md").read_text()
    blocks_of = {block.lang: block.text for block in blocks.blocks(ROOT / "README.md")}
    exec(compile(blocks_of["python"], "README.md", "exec"), {"__name__": "__readme__"})
    assert len(read_spec(tomllib.loads(blocks_of["toml"])).runs()) == 5 * 2 * (1 + 1 + 2)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target


def test_the_gallery_has_the_commands_under_each_picture():
    _, *sections = (DOCS / "gallery.md").read_text().split("\n## ")
    shown = [section for section in sections if "](gallery/" in section]
    assert len(shown) == len([*(DOCS / "gallery").glob("*.png")])
    for section in shown:
        name = re.search(r"\]\(gallery/(\w+)\.png\)", section)[1]
        spec, folder, figure = re.search(
            r"^cfljax sweep (docs/gallery/\w+\.toml) --out (\S+)\n"
            r"(?:cfljax report \2 --figures (\w+) |python docs/gallery/picture\.py \2 )",
            section, re.M,
        ).groups()  # fmt: skip
        assert read_spec(ROOT / spec).runs() and folder == f"results/{Path(spec).stem}"
        assert (
            figure is None or figure in FIGURES and (name == figure or f"{figure}.png" in section)
        )


def test_nothing_is_asked_of_foreign_hosts():
    assert "font: false" in (ROOT / "mkdocs.yml").read_text()
    assert not [
        p.name for p in PAGES if re.search(r"<(script|img|link)[^>]+https?:", p.read_text())
    ]


def test_code_and_commands_fit_into_the_column_of_the_site():
    """Longer lines are cut off behind the copy button; output may be as wide as a terminal."""
    long = [
        f"{page.name}, {block.line}: {line}"
        for page in [*PAGES, ROOT / "README.md"]
        for block in blocks.blocks(page)
        for line in block.text.splitlines()
        if len(line) > 90 and (block.lang or line.startswith(("cfljax ", "python ", "pip ")))
    ]
    assert long == []


def test_the_readme_has_each_method_with_its_paper_once_folded_by_family():
    text = (ROOT / "README.md").read_text()
    for name in METHODS:
        if METHODS.origin(name) is not None:
            continue
        (row,) = re.findall(rf"^\| \[`{name}`\].*$", text, re.M)
        about = find_about(name)
        cells = (about.title, about.paper, about.link, about.venue, str(about.year or ""))
        assert all(cell in row for cell in cells), name
        folded = text[: text.index(row)].rpartition("<details>")[2]
        assert "</details>" not in folded and f"<b>{about.family}</b>" in folded, name
        assert f"\n## {name}\n" in (DOCS / "methods.md").read_text(), name


def test_what_readers_search_for_is_a_heading():
    """The search of the site weighs headings a thousand times as much as text."""
    titles = re.findall(r"^#+ (.+)$", (DOCS / "faq.md").read_text(), re.M)
    for words in ("callback", "PDF", "warm start", "number of clusters", "my own method"):
        assert any(words in title for title in titles), words


@pytest.mark.parametrize("code", [0, 1, 143])
def test_the_job_script_goes_back_into_the_queue_when_slurm_stops_it(code, tmp_path):
    (script,) = (b.text for b in blocks.blocks(DOCS / "scale.md") if b.title == "sweep.sbatch")
    said = tmp_path / "said"
    (tmp_path / "cfl" / "bin").mkdir(parents=True)
    (tmp_path / "cfl" / "bin" / "activate").touch()
    for name, status in (("srun", code), ("scontrol", 0)):
        (tmp_path / name).write_text(f'#!/bin/bash\necho {name} "$@" >> {said}; exit {status}\n')
        (tmp_path / name).chmod(0o755)
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "71",
        "SLURM_ARRAY_TASK_ID": "5",
    }
    assert subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path).returncode == code
    run, *more = said.read_text().splitlines()
    assert run.startswith("srun cfljax sweep ")
    assert parser().parse_args(run.split()[3:]).shard == "5/8"
    assert more == (["scontrol requeue 71_5"] if code == 143 else [])


def test_the_script_of_the_comparison_page_makes_its_table(tmp_path):
    from tests.report import synthetic

    synthetic.sweep(tmp_path / "r")
    table = runpy.run_path(str(DOCS / "which.py"))["markdown"]([tmp_path / "r"])
    assert (
        table.splitlines()[0] == "| method | `rotated` | sent, MB |" and table.count("\n| `") == 3
    )


@pytest.mark.rare
def test_the_script_of_the_servers_makes_its_table(tmp_path):
    import cfljax

    spec = tomllib.loads((DOCS / "server.toml").read_text())
    spec["data"]["clients"], spec["model"], spec["seeds"] = 5, "mclr", [0, 1]
    spec["train"] |= {
        "rounds": 1,
        "eval_every": 1,
        "server": ["none", {"name": "adam", "lr": [0.1, 0.0]}],
    }
    cfljax.sweep(spec, out=tmp_path / "r")
    head, _, plain, adam = runpy.run_path(str(DOCS / "server.py"))["markdown"](
        tmp_path / "r"
    ).splitlines()
    assert head == "| `train.server` | tried `lr` (accuracy) | chosen | validation | accuracy |"
    assert plain.startswith("| `none` | – | – | ")
    assert re.match(r"\| `adam` \| 0 \([\d.]+\), 0.1 \(([\d.]+)\) \| 0.1 \| .* \| \1 ±", adam)


@pytest.mark.rare
def test_the_site_has_every_page_and_its_search_finds_what_is_on_them(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    expected = {
        "spec.html": "straggler_work", "commands.html": "--retry-failed", "methods.html": "scaffold", "names.html": "dirichlet",
        "metrics.html": "accuracy_worst10", "experiments.html": "Sent140", "speed.html": "FedJAX",
        "faq.html": "participant", "changes.html": "FedNova", "reference.html": "least_loss",
    }  # fmt: skip
    for page, word in expected.items():
        assert (tmp_path / page).exists()
        assert any(
            entry["location"].startswith(page) and word in entry["title"] + entry["text"]
            for entry in found
        ), page
    cells = {
        page.name: set(re.findall(r"<t[dh] ([^>]*)>", page.read_text()))
        for page in tmp_path.rglob("*.html")
    }
    assert {
        name: found
        for name, found in cells.items()
        if not all(each.startswith(("style=", "class=")) for each in found)
    } == {}
    for word in blocks.SEARCHED:
        assert any(word in (entry["title"] + entry["text"]).lower() for entry in found), word
    assert (tmp_path / "speed.png").exists() and (tmp_path / "gallery" / "picture.png").exists()
