import csv
import io
import re

import numpy as np

from cfljax.methods import METHODS, find_about
from cfljax.report import table_files, tables
from cfljax.report.cells import format_size
from cfljax.report.columns import columns_of
from cfljax.report.comparison import rows
from cfljax.report.configurations import collect
from cfljax.report.notes import list_notes
from cfljax.report.report_data import read
from cfljax.results.result import Results
from cfljax.store import Store
from tests.report import synthetic

NASTY = "50% & $x_1$ {a} #~^\\ | *b* <i>\x1b[31m"


def table(*folders):
    return rows(collect(folders).configurations)


def test_one_line_per_configuration_and_the_best_starred(tmp_path):
    synthetic.sweep(tmp_path)
    lines = tables.to_terminal(table(tmp_path)).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["fedavg", "ifca", "oracle"]
    assert lines[3].count("*") >= 5 and "*" not in lines[1].split("±")[1]
    assert lines[0].index("last") + len("last") == lines[1].index("]") + 1


def test_all_columns_are_of_one_window(tmp_path):
    """The last evaluation; of many evaluations the last ten; with validation samples the evaluation
    that these choose."""

    def found(name, evaluations, **validation):
        store, history = Store(tmp_path / name), {"round": np.arange(evaluations)}
        rising = np.linspace(0, 0.6, evaluations)
        history |= {
            "accuracy": rising + 0.2,
            "accuracy_worst10": rising,
            "ari": rising,
            "nmi": rising,
            "clusters": rising,
        }
        arrays = {f"history/{key}": values for key, values in (history | validation).items()}
        store.write("a", synthetic.record_of("a", 0, arrays), {})
        (row,) = table(tmp_path / name)
        heads = [column.heading for column in columns_of([row])]
        return heads[:5], [cell.mean for cell in row.cells.values()][:4], rising

    few, many, best = (
        found("few", 50),
        found("many", 51),
        found("best", 60, val_accuracy=np.arange(60) == 7),
    )
    rest = ["worst tenth", "ARI", "NMI", "clusters"]
    assert [each[0] for each in (few, many, best)] == [
        [name, *rest] for name in ("last", "last 10", "at best validation")
    ]
    for (_, means, rising), window in (
        (few, slice(-1, None)),
        (many, slice(-10, None)),
        (best, slice(7, 8)),
    ):
        np.testing.assert_allclose(means, rising[window].mean() + np.array([0.2, 0, 0, 0]))


def test_a_narrow_terminal_gets_fewer_columns_and_is_told(tmp_path):
    synthetic.sweep(tmp_path)
    wide, narrow = (
        tables.to_terminal(table(tmp_path)).splitlines(),
        tables.to_terminal(table(tmp_path), 80).splitlines(),
    )
    assert max(map(len, wide[:4])) > 80 >= max(map(len, narrow[:4]))
    assert narrow[-1].startswith("left out for lack of space: NMI")
    assert "last " in narrow[0] and "worst tenth" in narrow[0]


def test_bold_changes_nothing_but_the_weight(tmp_path):
    synthetic.sweep(tmp_path)
    plain, bold = (
        tables.to_terminal(table(tmp_path)),
        tables.to_terminal(table(tmp_path), bold=True),
    )
    assert "\033[1m" in bold
    assert re.sub(r"\033\[[01]m", "", bold) == plain


def test_names_cannot_command_the_terminal(tmp_path):
    synthetic.add(Store(tmp_path), "a", 0, label=NASTY)
    assert "\x1b" not in tables.to_terminal(table(tmp_path))


def test_latex_is_escaped_and_balanced(tmp_path):
    store = synthetic.sweep(tmp_path)
    synthetic.add(store, "a", 0, label=NASTY)
    store.write_plan({"units": store.ids()})
    text = table_files.to_latex(table(tmp_path))
    assert (
        r"50\% \& \$x\_1\$ \{a\} \#\textasciitilde{}\textasciicircum{}\textbackslash{} "
        r"\textbar{} *b*" in text
    )
    assert (
        r"\toprule" in text and r"\bottomrule" in text and r"$\pm$" in text and r"\textbf{" in text
    )
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in body} == {len(columns)}
    assert all(ord(c) < 128 or c == "�" for c in text)


