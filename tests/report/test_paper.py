"""What `cfljax report --paper --methods …` writes: one order everywhere, and a table that fits."""

import csv
import json
import re
from pathlib import Path

import pytest
from matplotlib import get_data_path
from matplotlib.ft2font import FT2Font, LoadFlags

from cfljax.commands import process
from cfljax.commands.report import parser, run
from cfljax.report.page_data import page_data
from cfljax.report.paper_table import write_table
from cfljax.report.report_data import read
from cfljax.report.results import Results
from cfljax.store import Store
from tests.report import synthetic

FONT = FT2Font(str(Path(get_data_path()) / "fonts" / "ttf" / "cmr10.ttf"))
METHODS = (("fedavg", 0.5), ("ifca", 0.8), ("fl_hc", 0.6), ("ditto", 0.7))
TITLES = {"fedavg": "FedAvg", "ifca": "IFCA", "fl_hc": "FL+HC", "ditto": "Ditto"}


def call(*words):
    return process.main(run, parser(), [str(word) for word in words])


@pytest.fixture
def folder(tmp_path):
    synthetic.sweep(tmp_path / "a", methods=METHODS, seeds=5)
    return tmp_path / "a"


def orders(out):
    """The order of the methods in each file of a report, as titles."""
    lines = list(csv.DictReader((out / "table.csv").open()))
    page = (out / "index.html").read_text()
    of = {"csv": [TITLES[line["method"]] for line in lines]}
    of["md"] = re.findall(r"^\| ([A-Z]\S*) \|", (out / "table.md").read_text(), re.M)[: len(lines)]
    of["tex"] = re.findall(r"^([A-Z]\S*) &", (out / "table.tex").read_text(), re.M)
    of["page"] = re.findall(r"<th title=[^>]*><i [^>]*></i>([^<]*)", page)
    drawn = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["configs"]
    of["figures"] = [each["name"] for each in drawn]
    if (out / "paper.tex").exists():
        of["paper"] = re.findall(r"^([A-Z]\S*) &", (out / "paper.tex").read_text(), re.M)
    return of


def test_the_best_is_first_everywhere(folder):
    page = Results(folder).report(figures=False)
    found = orders(page.parent)
    assert 'class="headline" aria-sort="descending"' in page.read_text()
    assert len(found) == 5 and set(map(tuple, found.values())) == {
        ("IFCA", "Ditto", "FL+HC", "FedAvg")
    }
    assert Results(folder).table()["method"].tolist() == ["ifca", "ditto", "fl_hc", "fedavg"]


def test_methods_are_limited_and_ordered_everywhere(folder, tmp_path, capsys):
    words = ("--methods", "fedavg,FL+HC,ifca", "--paper", "--no-figures", "--out", tmp_path / "out")
    assert call(folder, *words) == 0
    found = orders(tmp_path / "out")
    assert len(found) == 6 and set(map(tuple, found.values())) == {("FedAvg", "FL+HC", "IFCA")}
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'class="headline" aria-sort' not in page and "not run yet" not in page
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[1:4]] == ["fedavg", "fl_hc", "ifca"]
    # Two comparisons remain for Holm's correction, of three
    assert "all 2 others" in page
    chosen = Results(folder).filter(method=["fedavg", "fl_hc", "ifca"])
    assert chosen.table()["method"].tolist() == ["fedavg", "fl_hc", "ifca"]
    assert [each["name"] for each in page_data(read([chosen]))["configs"]] == found["page"]


def test_of_several_data_sets_each_has_the_order(tmp_path):
    store, levels = Store(tmp_path), {"iid": (0.5, 0.8), "rotated": (0.7, 0.4)}
    names = []
    for partition, of in levels.items():
        for method, level in zip(("fedavg", "ifca"), of, strict=True):
            names.append(f"{method}-{partition}")
            varies = {"data.partition": partition}
            synthetic.add(store, names[-1], 0, level, method=method, varies=varies)
    store.write_plan({"units": names})
    shown = [row.configuration for row in read([tmp_path]).table]
    assert [(each.heading, each.method) for each in shown] == [
        ("partition=iid", "ifca"),
        ("partition=iid", "fedavg"),
        ("partition=rotated", "fedavg"),
        ("partition=rotated", "ifca"),
    ]


def test_a_method_that_no_run_has_is_refused_in_a_line(folder, capsys):
    assert call(folder, "--methods", "ifca,dito") == 2
    said = capsys.readouterr().err
    assert 'dito: no run has it; did you mean "ditto"' in said and said.count("\n") == 1


@pytest.mark.parametrize("words", [["--width", "1"], ["--width", "nan"], ["--width", "wide"]])
def test_a_width_is_a_number_of_inches(words, capsys):
    with pytest.raises(SystemExit) as ended:
        call("x", *words)
    assert ended.value.code == 2 and "inches" in capsys.readouterr().err


