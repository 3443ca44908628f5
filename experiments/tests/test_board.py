"""The board: rows of runs, files that others add, ranks and the page."""

import json

import numpy as np
import pytest

from cfljax.commands import process
from cfljax.errors import DataError
from cfljax.results.statistics import ranks
from cfljax.store import Store
from experiments.replication import board, board_page
from experiments.replication.__main__ import parser, run
from tests.report import synthetic

SETTINGS = ("digits rotated", "digits dirichlet alpha=0.1", "mnist rotated")


def put(store, method, setting, seed, accuracy, lr=0.1, val=0.5):
    name = f"{method}-{setting}-{seed}-{lr}".replace(" ", "_").replace('"', "")
    data, partition, *more = setting.split(" ")
    synthetic.add(store, name, seed, method=method)
    record, arrays = store.record(name), dict(store.read(name).arrays)
    options = {"name": data, "partition": partition, "normalise": "unit"}
    options |= {"balance": "shares"} if partition == "dirichlet" else {}
    options |= {key: json.loads(value) for key, _, value in (word.partition("=") for word in more)}
    record["config"] |= {"data": options, "train": {"lr": lr}}
    record["varies"] = {f"data.{key}": value for key, value in options.items()} | {"train.lr": lr}
    record["summary"] |= {
        "accuracy_at_best_val": accuracy,
        "bytes_up": 1_000_000,
        "bytes_down": 2_000_000,
        "accuracy_new_5": 0.25,
    }
    record |= {"versions": {"cfljax": "0.2"}, "git": {"commit": "abcdef0123456789", "dirty": True}}
    arrays["history/val_accuracy"] = np.full(arrays["history/round"].shape, val, np.float32)
    store.write(name, record, arrays)


@pytest.fixture
def runs(tmp_path):
    store = Store(tmp_path / "runs")
    for place, setting in enumerate(SETTINGS):
        for seed in range(3):
            for level, method in ((0.9, "ifca"), (0.8, "fedavg"), (0.7, "ditto")):
                put(store, method, setting, seed, level + place / 100 + seed / 1000)
    store.write_plan({"name": "the board", "units": store.ids()})
    return tmp_path


def test_a_row_says_what_was_run_and_what_came_out(runs):
    (row,) = [
        r for r in board.rows([runs / "runs"]) if r[:3] == ("ifca", "digits dirichlet alpha=0.1", 2)
    ]
    assert (row.chosen, row.cfljax, row.commit) == ("lr=0.1", "0.2", "abcdef012345+")
    assert row.run in Store(runs / "runs").ids()
    assert (
        row.numbers["accuracy"] == pytest.approx(0.912)
        and row.numbers["megabytes"] == 3
        and row.numbers["accuracy_new_5"] == 0.25
    )


def test_samples_of_another_scale_are_another_setting(runs):
    store = Store(runs / "runs")
    for scale in ("unit", "pixel"):
        put(store, "fedavg", f'digits rotated normalise="{scale}"', 7, 0.5)
    store.write_plan({"name": "the board", "units": store.ids()})
    found = {r.setting for r in board.rows([runs / "runs"]) if r.seed == 7}
    assert found == {"digits rotated", "digits rotated normalise=pixel"}


def test_numbers_are_chosen_by_validation_and_not_by_the_test(runs):
    store = Store(runs / "runs")
    for seed in range(3):
        put(
            store, "ditto", SETTINGS[0], seed, 0.99, lr=0.3, val=0.4
        )  # better on the test, worse in validation
        put(store, "ifca", SETTINGS[0], seed, 0.6, lr=0.3, val=0.6)
    store.write_plan({"name": "the board", "units": store.ids()})
    found = {
        r.method: (r.chosen, r.numbers["accuracy"])
        for r in board.rows([runs / "runs"])
        if r[1:3] == (SETTINGS[0], 0)
    }
    assert found["ditto"] == ("lr=0.1", pytest.approx(0.7)) and found["ifca"] == ("lr=0.3", 0.6)
    for name in store.ids():
        arrays = {
            key: a for key, a in store.read(name).arrays.items() if key != "history/val_accuracy"
        }
        store.write(name, store.record(name), arrays)
    with pytest.raises(DataError, match="nothing to choose by"):
        board.rows([runs / "runs"])


