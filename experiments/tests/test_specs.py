"""Every published number has runs that answer it, in a spec that is there in two sizes; and the
page is that of the records."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from experiments import __main__ as command
from experiments.__main__ import NUMBERS, differing
from experiments.__main__ import pages as all_pages
from experiments.replication import overview
from experiments.replication.measured import fits
from experiments.replication.pages import read_sections
from experiments.replication.papers import Phrase
from experiments.replication.published import read_published
from tests.often import rarely

ROOT = Path(__file__).parents[2]
EXPERIMENTS, EVIDENCE = ROOT / "experiments", ROOT / "docs" / "evidence"
PAGE, PUBLISHED = read_published([EXPERIMENTS / "published"])
SPECS = sorted(
    {EXPERIMENTS / published.spec for published in PUBLISHED if published.spec.endswith(".toml")}
)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_has_two_sizes(path):
    full, small = read_spec(path).runs(), read_spec(path, ["size=small"]).runs()
    work = [
        sum(run.train.rounds * (run.train.steps or run.train.epochs) for run in runs)
        for runs in (full, small)
    ]
    assert 0 < work[1] < work[0]


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.file)
def test_each_cell_selects_one_configuration_of_its_spec(published):
    if not published.spec.endswith(".toml"):
        assert (EXPERIMENTS / published.spec).is_file()
        return
    path = EXPERIMENTS / published.spec
    sizes = [
        read_spec(path, sets)
        for sets in ([], ["size=small"])[: 2 if "[size.small]" in path.read_text() else 1]
    ]
    assert all(spec.name == published.sweep for spec in sizes)
    of = {each.sweep: each.spec for each in PUBLISHED}
    sizes += [read_spec(EXPERIMENTS / of[sweep]) for sweep in published.also]
    keys = ("label", "method", "seed")
    sized = [
        [
            {"config": run.resolved()} | {key: getattr(run, key) for key in keys}
            for run in spec.runs()
        ]
        for spec in sizes
    ]
    for cell in published.cells:
        found = [[run["seed"] for run in runs if fits(run, cell.where)] for runs in sized]
        assert any(found) and all(len(seeds) == len(set(seeds)) for seeds in found), cell.name
        assert cell.labels_of is None or any(
            fits(run, cell.labels_of) for runs in sized for run in runs
        )


@pytest.fixture(scope="module")
def found():
    return all_pages()


@pytest.fixture(scope="module")
def pages(found):
    """The page of claims as "", and each page and figure of a paper by its name."""
    claims = {"": found[EXPERIMENTS / "README.md"]}
    return claims | {path.name: text for path, text in found.items() if path.parent == EVIDENCE}


def test_the_committed_pages_are_those_of_the_committed_records(found):
    assert differing(found) == []
    assert {path for path in found if path.parent == EVIDENCE} == set(EVIDENCE.iterdir())
    assert found[ROOT / "README.md"].count("| paper | decided |") == 1


def test_a_page_that_differs_and_a_figure_that_no_page_has_are_told(tmp_path):
    folder = tmp_path / "docs" / "evidence"
    folder.mkdir(parents=True)
    (folder / "ocfl-99-1.svg").write_text("<svg/>")
    page = folder / "ocfl.md"
    page.write_text("old")
    assert differing({page: "new"}, tmp_path) == [page, folder / "ocfl-99-1.svg"]


def test_what_is_said_of_a_paper_is_what_its_verdicts_say():
    paper = next(paper for paper in PAGE.papers if paper.file == "cfl_mgd")
    records = [EXPERIMENTS / "records" / "cfl_mgd_mnist_tenth"]
    page, sections = read_sections(records, [EXPERIMENTS / "published"])
    own = [each for each in sections if each.published.paper == paper.name]
    paper = dataclasses.replace(paper, holds=(), fails=(), seen=())
    ahead = Phrase("ahead of IFCA", ("cfl_mgd_mnist_tenth 1",))
    levels = Phrase("its levels", ("cfl_mgd_mnist_tenth 4",))

    def told(**phrases):
        return overview.summary(
            dataclasses.replace(page, papers=(dataclasses.replace(paper, **phrases),)), own, {}
        )

    assert told(holds=(ahead,), fails=(levels,))[1:] == ["ahead of IFCA", "its levels", "–", "–"]
    assert re.fullmatch(r"6 of \d+", told()[0])
    for phrases in ({"holds": (levels,)}, {"fails": (ahead,)}, {"seen": (Phrase("it", ("x 1",)),)}):
        with pytest.raises(SpecError, match=r"page.toml: CFL-MGD: \w+: '.*': .* is "):
            told(**phrases)


def test_a_number_of_each_paper_is_run_again_by_one_command():
    claims = {
        of.code(claim): of.paper.partition(" (")[0] for of in PUBLISHED for claim in of.claims
    }
    assert {claims[code] for code in NUMBERS.values()} == set(NUMBERS) and len(NUMBERS) == 5


def test_every_link_to_the_pages_leads_somewhere(pages):
    for name, text in pages.items():
        for file in re.findall(r"\]\((?:\.\./docs/evidence/)?([\w.-]+\.(?:md|svg))", text):
            assert file in pages or (EXPERIMENTS / file).is_file(), f"{name}: {file}"
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert "experiments/README.md#" not in page.read_text()
        for file, anchor in re.findall(r"evidence/([\w.-]*)#([\w-]+)", page.read_text()):
            assert f'<details id="{anchor}"' in pages[file], f"{page.name}: {file}#{anchor}"


@pytest.mark.parametrize(
    ("wrong", "ended", "code"), [([], 0, 0), ([ROOT / "README.md"], 0, 1), ([], 1, 1), ([], 2, 2)]
)
def test_the_command_ends_with_what_differs(monkeypatch, capsys, wrong, ended, code):
    monkeypatch.setattr(command, "pages", lambda: {ROOT / "README.md": "text"})
    monkeypatch.setattr(command, "differing", lambda found: wrong)
    asked = []
    monkeypatch.setattr(command.check, "main", lambda words: asked.append(words) or ended)
    assert command.main([]) == code
    assert asked == [[name] for name in NUMBERS.values()]
    said = capsys.readouterr().out
    assert ("README.md: differs from the records" in said) == bool(wrong)
    assert f"{1 - len(wrong)} of 1 pages and figures are as the records have them" in said


PROGRAM = Path(__file__).parents[2] / "experiments" / "independent.py"


def images(labels, rng):
    """A bright stripe for each label, on noise."""
    x = rng.integers(0, 40, (len(labels), 28, 28), dtype=np.uint8)
    x[np.arange(len(labels)), labels % 28] = 250
    return x


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    for name, first, train, test in (
        ("mnist", 0, 3000, 300),
        ("emnist", 36, 800, 100),
    ):  # EMNIST's letter a is class 36
        y, y_test = (first + np.arange(count) % 10 for count in (train, test))
        np.savez(
            folder / f"{name}.npz",
            x_train=images(y, rng),
            y_train=y,
            x_test=images(y_test, rng),
            y_test=y_test,
        )
    return folder


CELLS = {
    "ocfl_table2": ["IID", "two shards", "one shard"],
    "femnist": [
        f"{name}, leak {leak}"
        for leak in ("true", "false")
        for name in ("fedavg", "ifca", "fg-edc")
    ],
    "rfedavg": ["FedAvg", "RFedAvg"],
}


@pytest.mark.parametrize(
    ("table", "rounds"), [rarely("ocfl_table2", 20), rarely("femnist", 2), rarely("rfedavg", 20)]
)
def test_every_cell_is_told_and_better_than_guessing(data, table, rounds):
    words = [
        sys.executable,
        PROGRAM,
        table,
        "--data",
        data,
        "--seeds",
        "1",
        "--rounds",
        str(rounds),
    ]
    flags = os.environ["XLA_FLAGS"].replace(
        "--xla_cpu_use_fusion_emitters=false", ""
    )  # computing takes the time here
    done = subprocess.run(
        words, env=os.environ | {"XLA_FLAGS": flags}, check=True, capture_output=True, text=True
    )
    found = dict(line.split(", seed 0: maximum ") for line in done.stdout.splitlines())
    assert list(found) == CELLS[table]
    assert all(20 < float(numbers.split(", last ten ")[0]) <= 100 for numbers in found.values()), (
        found
    )
