"""Every published number has runs that answer it, in a spec that is there in two sizes; and the page is that of the records."""

from pathlib import Path

import pytest

from cfljax.config import read_spec
from cfljax.report.replication.measured import fits
from cfljax.report.replication.page import replication_page
from cfljax.report.replication.published import read_published

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PUBLISHED = read_published([EXPERIMENTS / "published"])[1]
SPECS = sorted({EXPERIMENTS / published.spec for published in PUBLISHED if published.spec.endswith(".toml")})


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_has_two_sizes(path):
    full, small = read_spec(path).runs(), read_spec(path, ["size=small"]).runs()
    work = [sum(run.train.rounds * (run.train.steps or run.train.epochs) for run in runs) for runs in (full, small)]
    assert 0 < work[1] < work[0]


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.file)
def test_each_cell_selects_one_configuration_of_its_spec(published):
    if not published.spec.endswith(".toml"):
        assert (EXPERIMENTS / published.spec).is_file()
        return
    path = EXPERIMENTS / published.spec
    sizes = [read_spec(path, sets) for sets in ([], ["size=small"])[: 2 if "[size.small]" in path.read_text() else 1]]
    assert all(spec.name == published.sweep for spec in sizes)
    keys = ("label", "method", "seed")
    sized = [[{"config": run.resolved()} | {key: getattr(run, key) for key in keys} for run in spec.runs()] for spec in sizes]
    for cell in published.cells:
        found = [[run["seed"] for run in runs if fits(run, cell.where)] for runs in sized]
        assert any(found) and all(len(seeds) == len(set(seeds)) for seeds in found), cell.name
        assert cell.labels_of is None or any(fits(run, cell.labels_of) for runs in sized for run in runs)


def test_the_committed_page_is_that_of_the_committed_records():
    records = sorted(path for path in (EXPERIMENTS / "records").iterdir() if path.is_dir())
    assert (EXPERIMENTS / "README.md").read_text() == replication_page(records, [EXPERIMENTS / "published"])
