"""`train.clock` from the spec to records, tables and the page."""

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.engine.metrics import RESERVED_NAMES
from cfljax.errors import SpecError
from cfljax.experiment.batching import make_batches
from cfljax.report.report_data import read
from cfljax.report.tables import to_terminal
from cfljax.report.write import write
from cfljax.results.statistics import mean_and_deviation
from cfljax.store import summarise
from tests.often import rarely
from tests.report import synthetic

BLOBS = {
    "name": "blobs",
    "samples": 240,
    "features": 6,
    "classes": 4,
    "clients": 6,
    "partition": "quantity",
}
TRAIN = {"rounds": 3, "lr": 0.2}
CLOCK = {"step_ms": 20, "down_mbps": 1, "up_mbps": 0.1}


def spec(clock=None, seeds=(0,), method="fedavg", **data):
    train = TRAIN | ({} if clock is None else {"clock": clock})
    return {
        "data": BLOBS | data,
        "model": "mclr",
        "train": train,
        "method": [method],
        "seeds": list(seeds),
    }


def runs(*args, **more):
    return read_spec(spec(*args, **more)).runs()


@pytest.mark.parametrize(
    ("clock", "told"),
    [
        (3, r"train.clock = 3: must be .*a table"),
        (
            {"deadline": 3},
            r'train.clock.deadline: there is no such option; did you mean "deadline_s"',
        ),
        ({"speed": "slow"}, r'train.clock.speed = "slow": unknown'),
        (
            {"speed": "same", "spread": 1.0},
            r'train.clock.spread = 1.0: belongs to speed = "lognormal"',
        ),
        ({"up_mbps": 0}, r"train.clock.up_mbps = 0.0: must be greater than 0"),
        ({"trace": "nowhere.csv"}, r"train.clock.trace: nowhere.csv: cannot be read"),
    ],
)
def test_mistakes_get_a_line_before_any_data_is_loaded(clock, told):
    with pytest.raises(SpecError, match=told):
        runs(clock)


def test_clocks_of_other_numbers_share_a_program_and_a_deadline_has_another():
    grid = runs({"step_ms": [1, 5], "up_mbps": [1, 5], "spread": [0.5, 1.0]}, seeds=(0, 1))
    assert len(grid) == 16 and len({batch.program for batch in make_batches(grid, 100)}) == 1
    late = runs({"deadline_s": [1, 2]})
    assert len({batch.program for batch in make_batches(grid + late, 100)}) == 2


def test_a_trace_counts_by_its_contents(tmp_path, monkeypatch):
    lines = "client,round,speed\n0,1,0.5\n"
    for name, text in (("a.csv", lines), ("b.csv", lines), ("c.csv", lines.replace("0.5", "0.25"))):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    a, b, c = (runs({"trace": name})[0] for name in ("a.csv", "b.csv", "c.csv"))
    assert (
        a.id == b.id != c.id and a.contents["train.clock.trace"] != c.contents["train.clock.trace"]
    )
    (tmp_path / "a.csv").write_text(lines.replace("0.5", "0.75"))
    assert runs({"trace": "a.csv"})[0].id not in (b.id, c.id)


def test_seeds_meet_the_same_devices_unless_they_draw_the_data():
    same = [cfljax.run(**_run(seed=s)).history["clock_s"] for s in (0, 1)]
    assert (
        same[0].tolist() == same[1].tolist()
    )  # all clients take part, so that only their devices could make a difference
    own = [cfljax.run(**_run(seed=s, data={"seed": "run"})).history["clock_s"] for s in (0, 1)]
    assert own[0].tolist() != own[1].tolist()


def _run(seed=0, data=None, clock=None, method="fedavg"):
    train = TRAIN | {"clock": clock or CLOCK}
    return {
        "data": BLOBS | (data or {}),
        "model": "mclr",
        "method": method,
        "train": train,
        "seed": seed,
    }


