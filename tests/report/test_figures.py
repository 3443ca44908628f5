import re
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

from cfljax.methods import METHODS, find_about
from cfljax.report import figures, write
from cfljax.report.curves import MOST_CURVES, Band
from cfljax.report.page import web
from cfljax.report.report_data import read
from cfljax.report.styles import (
    CLUSTER_COLOURS,
    COLOURS,
    DASHES,
    FAMILY_COLOURS,
    MARKERS,
    choose_styles,
)
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
@pytest.mark.parametrize("others", [(), ("fedavg",)])
def test_no_two_curves_look_alike(methods, others):
    """Nor would they without colours, as far as there are enough markers for the methods."""
    drawn = [
        SimpleNamespace(folder="", method="ifca", label=f"m{i % methods}")
        for i in range(MOST_CURVES)
    ]
    drawn += [SimpleNamespace(folder="", method=name, label=name) for name in others]
    made = choose_styles(drawn)
    assert len(set(made)) == len(drawn)
    colours, dashes, markers = (np.array(part) for part in zip(*made, strict=True))
    assert (dashes >= 0).all() and (dashes < DASHES).all() and (markers < MARKERS).all()
    if others:
        assert set(colours[:-1]) <= set(FAMILY_COLOURS["clustered"])
        assert colours[-1] in FAMILY_COLOURS["global"]
    if methods == 1 and not others:
        assert colours.tolist()[:8] == list(range(len(CLUSTER_COLOURS)))
    if methods in (2, 5):  # a method has its colour and marker with four dashes
        looks = [made[k::methods][:4] for k in range(methods)]
        of = [{(style.colour, style.marker) for style in each} for each in looks]
        assert all(len(each) == 1 for each in of) and len(set.union(*of)) == methods
        assert all({style.dash for style in each} == set(range(DASHES)) for each in looks)
        assert len({style.marker for style in made[:methods]}) == methods


def test_each_family_of_methods_has_a_hue_and_its_methods_have_markers():
    built_in = list(filter(METHODS.is_built_in, METHODS))
    drawn = [
        SimpleNamespace(folder="", method=name, label=name)
        for family in FAMILY_COLOURS
        for name in [n for n in built_in if find_about(n).family == family][:3] or ["mine"]
    ]
    found = dict(zip([each.method for each in drawn], choose_styles(drawn), strict=True))
    for name, style in found.items():
        known = find_about(name)
        assert style.colour in FAMILY_COLOURS[known.family if known else None], name
    by_family = [
        {found[n].marker for n in found if found[n].colour in shades}
        for shades in FAMILY_COLOURS.values()
    ]
    assert [len(markers) for markers in by_family] == [3, 3, 3, 3, 1]
    shades = sum(FAMILY_COLOURS.values(), ())
    assert sorted(shades) == list(range(len(COLOURS)))


def test_the_page_has_the_colours_and_markers_of_the_figures():
    css = web("page.css")
    for i, colour in enumerate(COLOURS):
        assert (
            f"--c{i}: {colour};" in css and len(re.findall(rf"--c{i}:", css)) == 3
        )  # and the dark
    assert len(figures.MARKERS) == MARKERS and len(figures.DASHES) == DASHES
    shapes = re.search(r"const SHAPES = \[(.*)\];", web("draw.js"))[1]
    assert len(re.findall("corners|PLUS", shapes)) == MARKERS


def read_box(pdf):
    """The size of a PDF file's page in inches."""
    words = re.search(rb"/MediaBox \[([^\]]*)\]", pdf)[1].split()
    return [float(word) / 72 for word in words[2:]]


def test_figures_of_a_column_are_pdf_files_with_embedded_fonts(rendered):
    names = ("accuracy", "methods", "assignment", "mixture", "time")
    made = dict(figures.render(read([rendered[0]]), names, width=3.3, pdf=True))
    assert made == dict(figures.render(read([rendered[0]]), names, width=3.3, pdf=True))
    for name in names:
        pdf = made[f"{name}.pdf"]
        assert pdf.startswith(b"%PDF") and b"/FontFile2" in pdf and b"/Type3" not in pdf
        assert read_box(pdf)[0] == pytest.approx(3.3, abs=0.01) and read_box(pdf)[1] < 5
    assert all(not name.endswith("pdf") for name in rendered[1])


@pytest.mark.parametrize("width", [2.5, 3.3, 7.0])
def test_letters_of_a_narrow_figure_stay_inside_and_are_seven_to_nine_points(width):
    names = [f"A method of this long name, number {i}" for i in range(9)]
    drawn = [SimpleNamespace(folder="", method="ifca", label=name, legend=name) for name in names]
    band = Band(*(np.arange(9.0) for _ in Band._fields))
    curves = SimpleNamespace(
        history={"accuracy_worst10": band}, stopped=(4,), changes=(), score="accuracy"
    )
    data = SimpleNamespace(drawn=drawn, curves=[curves] * 9)
    with matplotlib.rc_context(figures.STYLE):
        figure = figures.FIGURES["worst_tenth"](data, width)
        figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == width
    (axes,), (legend,) = figure.axes, figure.legends
    # Of all that is drawn, in inches
    box = figure.get_tightbbox()
    assert box.x0 > -0.01 and box.x1 < width + 0.01
    assert box.y0 > -0.01 and box.y1 < figure.get_size_inches()[1] + 0.01
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    written = [axes.xaxis.label, axes.yaxis.label, *ticks, *legend.get_texts()]
    assert all(7 <= text.get_fontsize() <= 9 for text in written) and len(written) > 15
    assert axes.get_window_extent().width > 0.4 * figure.bbox.width


def test_a_legend_of_many_curves_has_room():
    names = [f"curve {i}" for i in range(MOST_CURVES)]
    drawn = [SimpleNamespace(folder="", method="ifca", label=name, legend=name) for name in names]
    band = Band(*(np.arange(3.0) for _ in Band._fields))
    each = SimpleNamespace(history={"accuracy": band}, stopped=(), changes=(), score="accuracy")
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
        SimpleNamespace(history={"accuracy": band}, stopped=stopped, changes=(), score="accuracy")
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