def test_markdown_has_as_many_cells_in_every_line(tmp_path):
    store = synthetic.sweep(tmp_path)
    synthetic.add(store, "a", 0, label=NASTY)
    store.write_plan({"units": store.ids()})
    lines = [
        line
        for line in table_files.to_markdown(table(tmp_path)).splitlines()
        if line.startswith("|")
    ]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert (
        len(lines) == 6
        and "**" in "".join(lines)
        and "<i>" not in "".join(lines).replace(r"\<i\>", "")
    )


def test_csv_has_the_numbers_as_they_are(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("ifca", 0.8), ("fedavg", 0.5)), seeds=5)
    synthetic.add(store, "failed-0", 5, method="fedavg", status="failed")
    synthetic.sweep(tmp_path, methods=(("oracle", 0.4),), seeds=5)
    store.write_plan({"units": store.ids()})
    found = {
        line["label"]: line
        for line in csv.DictReader(io.StringIO(table_files.to_csv(table(tmp_path))))
    }
    frame = Results(tmp_path).to_pandas()
    values = frame[(frame.method == "ifca") & (frame.status == "done")].accuracy_last
    assert np.isclose(float(found["ifca"]["accuracy_last_mean"]), values.mean(), rtol=1e-8)
    assert np.isclose(float(found["ifca"]["accuracy_last_std"]), values.std(), rtol=1e-8)
    assert (
        found["ifca"]["done"],
        found["ifca"]["failed"],
        found["ifca"]["accuracy_last_best"],
    ) == ("5", "0", "1")
    assert (found["fedavg"]["failed"], found["fedavg"]["accuracy_last_p"]) == ("1", "")
    assert 0 <= float(found["oracle"]["accuracy_last_p"]) < 0.05


def test_the_first_run_of_a_program_is_no_slower_for_having_compiled_it(tmp_path):
    store = Store(tmp_path)
    for seed, compiling in enumerate((60.0, 0.0, 0.0)):
        spent = {"setup": 1.0, "compile": compiling, "train": 2.0, "eval": 0.5}
        arrays = synthetic.arrays_of(seed, 0.5)
        store.write(
            f"a-{seed}", synthetic.record_of(f"a-{seed}", seed, arrays, timings=spent), arrays
        )
    (row,) = table(tmp_path)
    assert (row.cells["seconds"].mean, row.cells["seconds"].std) == (2.5, 0)
    assert any("without compiling" in note for note in list_notes([row], "*", "~"))


def test_no_text_of_a_csv_file_is_a_formula(tmp_path):
    store = Store(tmp_path)
    for seed, label in enumerate(("=cmd|' /C calc'!A0", "@x", "-1")):
        synthetic.add(store, f"a-{seed}", seed, label=label, varies={"method.mu": f"+{seed} x"})
    lines = list(csv.DictReader(io.StringIO(table_files.to_csv(table(tmp_path)))))
    assert {line["label"] for line in lines} == {"'=cmd|' /C calc'!A0", "'@x", "-1"}
    assert {line["mu"] for line in lines} == {"'+0 x", "'+1 x", "'+2 x"}


def test_options_that_vary_have_their_columns(tmp_path):
    store = Store(tmp_path)
    for lr, data, mu in ((0.1, "digits", [1, 2]), (0.01, "blobs", [3])):
        synthetic.add(
            store, f"a-{lr}", 0, varies={"train.lr": lr, "data.name": data, "method.mu": mu}
        )
    assert [row.configuration.name for row in table(tmp_path)] == [
        "ifca data=blobs lr=0.01 mu=[3]",
        "ifca data=digits lr=0.1 mu=[1, 2]",
    ]
    assert "| method | data | lr | mu | runs |" in table_files.to_markdown(table(tmp_path))
    assert table_files.to_csv(table(tmp_path)).startswith("folder,method,label,data,lr,mu,")