def test_figures_of_a_paper_are_listed_as_pdf_files(folder, tmp_path, capsys):
    words = ("--figures", "methods,accuracy", "--paper", "--out", tmp_path / "p")
    assert call(folder, *words) == 0
    found = sorted(path.name for path in (tmp_path / "p").iterdir())
    assert found == sorted(
        [f"{name}.{kind}" for name in ("accuracy", "methods") for kind in ("pdf", "png", "svg")]
        + ["paper.tex"]
    )
    said = capsys.readouterr().out
    assert f"figure: {tmp_path / 'p' / 'accuracy.pdf'}" in said and "paper.tex" in said


def measure(tex):
    """The points that the tabular of a LaTeX table takes, in Computer Modern of 8 points: of each
    column the widest cell, and between columns twice \\tabcolsep."""

    def width(cell):
        plain = cell.replace(r"\rlap{$^\dagger$}", "").replace(r"\,$\pm$\,", "±")
        inside = re.sub(r"\\(textbf|shortstack\[.\])", "", plain)
        lines = re.sub(r"[{}]|\\(?=[%&_])", "", inside).split(r"\\")
        glyphs = [[FONT.load_char(ord(c), flags=LoadFlags.NO_SCALE) for c in li] for li in lines]
        return max(sum(g.horiAdvance for g in line) for line in glyphs) * 8 / FONT.units_per_EM

    body = tex.split("\\toprule\n")[1].split("\\bottomrule")[0]
    rows = [line[:-3] for line in body.splitlines() if line.endswith(r" \\")]
    cells = [re.split(" & ", row) for row in rows if "multicolumn" not in row]
    separation = float(re.search(r"tabcolsep}{(.*?)pt", tex)[1])
    columns = list(zip(*cells, strict=True))
    return sum(max(map(width, each)) for each in columns) + 2 * separation * (len(columns) - 1)


def test_the_table_of_a_paper_fits_its_column(folder):
    store = Store(folder)
    long = "A method with clusters whose name nobody would want to repeat"
    for seed in range(5):
        synthetic.add(store, f"long-{seed}", seed, 0.79, method="new", label=long)
    store.write_plan({"units": store.ids()})
    table = read([folder]).table
    found = {inches: write_table(table, inches) for inches in (2.0, 3.3, 12.0)}
    for inches, (tex, left_out) in found.items():
        assert measure(tex) <= 72.27 * inches, inches
        assert rf"\begin{{minipage}}{{{inches:g}in}}" in tex
        assert tex.count("{") == tex.count("}")
        assert len(left_out) == {2.0: 3, 3.3: 1, 12.0: 0}[inches]
        assert all(word in tex for word in long.split())
    narrow, column, wide = (tex for tex, _ in found.values())
    assert r"\shortstack[l]{" in column and long in wide
    # The deviations of the accuracy stay, those of the other columns go first
    assert wide.count(r"$\pm$") > column.count(r"$\pm$") >= narrow.count(r"$\pm$") > 5
    # Nothing is left out that there is room for
    assert measure(column) > 0.7 * 72.27 * 3.3


def test_the_notes_say_what_numbers_and_marks_mean(folder):
    tex, _ = write_table(read([folder]).table)
    notes = tex.split(r"\selectfont")[-1]
    for words in (
        "sample standard deviation of 5 seeds",
        "Bold: best",
        "one partition",
        "Bytes",
        "To FedAvg",
    ):
        assert words in notes, words
    assert r"\textbf{" in tex and "accuracy" in tex and "(kB)" in tex
    assert (r"\rlap{$^\dagger$}" in tex) == (r"$^\dagger$: not significantly" in notes)


def test_columns_that_were_asked_for_are_those_of_the_table(folder):
    data = read([folder], names=["last", "clusters", "seconds"])
    tex, _ = write_table(data.table, 3.3, asked=True)
    head = tex.split("\\toprule\n")[1].splitlines()[0]
    assert re.findall("accuracy|clusters|seconds|worst|ARI", head) == [
        "accuracy",
        "clusters",
        "seconds",
    ]
    assert write_table([])[0].startswith("% no finished runs")


def test_a_paper_is_written_from_python_too(folder, tmp_path):
    chosen = Results(folder).filter(method=["ifca", "fedavg"])
    page = chosen.report(tmp_path / "p", figures=False, paper=True, width=4)
    tex = (page.parent / "paper.tex").read_text()
    assert r"\begin{minipage}{4in}" in tex and tex.index("IFCA") < tex.index("FedAvg &")
    assert "Ditto" not in tex
    Results(folder).report(tmp_path / "whole", figures=False)
    assert not (tmp_path / "whole" / "paper.tex").exists()