def test_the_record_has_the_time_its_cost_and_the_time_to_the_target():
    run = cfljax.run(**_run(clock=CLOCK | {"cost_per_s": 0.5}))
    clock, accuracy = run.history["clock_s"], run.history["accuracy"]
    assert (
        run.summary["clock_s"] == pytest.approx(clock[-1])
        and run.summary["clock_to_target"] is None
    )
    assert run.summary["cost"] == pytest.approx(0.5 * run.summary["device_s"])
    target = float(accuracy[2])
    first = next(t for t in range(1, 4) if accuracy[t] >= accuracy[2])
    assert summarise(run.history, target=target)["clock_to_target"] == pytest.approx(clock[first])
    assert "cost" not in cfljax.run(**_run()).summary


def test_tables_frames_and_the_page_show_it(tmp_path):
    results = cfljax.sweep(spec(CLOCK, (0, 1, 2), method="ifca"), tmp_path / "timed", target=0.3)
    frame = results.to_pandas()
    assert np.isfinite(frame[["clock_s", "clock_to_target", "device_s"]]).all().all()
    data = read([results.store.folder], target=0.3)
    (row,) = data.table
    assert row.cells["clock_s"].mean == pytest.approx(mean_and_deviation(frame["clock_s"])[0])
    text = to_terminal(data.table, width=200)
    assert "simulated seconds to target" in text.replace("\n", " ")
    page = write(data, tmp_path / "report").read_text()
    assert '"clock_s":[{"x":' in page and (tmp_path / "report" / "figures" / "clock.svg").exists()
    assert '"waited":[[' in page and '"waited":[[]]' not in page
    synthetic.sweep(tmp_path / "plain")
    plain = read([tmp_path / "plain"])
    assert "clock_s" not in plain.table[0].cells
    assert '"clock_s":' not in write(plain, tmp_path / "without", False).read_text()


def test_what_needs_everybody_refuses_a_deadline_and_a_trace(tmp_path):
    (tmp_path / "trace.csv").write_text("client,round,available\n0,1,0\n")
    trace = {"trace": str(tmp_path / "trace.csv")}
    assert runs({}, method="cfl_sattler")
    for clock in ({"deadline_s": 1.0}, trace):
        said = (
            rf"train.clock.{min(clock)} = .* with method.cfl_sattler: all members .*; leave it out"
        )
        with pytest.raises(SpecError, match=said):
            runs(clock, method="cfl_sattler")


def test_noise_refuses_a_trace(tmp_path):
    pytest.importorskip("dp_accounting")
    (tmp_path / "trace.csv").write_text("client,round,available\n0,1,0\n")
    table = spec({"trace": str(tmp_path / "trace.csv")})
    table["train"]["privacy"] = {"clip": 1.0, "noise": 1.0}
    with pytest.raises(
        SpecError,
        match=r"train.clock.trace with train.privacy.noise = 1.0: ε is computed for draws",
    ):
        read_spec(table).runs()


@pytest.mark.parametrize("what", ["trace", rarely("drift")])
def test_a_file_that_lay_elsewhere_makes_no_other_configuration(tmp_path, what):
    for name, seeds in (("a", (0,)), ("b", (0, 1))):
        file = tmp_path / f"{name}.csv"
        file.write_text(
            "client,round,speed\n0,1,0.5\n" if what == "trace" else "round,client,group\n1,0,1\n"
        )
        drift = {"partition": "label_permutation", "groups": 2, "drift": {"file": str(file)}}
        table = {"clock": {"trace": str(file)}} if what == "trace" else drift
        cfljax.sweep(spec(seeds=seeds, **table), tmp_path / "results")
    (row,) = read([tmp_path / "results"]).table
    assert row.cells["accuracy_last"].n == 2


def test_no_metric_of_a_user_may_have_the_name_of_a_quantity_of_the_history():
    drift = {"partition": "label_permutation", "groups": 2, "validation": 0.2, "drift": {"at": [1]}}
    history = cfljax.run(**_run(data=drift, clock=CLOCK | {"deadline_s": 1.0})).history
    assert {"late", "clock_s", "val_loss", "groups_changed"} <= set(history) <= RESERVED_NAMES