def test_options_stand_beside_a_label_only_where_its_rows_differ_in_them(tmp_path):
    store = Store(tmp_path)
    for label, lr, mu, data in (
        ("far", 0.1, 1, "digits"),
        ("near", 0.1, 2, "digits"),
        ("near", 0.2, 2, "blobs"),
    ):
        varies = {"train.lr": lr, "method.mu": mu, "data.name": data}
        synthetic.add(store, f"{label}-{lr}", 0, label=label, varies=varies)
    found = {row.configuration.name: row.configuration for row in table(tmp_path)}
    names = {each.short: each.legend for each in found.values()}
    assert names == {
        "far": "far data=digits",
        "near lr=0.1": "near data=digits lr=0.1",
        "near lr=0.2": "near data=blobs lr=0.2",
    }
    assert "far data=digits lr=0.1 mu=1" in found  # the whole name, in the browser's hints
    assert "near lr=0.1 " in tables.to_terminal(
        table(tmp_path)
    ) and "mu=" not in tables.to_terminal(table(tmp_path))
    assert "| method | data | lr | mu | runs |" in table_files.to_markdown(table(tmp_path))


def test_papers_have_the_names_of_papers_and_terminal_and_csv_those_of_specs(tmp_path):
    store = Store(tmp_path)
    synthetic.add(store, "a", 0, method="fl_hc")
    synthetic.add(store, "b", 0, method="fl_hc", label="ours")
    found = table(tmp_path)
    assert [row.configuration.legend for row in found] == ["FL+HC", "ours"]
    assert "| FL+HC |" in table_files.to_markdown(found) and "FL+HC &" in table_files.to_latex(
        found
    )
    assert tables.to_terminal(found).splitlines()[1].startswith(
        "fl_hc "
    ) and ",fl_hc,fl_hc," in table_files.to_csv(found)
    for name in filter(METHODS.is_built_in, METHODS):
        assert METHODS.entry(name).summary.partition(":")[0] == find_about(name).title


def test_several_folders_have_a_column_of_their_own(tmp_path):
    for name in ("one", "two"):
        synthetic.sweep(tmp_path / name)
    both = table(tmp_path / "one", tmp_path / "two", tmp_path / "one")
    assert len(both) == 6 and {row.configuration.folder for row in both} == {"one", "two"}
    assert tables.to_terminal(both).splitlines()[1].split()[:2] == ["fedavg", "one"]
    assert "| two | IFCA |" in table_files.to_markdown(
        both
    ) and "folder & method &" in table_files.to_latex(both)
    assert [line["folder"] for line in csv.DictReader(io.StringIO(table_files.to_csv(both)))] == [
        "one"
    ] * 3 + ["two"] * 3


def test_nothing_is_said_in_words(tmp_path):
    Store(tmp_path)
    assert tables.to_terminal([]) == "no finished runs"
    assert tables.write_comparison(Results(tmp_path)) == "no finished runs"
    assert "No finished runs" in table_files.to_markdown([]) and table_files.to_latex(
        []
    ).startswith("%")
    assert table_files.to_csv([]).startswith("folder,method,label")


def test_sizes():
    assert [format_size(v) for v in (0, 999, 1000, 99_940, 99_960, 1.5e9, 2e15)] == [
        "0 B", "999 B", "1.0 kB", "99.9 kB", "100 kB", "1.5 GB", "2000 TB",
    ]  # fmt: skip


def test_the_maximum_is_shown_only_where_it_is_asked_for(tmp_path):
    synthetic.sweep(tmp_path)
    without, with_ = (
        table_files.to_markdown(read([tmp_path], maximum=maximum).table).splitlines()[0]
        for maximum in (False, True)
    )
    assert " max " in with_ and " max " not in without and " last " in without


def test_new_clients_have_a_column_for_each_number_of_steps(tmp_path):
    store = synthetic.sweep(tmp_path)
    for seed in range(3):
        new = {"ari_new": 0.5, "accuracy_new_10": 0.9 + seed / 100, "accuracy_new_2": 0.6}
        synthetic.add(store, f"new-{seed}", seed, method="new", newcomers=new)
    store.write_plan({"name": "new", "units": store.ids()})
    whole = table(tmp_path)
    headings = [column.heading for column in columns_of(whole)]
    assert headings[-3:] == ["new clients, 2 steps", "new clients, 10 steps", "new clients, ARI"]
    found = next(row for row in whole if row.configuration.name == "new").cells["accuracy_new_10"]
    assert found.n == 3 and abs(found.mean - 0.91) < 1e-9
    at_the_end = tables.write_comparison(Results(tmp_path))
    assert "new clients, 2 steps" in at_the_end and "new clients, 10 steps" not in at_the_end
