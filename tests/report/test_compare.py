import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from cfljax.report import tables
from cfljax.report.cells import format_cell
from cfljax.report.comparison import list_columns, rows
from cfljax.report.configurations import collect
from cfljax.report.notes import list_notes
from cfljax.report.report_data import read
from cfljax.report.results import Results
from cfljax.results.statistics import holm, paired_t
from cfljax.store import Store
from tests.report import synthetic


def table(folder, target=None):
    return {
        row.configuration.name: row.cells for row in rows(collect([folder], target).configurations)
    }


@pytest.mark.parametrize("n", [3, 5, 20])
def test_the_test_is_scipys_paired_t_test(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        a, b = rng.standard_normal(n), rng.standard_normal(n) + 0.3
        assert paired_t(a, b) == pytest.approx(ttest_rel(a, b).pvalue, rel=1e-9)


def test_differences_that_are_all_the_same_leave_no_doubt():
    assert paired_t([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]) == 1.0
    assert paired_t([0.5, 0.6, 0.7], [0.6, 0.7, 0.8]) == 0.0


def test_holms_correction():
    # Holm 1979 by hand: sorted 0.01·4, 0.02·3, 0.03·2 (raised to the one before), 0.5·1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_mean_deviation_best_and_what_cannot_be_told_from_it(tmp_path):
    store = Store(tmp_path)
    levels = {
        "best": (0.90, 0.91, 0.92, 0.90, 0.92),
        "near": (0.905, 0.90, 0.92, 0.91, 0.90),
        "far": (0.5, 0.52, 0.53, 0.51, 0.52),
    }
    for label, values in levels.items():
        for seed, value in enumerate(values):
            given = {"label": label, "timings": {"train": 1.0}, "summary": {"accuracy_max": value}}
            record = synthetic.record_of(f"{label}-{seed}", seed, {}, **given)
            store.write(record["id"], record, {})
    found = {name: cells["accuracy_max"] for name, cells in table(tmp_path).items()}
    assert found["best"].best and not found["near"].best
    assert found["near"].tied and not found["far"].tied
    assert found["best"].mean == pytest.approx(0.91) and found["best"].std == pytest.approx(0.01)
    p = [ttest_rel(levels[name], levels["best"]).pvalue for name in ("near", "far")]
    assert found["far"].p == pytest.approx(min(1, 2 * min(p)))
    assert found["near"].p == pytest.approx(max(2 * min(p), max(p)))


def test_two_shared_seeds_are_not_tested(tmp_path):
    synthetic.sweep(tmp_path, seeds=2)
    cells = table(tmp_path)
    assert all(cell.p is None for each in cells.values() for cell in each.values())
    assert "2 seeds: too few to test" in tables.to_terminal(
        rows(collect([tmp_path]).configurations)
    )


def test_only_runs_that_ended_well_count(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("ifca", 0.8),))
    before = table(tmp_path)["ifca"]["accuracy_last"]
    synthetic.add(store, "ifca-8", 8, 0.1, status="diverged")
    synthetic.add(store, "ifca-9", 9, status="failed")
    store.write_plan({"units": store.ids()})
    assert table(tmp_path)["ifca"]["accuracy_last"] == before
    assert collect([tmp_path]).configurations[0].runs == "5 (1 diverged, 1 failed)"


def test_runs_on_other_data_are_not_compared(tmp_path):
    store = Store(tmp_path)
    for clients, level in ((10, 0.9), (20, 0.5)):
        for seed in range(3):
            for method, more in (("fedavg", 0.0), ("ifca", 0.05)):
                name = f"{method}-{clients}-{seed}"
                synthetic.add(
                    store, name, seed, level + more, method=method, varies={"data.clients": clients}
                )
    found = table(tmp_path)
    assert [name for name, cells in found.items() if cells["accuracy_last"].best] == [
        "ifca clients=10",
        "ifca clients=20",
    ]
    text = tables.to_terminal(rows(collect([tmp_path]).configurations))
    assert "\nclients=10\n" in text and "\nclients=20\n" in text
    assert "best of the column on the same data" in text


def test_a_target_that_only_some_reach_says_so_and_wins_nothing(tmp_path):
    store = Store(tmp_path)
    for label, reached in (("quick", (3, 99, 99)), ("slow", (8, 9, 10)), ("slower", (12, 13, 14))):
        for seed, value in enumerate(reached):
            summary = {"accuracy_max": 0.5, "round_to_target": 1}  # of another target
            record = synthetic.record_of(
                f"{label}-{seed}", seed, {}, label=label, timings={}, summary=summary
            )
            rounds = np.arange(20)
            store.write(
                record["id"],
                record,
                {"history/round": rounds, "history/accuracy": 0.4 + 0.2 * (rounds >= value)},
            )
    cells = {name: each["round_to_target"] for name, each in table(tmp_path, 0.5).items()}
    assert not cells["quick"].best and cells["slow"].best
    column = next(c for c in list_columns() if c.key == "round_to_target")
    assert format_cell(column, cells["quick"]) == "3 (1 of 3)"


