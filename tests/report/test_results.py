"""What `Results` computes in Python is what the report of the folder says."""

import csv
import re
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import cfljax
from cfljax.errors import SpecError, StoreError
from cfljax.report.cells import format_number
from cfljax.report.page_data import page_data
from cfljax.report.report_data import read
from cfljax.report.write import write
from cfljax.store import Store
from tests.report import synthetic


@pytest.fixture
def results(tmp_path):
    synthetic.everything(tmp_path)
    return cfljax.load(tmp_path)


@pytest.fixture
def grid(tmp_path):
    """Two methods, one of them with two learning rates, on two data sets."""
    store = Store(tmp_path / "grid")
    names, rows = [], {}
    for partition in ("iid", "rotated"):
        for method, lr, level in (("fedavg", 0.1, 0.5), ("ifca", 0.1, 0.7), ("ifca", 0.3, 0.8)):
            for seed in range(3):
                names.append(f"{method}-{lr}-{partition}-{seed}")
                varies = {"data.partition": partition, "train.lr": lr}
                synthetic.add(store, names[-1], seed, level, method=method, varies=varies)
                row = rows.setdefault(method, {"label": method, "units": [], "varies": []})
                row["units"].append(names[-1])
                row["varies"].append(varies)
    store.write_plan({"name": "grid", "units": names, "labels": list(rows.values())})
    return cfljax.load(store.folder)


def test_runs_are_chosen_by_what_they_are(grid):
    assert {each.method for each in grid.filter(method="ifca")} == {"ifca"}
    assert [each.seed for each in grid.filter(method="fedavg", seed=(2, 1))] == [1, 2, 1, 2]
    assert len(grid.filter(lr=0.3)) == 6
    assert len(grid.filter(lr=[0.1, 0.3], partition="iid", seed=range(2))) == 6
    assert len(grid.filter(status="failed")) == 0 and len(grid.filter()) == 18
    chosen = grid.filter(method=["ifca", "fedavg"]).filter(seed=0)
    assert [each.method for each in chosen] == ["ifca"] * 4 + ["fedavg"] * 2
    assert "6 of 18 runs" in repr(chosen) and len(chosen.history()) == 36
    assert chosen[0].run == "ifca-0.1-iid-0"
    assert chosen.varying() == grid.varying() == ["data.partition", "train.lr"]


def test_a_row_is_asked_for_by_its_label_and_a_list_by_its_value(tmp_path):
    store = Store(tmp_path)
    for name, hidden in (("wide", [200]), ("deep", [50, 50])):
        synthetic.add(store, name, 0, label=f"{name} IFCA", varies={"model.hidden": hidden})
    found = cfljax.load(tmp_path)
    assert (
        found.filter(method="wide IFCA")[0].run == found.filter(label="wide IFCA")[0].run == "wide"
    )
    assert len(found.filter(method="ifca")) == 2
    assert (
        found.filter(hidden="[50, 50]")[0].run == found.filter(hidden=[[50, 50]])[0].run == "deep"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "ifcaa"}, 'method = "ifcaa": no run has it; did you mean "ifca"'),
        ({"method": ["ifca", "x"]}, 'method = "x": no run has it; known: fedavg, ifca'),
        ({"seed": 9}, "seed = 9: no run has it; known: 0, 1, 2"),
        ({"seed": True}, "seed = true: no run has it"),
        ({"lr": 0.2}, "lr = 0.2: no run has it; known: 0.1, 0.3"),
        ({"status": "fail"}, 'status = "fail": no run has it; did you mean "failed"'),
        ({"mu": 0.1}, "mu is no option that varies between these runs; known: data.partition"),
    ],
)
def test_what_no_run_has_is_refused_in_a_line(grid, given, words):
    with pytest.raises(SpecError) as error:
        grid.filter(**given)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_the_table_has_the_numbers_of_the_report(results, grid, tmp_path):
    for each in (results, grid, grid.filter(method="ifca")):
        page = write(read([each]), tmp_path / "out", figures=False)
        frame = each.table()
        written = pd.read_csv(page.parent / "table.csv").drop(columns="folder")
        assert list(frame.columns) == list(written.columns)
        for name in frame:
            if frame[name].dtype.kind in "fib":
                np.testing.assert_allclose(frame[name].astype(float), written[name], rtol=1e-5)
        html = page.read_text(encoding="utf-8")
        for mean, std in zip(frame["accuracy_last_mean"], frame["accuracy_last_std"], strict=True):
            shown = f"{format_number('percent', mean)} ± {format_number('percent', std)}"
            assert np.isnan(mean) or shown in html
    rows = list(csv.DictReader((tmp_path / "out" / "table.csv").open()))
    assert {row["method"] for row in rows} == {"ifca"} and len(rows) == 4


def test_columns_of_the_table_are_chosen_as_in_the_command(results):
    table = results.table(["last", "bytes"], maximum=True)
    heads = {name.rpartition("_")[0] for name in table if name.endswith("_mean")}
    assert heads == {"accuracy_last", "bytes"}
    assert "accuracy_max_mean" in results.table(maximum=True) and "best" not in results.table(
        "last"
    )
    assert "accuracy_max_mean" not in results.table()
    with pytest.raises(SpecError, match="columns lsat: there is no such column; did you mean"):
        results.table("lsat")


