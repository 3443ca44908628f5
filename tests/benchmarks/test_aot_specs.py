"""Whole specs as workloads of `benchmarks.aot`: their methods, stand-ins for their data, and what is said at their heads."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import models
from benchmarks.aot import standins
from benchmarks.aot.__main__ import MODELS, is_spec
from benchmarks.aot.measure import methods_of
from benchmarks.aot.table import said, table
from cfljax.config import read_spec

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "benchmarks" / "results" / "aot-specs.json").read_text(encoding="utf-8"))["rows"]
SPECS = ("cifar100_pachinko", "texts", "domains", "corruptions", "speech")


def test_a_specs_methods_are_found_in_its_order():
    spec = str(ROOT / "experiments" / "texts.toml")
    assert is_spec(spec) and not is_spec("texts.toml") and not is_spec("W1")
    assert methods_of(spec) == ["fedavg", "local", "ifca", "fedgroup", "ditto"]


def test_roles_have_as_many_samples_as_leafs():
    counts = standins.samples_of_roles(np.random.default_rng(0))
    assert len(counts) == 100 and counts.min() >= 150 and (np.diff(counts) >= 0).all()
    assert 0.85 < counts.mean() / 3743 < 1.15 and 0.7 < counts.std() / 6212 < 1.2


@pytest.mark.parametrize("name", SPECS)
def test_every_full_size_has_a_stand_in(name):
    run = read_spec(ROOT / "experiments" / f"{name}.toml").runs()[0]
    assert run.data.name in standins.MADE


@pytest.mark.parametrize("name", sorted({row["workload"] for row in KEPT if "total_s" in row}))
def test_the_head_of_a_spec_says_what_the_kept_figures_say(name):
    rows = [row for row in KEPT if row["workload"] == name]
    spec = ROOT / "experiments" / f"{name}.toml"
    assert rows and said(KEPT, name) in spec.read_text(encoding="utf-8")
    runs = Counter(run.method for run in read_spec(spec).runs())
    assert all(row["all_runs"] == runs[row["method"]] and row["total_s"] > 0 and "error" not in row for row in rows)


def test_the_page_of_models_has_the_table_of_the_kept_figures():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [row for row in KEPT if "total_s" not in row]
    assert table(rows) in page and {row["workload"] for row in rows} <= set(MODELS)


def test_what_is_said_names_each_method_and_takes_the_most_memory():
    row = {"workload": "texts", "target": "v5e", "total_s": 60.0, "needed_bytes": 1.5e9, "method": "fedavg"}
    rows = [row, row | {"method": "ifca", "total_s": 3600.0, "needed_bytes": 5e8}, row | {"workload": "domains"}]
    assert said(rows, "texts").splitlines()[1] == "#   v5e: fedavg 60 s, ifca 60 min; 1.5 GB of its memory"
    assert "experiments/texts.toml" in said(rows, "texts").splitlines()[0]


def test_models_of_today_are_those_of_the_benchmark_of_steps():
    assert {name.partition("-")[0] for name in MODELS} == set(models.MODELS)