def test_numbers_at_which_a_seed_diverged_are_not_chosen(runs):
    store = Store(runs / "runs")
    for seed in range(3):
        put(store, "ditto", SETTINGS[0], seed, 0.99, lr=0.3, val=0.99)
    store.write_plan({"name": "the board", "units": (names := store.ids())})
    assert {r.chosen for r in board.rows([runs / "runs"]) if r[:2] == ("ditto", SETTINGS[0])} == {
        "lr=0.3"
    }
    (name,) = [n for n in names if n.startswith("ditto") and n.endswith("-2-0.3")]
    store.write(name, store.record(name) | {"status": "diverged"}, dict(store.read(name).arrays))
    found = [r for r in board.rows([runs / "runs"]) if r[:2] == ("ditto", SETTINGS[0])]
    assert [r.chosen for r in found] == ["lr=0.1"] * 3


def test_a_file_of_rows_is_read_as_it_was_written(runs, tmp_path):
    found = board.rows([runs / "runs"])
    (tmp_path / "ours.csv").write_text(board.to_csv(found))
    read = board.from_csv(tmp_path / "ours.csv")
    assert [r[:7] for r in read] == [r[:7] for r in sorted(found)] and {r.by for r in read} == {
        "ours"
    }
    assert [r.numbers for r in read] == [pytest.approx(r.numbers) for r in sorted(found)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("setting", "place"), 'has no column "setting"'),
        (lambda text: text.replace(",0,lr", ",zero,lr", 1), "line 2: must have numbers"),
        (lambda text: text.replace(",0.7,", ",70,", 1), "line 2: accuracy"),
    ],
)
def test_a_mistake_in_a_file_of_rows_is_named(runs, change, said):
    rows = sorted(
        board.rows([runs / "runs"]), key=lambda r: (r.method, r.setting != SETTINGS[0], r.seed)
    )
    text = board.to_csv([r for r in rows if r.setting == SETTINGS[0]])
    (runs / "theirs.csv").write_text(change(text))
    with pytest.raises(DataError, match=f"theirs.csv: .*{said}"):
        board.from_csv(runs / "theirs.csv")


def test_the_page_has_ranks_over_all_settings(runs):
    rows = board.rows([runs / "runs"])
    pages = board_page.page(rows)
    wanted = ranks(["ditto", "fedavg", "ifca"], np.array([[0.7, 0.8, 0.9]] * 3))
    lines = [
        line.strip("| ").split(" | ")
        for line in pages["index.md"].splitlines()
        if line.startswith("| ")
    ]
    table = {line[0]: line[1:] for line in lines[:5]}
    assert [table[name][0] for name in wanted.names] == [
        "1.00",
        "2.00",
        "3.00",
    ] and wanted.names == ["ifca", "fedavg", "ditto"]
    assert table["ifca"][1:4] == ["91.1", "25.0", table["ifca"][3]]
    best = (
        "**ifca has the best mean rank, 1.00, and does not differ significantly from 1 of the 2 others: the "
        "ranks of ditto are"
    )
    assert (
        best in pages["index.md"]
        and "3 methods on 3 partitions of digits and mnist" in pages["index.md"]
    )
    assert (
        pages["ranks.svg"].startswith('<svg xmlns="http://www.w3.org/2000/svg"')
        and "ditto 3.00" in pages["ranks.svg"]
    )
    assert (
        "| ifca | 91.1 ± 0.1 | 90.1 ± 0.1 |" in pages["index.md"]
        and "### mnist" in pages["index.md"]
    )


def test_a_method_that_lacks_a_setting_is_listed_without_a_rank(runs):
    rows = [
        r for r in board.rows([runs / "runs"]) if (r.method, r.setting) != ("ditto", SETTINGS[2])
    ]
    pages = board_page.page(rows)
    assert "There are no ranks yet" in pages["index.md"] and "ranks.svg" not in pages
    more = [
        r._replace(method="fedem", numbers={"accuracy": 0.1}) for r in rows if r.method == "ifca"
    ]
    pages = board_page.page([*rows, *more])
    assert (
        "| ditto (2 of 3 settings) | – |" in pages["index.md"] and "ditto" not in pages["ranks.svg"]
    )
    assert "| ifca | " in pages["index.md"]  # has all of them