def test_the_best_is_the_one_that_the_table_marks(results, grid):
    table = grid.table()
    marked = table[table["accuracy_last_best"]]
    best = grid.best()
    assert list(marked["method"]) == ["ifca", "ifca"] and set(marked["lr"]) == {0.3}
    assert {each.run for each in best} == {
        f"ifca-0.3-{p}-{s}" for p in ("iid", "rotated") for s in range(3)
    }
    assert {each.method for each in grid.filter(method="fedavg", partition="iid").best()} == {
        "fedavg"
    }
    assert {each.method for each in results.best()} == {"oracle"}
    assert {
        each.config["train"]["lr"] for each in grid.filter(method="ifca").best("accuracy_max")
    } == {0.3}
    with pytest.raises(SpecError, match="by bytes: tables mark no best of it; .* bytes_mean"):
        grid.best("bytes")
    with pytest.raises(SpecError, match="by lsat: there is no such column"):
        grid.best("lsat")
    with pytest.raises(StoreError, match="none is the best"):
        results.filter(method=["bad", "wild"]).best()


def test_a_report_of_chosen_runs_leaves_the_report_of_all_alone(grid):
    whole = grid.report(figures=False)
    assert whole == grid.store.folder / "report" / "index.html"
    chosen = grid.filter(partition="iid")
    with pytest.raises(SpecError, match="is for all runs; give these a folder of their own"):
        chosen.report()
    page = chosen.report(grid.store.folder / "iid", figures=False)
    table = re.findall("rotated", (page.parent / "table.csv").read_text())
    assert table == [] and "rotated" in (whole.parent / "table.csv").read_text()


def test_curves_are_those_of_the_page(results):
    data = read([results])
    page, axes = (
        page_data(data),
        {x: results.plot(x=x).axes[0] for x in ("round", "bytes", "seconds")},
    )
    names = [each["name"] for each in page["configs"]]
    for i, name in enumerate(names):
        by_round, by_bytes, by_seconds = (
            next(line for line in each.lines if line.get_label() == name) for each in axes.values()
        )
        band, sent = page["history"]["accuracy"][i], page["history"]["bytes"][i]
        np.testing.assert_allclose(by_round.get_xdata(), band["x"])
        for line, start in ((by_round, 0), (by_bytes, 1), (by_seconds, 1)):
            np.testing.assert_allclose(line.get_ydata(), band["m"][start:], rtol=1e-4)
        np.testing.assert_allclose(by_bytes.get_xdata(), np.array(sent["m"][1:]) / 1e6, rtol=1e-4)
        last = page["seconds"][i] + data.curves[i].setup
        assert by_seconds.get_xdata()[-1] == pytest.approx(last, rel=1e-4)
    assert axes["round"].get_ylabel() == "accuracy, %"
    axes["round"].figure.canvas.draw()
    assert "80" in [tick.get_text() for tick in axes["round"].get_yticklabels()]


def test_methods_are_drawn_in_the_order_that_is_asked_for_and_in_own_axes(results):
    figure, own = pyplot.subplots(1, 3)
    pyplot.close(figure)
    few = {"methods": ["oracle", "fedavg"]}
    assert results.plot("loss", ax=own[0], **few) is figure
    assert [text.get_text() for text in own[0].get_legend().get_texts()] == ["Oracle", "FedAvg"]
    results.plot(kind="methods", ax=own[1], **few)
    rows = [label.get_text() for label in own[1].get_yticklabels()]
    means = [line.get_xdata()[0] for line in own[1].lines if line.get_marker() == "|"]
    table = results.table().set_index("method").loc[few["methods"]]
    assert rows == ["Oracle", "FedAvg"]
    assert means == pytest.approx([*(100 * table["accuracy_last_mean"])], rel=1e-4)
    results.plot(kind="assignment", ax=own[2], methods="ifca")
    assert own[2].get_title() == "IFCA" and len(results.plot(kind="assignment").axes) >= 6


def test_the_backend_of_a_notebook_is_imported_so_that_it_shows_the_figure(
    results, tmp_path, monkeypatch
):
    (tmp_path / "shows_figures.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "module://shows_figures")
    results.plot(kind="methods")
    assert sys.modules.pop("shows_figures")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "method"}, 'kind = "method": there is no such figure; did you mean "methods"'),
        ({"x": "time"}, 'x = "time": curves cannot be drawn over that; known: bytes, round'),
        ({"x": "bytes", "kind": "methods"}, 'x = "bytes": is for curves; leave it out'),
        ({"column": "ari", "kind": "assignment"}, 'column = "ari": is for curves'),
        ({"column": "acuracy"}, 'acuracy: there is no such column; did you mean "accuracy"'),
        ({"methods": "ifka"}, 'plot: method = "ifka": no run has it; did you mean "ifca"'),
        ({"methods": "bad"}, "no run has something to draw for accuracy"),
        ({"ax": []}, "ax: must be one matplotlib axes, not list"),
        ({"ax": pyplot.Figure().subplots(), "kind": "assignment"}, "choose one by methods="),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_line(results, given, words):
    with pytest.raises(cfljax.CfljaxError) as error:
        results.plot(**given)
    assert words in str(error.value) and "\n" not in str(error.value)
