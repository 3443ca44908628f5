import runpy

import pytest

from cfljax.commands.report import parser, run
from cfljax.report.tables import write_comparison
from cfljax.results.result import Results
from cfljax.store.quantities import QUANTITIES, SummaryQuantity, list_quantities
from tests.blocks import DOCS
from tests.report import synthetic

NOTE = "at the start: before any training"


@pytest.fixture
def invented(monkeypatch):
    """A quantity that the package does not have, and that runs record from now on."""
    quantity = SummaryQuantity(
        "accuracy_first",
        "`accuracy` of the first evaluation",
        lambda run, curve: float(run[curve][0]),
        "accuracy",
        heading="at the start",
        note=NOTE,
        shown=("line", "notebook", "terminal"),
    )
    monkeypatch.setitem(QUANTITIES, quantity.key, quantity)
    return quantity


def test_an_entry_is_a_column_of_frames_and_stands_in_the_words_of_a_run(tmp_path, invented):
    synthetic.sweep(tmp_path)
    results = Results(tmp_path)
    result = results[0]
    first = result.history["accuracy"][0]
    assert results.to_pandas()["accuracy_first"][0] == pytest.approx(first)
    assert "accuracy_first=" in repr(result) and "accuracy_first" in repr(results)
    assert "<th>accuracy_first</th>" in result._repr_html_()


def test_an_entry_is_a_column_of_all_tables_and_of_the_page(tmp_path, invented, capsys):
    synthetic.sweep(tmp_path)
    run(parser().parse_args([str(tmp_path), "--no-figures"]))
    written = tmp_path / "report"
    assert "at the start" in capsys.readouterr().out
    for name in ("table.md", "table.tex", "index.html"):
        text = (written / name).read_text()
        assert "at the start" in text.replace(NOTE, "") and NOTE in text
    assert "accuracy_first_mean" in (written / "table.csv").read_text().splitlines()[0]
    assert "at the start" in write_comparison(Results(tmp_path))


@pytest.mark.parametrize("name", ["at the start", "at", "accuracy_first"])
def test_an_entry_can_be_chosen_by_columns(tmp_path, invented, capsys, name):
    synthetic.sweep(tmp_path)
    run(parser().parse_args([str(tmp_path), "--no-figures", "--columns", name]))
    head = capsys.readouterr().out.splitlines()[0]
    assert head.split() == ["runs", "at", "the", "start"]


def test_an_entry_is_described_on_the_page_of_metrics(invented):
    page = runpy.run_path(str(DOCS / "pages.py"))["metrics"]()
    assert f"| `accuracy_first` | {invented.help} |" in page


def test_no_two_quantities_share_a_name_or_a_heading_beside_each_other():
    every = list_quantities(["accuracy_new_0", "accuracy_new_unlabelled", "ari_new"])
    assert len({each.key for each in every}) == len(every)
    for window in ("at_best_val", "last10", "last"):
        heads = [each.heading for each in every if each.heading and each.window in ("", window)]
        assert len(set(heads)) == len(heads)