def test_rows_on_settings_that_nobody_else_has_take_no_ranks_away(runs):
    rows = board.rows([runs / "runs"])
    alone = [
        r._replace(method="mine", setting="emnist rotated")
        for r in rows
        if r[:2] == ("ifca", SETTINGS[0])
    ]
    before, after = board_page.page(rows), board_page.page([*rows, *alone])
    assert (
        after["ranks.svg"] == before["ranks.svg"]
        and "| mine | – |" in after["index.md"]
        and "### emnist" in after["index.md"]
    )


@pytest.mark.parametrize("size", ["small", "medium", ""])
def test_the_page_says_the_command_that_makes_rows_on_its_settings(runs, size):
    named = {
        "small": lambda name: name.replace("mnist", "digits turned"),
        "medium": lambda name: f"{name} 20x100",
        "": str,
    }[size]
    text = board_page.page(
        [r._replace(setting=named(r.setting)) for r in board.rows([runs / "runs"])]
    )["index.md"]
    (line,) = [line for line in text.splitlines() if "cfljax.sweep" in line]
    assert [line for line in ("small", "medium") if f"--set size={line} " in text] == [size] * bool(
        size
    )
    assert ("CFLJAX_DATA=DATA" in line) is (size != "small") and (
        "docs/board/medium --name" in text
    ) is (size == "medium")
    assert "--plugin FILE --set method=NAME" in line and line.endswith("--out results/mine`")


def test_what_is_written_by_hand_about_the_settings_stands_above_the_ranks(runs):
    (runs / "ours.csv").write_text(board.to_csv(board.rows([runs / "runs"])))
    (runs / "about.txt").write_text("Twenty clients.\n")
    text = board_page.board(runs)["index.md"]
    assert 0 < text.index("\n\nTwenty clients.\n\n") < text.index("has the best mean rank")
    assert "Twenty clients" not in board_page.page(board.rows([runs / "runs"]))["index.md"]


def test_another_cut_of_the_data_is_another_setting(tmp_path):
    store = Store(tmp_path)
    for seed, samples in enumerate((100, 200)):
        put(store, "ifca", f"mnist rotated clients=20 samples_per_client={samples}", seed, 0.5)
    store.write_plan({"name": "the board", "units": store.ids()})
    assert {row.setting for row in board.rows([tmp_path])} == {
        "mnist rotated 20x100",
        "mnist rotated 20x200",
    }


def test_the_default_balance_of_a_partition_is_not_named(runs):
    store = Store(runs / "runs")
    for seed, balance in enumerate(("shares", "equal"), 7):
        put(store, "ifca", f'{SETTINGS[1]} balance="{balance}"', seed, 0.5)
    store.write_plan({"name": "the board", "units": store.ids()})
    found = {row.seed: row.setting for row in board.rows([runs / "runs"]) if row.seed > 6}
    assert found == {7: SETTINGS[1], 8: f'{SETTINGS[1]} balance="equal"'}


def test_a_method_that_two_send_says_whose_it_is(runs):
    rows = [r._replace(by="ours") for r in board.rows([runs / "runs"])]
    theirs = [
        r._replace(by="theirs", numbers={"accuracy": 0.5}) for r in rows if r.method == "ifca"
    ]
    page = board_page.page([*rows, *theirs])["index.md"]
    assert (
        "| ifca (ours) | 1.00 |" in page
        and "| ifca (theirs) | 4.00 |" in page
        and "| fedavg | 2.00 |" in page
    )


def test_the_command_adds_a_file_and_makes_the_page_again(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert process.main(run, parser(), ["runs", "--board", "b", "--name", "ours"]) == 0
    assert capsys.readouterr().out == "rows: b/ours.csv, 27 runs\npage: b/index.md\n"
    first = (runs / "b" / "index.md").read_text()
    (runs / "b" / "index.md").unlink()
    assert process.main(run, parser(), ["--board", "b"]) == 0
    assert (runs / "b" / "index.md").read_text() == first and "`ours.csv`" in first
    capsys.readouterr()
    for words in (
        ["runs", "--board", "b"],
        ["--board", "b", "--name", "x"],
        ["runs", "--board", "b", "--name", "a/b"],
    ):
        assert process.main(run, parser(), words) == 2
        assert capsys.readouterr().err.count("\n") == 1