def test_without_a_target_there_is_no_column_for_it(tmp_path):
    synthetic.sweep(tmp_path)
    assert all("round_to_target" not in cells for cells in table(tmp_path).values())


def test_what_no_run_has_is_no_number(tmp_path):
    synthetic.sweep(tmp_path, nan=True)
    for cells in table(tmp_path).values():
        assert (
            cells["accuracy_last"].n == 0
            and math.isnan(cells["accuracy_last"].mean)
            and not cells["accuracy_last"].best
        )


def add_curve(store, method, seed, accuracy, **timings):
    """Add a run with this accuracy at the evaluations after rounds 0, 1, …, and 1000 bytes per
    round."""
    rounds = np.arange(len(accuracy))
    arrays = {
        "history/round": rounds,
        "history/accuracy": np.array(accuracy, np.float32),
        "history/bytes_up": 400.0 * rounds,
        "history/bytes_down": 600.0 * rounds,
    }
    spent = {"setup": 1.0, "compile": 2.0, "train": 3.0, "eval": 1.0} | timings
    name = f"{method}-{seed}"
    record = synthetic.record_of(name, seed, arrays, method=method, timings=spent)
    store.write(name, record, arrays)


def test_costs_are_counted_to_the_accuracy_of_fedavg_with_the_same_seed(tmp_path):
    store = Store(tmp_path)
    # FedAvg ends at 0.5 and 0.7; what has the accuracy before round 1 has paid nothing yet
    for seed, level in enumerate((0.5, 0.7)):
        add_curve(store, "fedavg", seed, [0.1, 0.2, 0.3, 0.4, level])
        add_curve(store, "ifca", seed, [0.9, 0.6, 0.6, 0.8, 0.8])
        add_curve(store, "ditto", seed, [0.1, 0.1, 0.1, 0.1, 0.6], train=7.0)
    cells = {row.configuration.method: row.cells for row in read([tmp_path]).table}
    assert [cells["fedavg"][f"{name}_to_fedavg"].mean for name in ("round", "bytes")] == [4, 4000]
    # IFCA has 0.5 after round 1 and 0.7 after round 3, of four rounds in four seconds
    found = [cells["ifca"][f"{name}_to_fedavg"] for name in ("round", "bytes", "seconds")]
    assert [cell.mean for cell in found] == [2, 2000, 2.0] and found[0].n == 2
    reached = cells["ditto"]["seconds_to_fedavg"]
    assert (reached.mean, reached.n, reached.total) == (8.0, 1, 2)
    assert cells["ifca"]["round_to_fedavg"].best and not cells["ditto"]["round_to_fedavg"].best
    said = list_notes(read([tmp_path]).table, "*", "≈")
    assert any(note.startswith("to FedAvg: ") for note in said)
    # A cell without a number may also mean that there is nothing to reach
    add_curve(store, "ifca", 2, [0.9, 0.6, 0.6, 0.8, 0.8])
    assert not any("have no FedAvg" in note for note in said)
    said = list_notes(read([tmp_path]).table, "*", "≈")
    assert any(note.startswith("1 of 7 runs have no FedAvg") for note in said)
    (left_out,) = [note for note in said if note.startswith("not in the seconds")]
    assert "compiling (2.0 s)" in left_out and "pre-training (1.0 s)" in left_out


def test_without_fedavg_or_with_a_target_no_cost_is_counted_to_it(tmp_path):
    store = Store(tmp_path)
    for method in ("ifca", "ditto", "fedavg"):
        add_curve(store, method, 0, [0.1, 0.4, 0.5])
    # FedAvg counts, even if it is not shown
    (row,) = read([tmp_path], methods=["ifca"]).table
    assert row.cells["round_to_fedavg"].mean == 2
    with_target = read([tmp_path], target=0.4).table[0].cells
    assert "round_to_fedavg" not in with_target and with_target["seconds_to_target"].mean == 2.0
    # Other columns do not mean that there is no FedAvg
    for more in ({}, {"target": 0.4}, {"methods": ["ifca", "ditto"]}):
        said = list_notes(read([tmp_path], names=["last", "bytes"], **more).table, "*", "≈")
        assert not any("there is no FedAvg" in note for note in said)
    assert all(
        "to_fedavg" not in name for name in Results(tmp_path).filter(method="fedavg").table()
    )
    chosen = Results(tmp_path).filter(method=["ifca", "ditto"])
    table = read([chosen]).table
    assert all("round_to_fedavg" not in row.cells for row in table)
    assert any("there is no FedAvg whose accuracy" in note for note in list_notes(table, "*", "≈"))
