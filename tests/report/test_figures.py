import re
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

from cfljax.methods import METHODS, find_about
from cfljax.report import figures, write
from cfljax.report.curves import MOST_CURVES, Band
from cfljax.report.page_data import COLOURS, DASHES, FAMILY_COLOURS, styles
from cfljax.report.report_data import read
from cfljax.store import Store
from tests.report import synthetic


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    synthetic.everything(folder)
    return folder, dict(figures.render(read([folder])))


def test_every_figure_is_a_png_and_an_svg(rendered):
    names = [
        name
        for name in figures.FIGURES
        if name not in ("critical_difference", "performance_profile")
    ]  # need several data sets: see test_statistics
    assert sorted(rendered[1]) == sorted(
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    )
    for name, data in rendered[1].items():
        assert data.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in data


def test_letters_are_paths_and_there_is_no_date(rendered):
    for name, data in rendered[1].items():
        if name.endswith("svg"):
            assert b"<text" not in data and b"<dc:date>" not in data and b"font-family" not in data
        assert not re.search(rb"20[23]\d-\d\d-\d\d", data)


def test_rendered_twice_they_are_the_same_bytes(rendered, monkeypatch):
    few = ("accuracy", "assignment", "confusion")
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in few})
    again = dict(figures.render(read([rendered[0]])))
    assert again == {name: data for name, data in rendered[1].items() if name.split(".")[0] in few}


def test_what_there_is_nothing_for_is_left_out_and_old_files_go(tmp_path):
    store = Store(tmp_path)
    synthetic.add(store, "a", 0, label="_$x_1$ 中", nan=True, evaluations=1)
    kept = tmp_path / "report" / "figures"
    kept.mkdir(parents=True)
    for name in ("bytes.png", "of_mine.png"):
        (kept / name).write_bytes(b"")
    write.report(tmp_path, figures=True)
    names = {path.name for path in kept.iterdir()}
    assert (
        "of_mine.png" in names and "time.svg" in names and not {"bytes.png", "accuracy.png"} & names
    )


@pytest.mark.parametrize("methods", [1, 2, 5, 9, MOST_CURVES])
def test_no_two_curves_look_alike(methods):
    drawn = [
        SimpleNamespace(folder="", method="ifca", label=f"m{i % methods}")
        for i in range(MOST_CURVES)
    ]
    made = styles(SimpleNamespace(drawn=drawn))
    assert len(set(made)) == MOST_CURVES
    assert all(0 <= colour < COLOURS and 0 <= dash < DASHES for colour, dash in made)
    if methods == 1:
        assert [colour for colour, _ in made[:COLOURS]] == list(range(COLOURS))
    if methods in (
        2,
        5,
    ):  # a method has its colour with four dashes, then those that are no method's
        least = 4 * methods
        assert [colour for colour, _ in made[:least]] == [i % methods for i in range(least)]
        assert all(colour >= methods for colour, _ in made[least:])


def test_colours_are_those_of_the_families_of_methods():
    """Each method has a colour of its family, and no family has a colour of another."""
    built_in = list(filter(METHODS.is_built_in, METHODS))
    first = {
        family: [name for name in built_in if find_about(name).family == family][:3]
        for family in FAMILY_COLOURS
    }
    drawn = [
        SimpleNamespace(folder="", method=name, label=name)
        for names in first.values()
        for name in names
    ]
    made = dict(
        zip((each.method for each in drawn), styles(SimpleNamespace(drawn=drawn)), strict=True)
    )
    for family, names in first.items():
        assert {made[name][0] for name in names} == set(FAMILY_COLOURS[family]), family
    shades = sum(FAMILY_COLOURS.values(), ())
    assert sorted(shades) == list(range(COLOURS))


def test_a_legend_of_many_curves_has_room():
    names = [f"curve {i}" for i in range(MOST_CURVES)]
    drawn = [SimpleNamespace(folder="", method="ifca", label=name, legend=name) for name in names]
    band = Band(*(np.arange(3.0) for _ in Band._fields))
    each = SimpleNamespace(history={"accuracy": band}, stopped=(), changes=())
    with matplotlib.rc_context(figures.STYLE):
        figure = figures.FIGURES["accuracy"](
            SimpleNamespace(drawn=drawn, curves=[each] * MOST_CURVES)
        )
        figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert box.y0 >= 0 and box.y1 <= figure.bbox.height


def test_figures_over_rounds_mark_where_runs_were_stopped():
    band = Band(np.arange(4.0), np.array([0.1, 0.2, 0.4, 0.5]), np.zeros(4))
    data = [
        SimpleNamespace(history={"accuracy": band}, stopped=stopped, changes=())
        for stopped in ((2, 3), ())
    ]
    drawn = [SimpleNamespace(folder="", method="ifca", label=name, legend=name) for name in "ab"]
    marks = {}
    for name, each in zip("ab", data, strict=True):
        figure = figures.FIGURES["accuracy"](SimpleNamespace(drawn=drawn[:1], curves=[each]))
        marks[name] = [
            line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "|"
        ]
        assert ("keeps its last value" in figure.axes[0].get_xlabel()) == (name == "a")
    assert marks == {"a": [[[2, 40], [3, 50]]], "b": []}


def test_what_a_method_spends_before_the_rounds_is_no_free_accuracy(tmp_path):
    """Round 0 comes after pre-training, whose bytes are counted in round 1: curves over what was
    spent begin there."""
    synthetic.add(Store(tmp_path), "a", 0, step_s=2)
    (each,) = read([tmp_path]).curves
    for line, first in (
        (figures.over_bytes(each, "accuracy"), 3e-3),
        (figures._clock(each), 2.0),
        (figures.over_seconds(each, "accuracy"), 0.45),
    ):
        at, band = line
        assert at[0] == pytest.approx(first) and band.round[0] == 1 and len(at) == len(band.mean)
    spent, _ = figures.over_seconds(each._replace(setup=7.0), "accuracy")
    assert spent[0] == pytest.approx(7.45)


def test_changes_of_the_data_are_lines_in_the_curves(tmp_path):
    from tests.report.test_page import drifting

    drifting(tmp_path)
    drawn = figures.FIGURES["accuracy"](read([tmp_path]))
    ends = [line.get_xdata() for line in drawn.axes[0].lines if len(line.get_xdata()) == 2]
    assert [first for first, second in ends if first == second] == [2, 4]
