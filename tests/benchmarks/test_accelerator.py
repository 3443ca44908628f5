"""The benchmark for a rented accelerator: no piece takes another with it, and nothing that was measured is lost."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import accelerator, pieces, two_ways
from benchmarks.foretold import foretold, ratio_foretold
from benchmarks.measure import row
from benchmarks.report import table
from benchmarks.two_ways import AGREEMENTS, with_plan
from cfljax.config import read_spec
from cfljax.devices.chips import machine_of
from cfljax.experiment import assemble, batching
from cfljax.experiment.execution import choose
from cfljax.launch import batch as launched  # now, before a test puts something else in the place of what it imports

ROOT = Path(__file__).parents[2]
PEAK = {"kind": "TPU v9", "platform": "tpu", "device": "tpu TPU v9, 1", "devices": 1, "flops": 1e12, "copy_bytes_per_s": 1e11}
FOUND = {"share_of_peak": 0.3, "chunk_s": 0.01, "predicted_s": None}


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device that measures at once. `fails`: pieces (name, kernel) that fail there; `asked`: those that it was asked for;
    `others`: the way that "auto" does not take, of each workload."""
    here = SimpleNamespace(peak=PEAK, fails=set(), asked=[], others={}, file=tmp_path / "device.json")

    def carried_out(name, given, folder, log):  # noqa: ARG001
        if name == "peaks":
            return here.peak
        here.asked.append((name, given.kernel))
        if (name, given.kernel) in here.fails:
            raise accelerator.Failed("did not compile")
        about = {"machine": given.peak}
        if name in AGREEMENTS:
            return [row(name, "cfljax", about | {"one_kernel": True, "error": 1e-6, "bar": 1e-4, "holds": True})]
        if name == "sweep":
            facts = {"runs": 4, "ratio": 2.0, "predicted_ratio": 3.0, "side_by_side": 4, "halved": 0}
            return [row(given.size.sweep_row, "cfljax", about | facts, median_s=1.0)]
        system = "cfljax" if given.kernel == "auto" else f"cfljax-{given.kernel}"
        ways = {"kernel": "xla", "auto": "xla", "other": here.others.get(name)}
        return [row(name, system, about | FOUND | ways, median_s=0.1), row(name, "floor", about, median_s=0.01)]

    monkeypatch.setattr(accelerator, "carried_out", carried_out)
    monkeypatch.setattr(accelerator, "kernels", lambda file, peak, log: "kernels")  # noqa: ARG005
    here.start = lambda *flags: accelerator.main(["--json", str(here.file), *flags])
    here.rows = lambda: json.loads(here.file.read_text())
    return here


def test_rows_of_another_device_stay_and_a_cpu_writes_nothing(device, capsys):
    device.start("--only", "W1")
    device.peak = PEAK | {"kind": "TPU v8"}
    device.start("--only", "W1")
    before = device.file.read_text()
    assert sorted((r["system"], accelerator.kind_of(r)) for r in device.rows()) == [
        (system, kind) for system in ("cfljax", "floor") for kind in ("TPU v8", "TPU v9")
    ]
    device.peak = PEAK | {"kind": "cpu", "platform": "cpu"}
    assert device.start() == 1 and device.file.read_text() == before
    assert "JAX computes on a CPU here" in capsys.readouterr().out


def test_a_piece_that_fails_takes_no_other_with_it_and_is_tried_again_last(device, capsys):
    device.fails = {("agreement-steps", "auto")}
    assert device.start() == 1
    assert "agreement-steps, cfljax: FAILED: did not compile" in capsys.readouterr().out
    assert [name for name, _ in device.asked] == [*AGREEMENTS, "W1", "W2", "W3", "W4", "sweep"]
    failed = [r for r in device.rows() if "reason" in r["about"]]
    assert [r["workload"] for r in failed] == ["agreement-steps"] and failed[0]["median_s"] is None
    device.file.write_text(json.dumps([r for r in device.rows() if r["workload"] != "W4"]))
    device.asked, device.fails = [], set()
    assert device.start() == 0 and device.asked == [("W4", "auto"), ("agreement-steps", "auto")]
    assert not any("reason" in r["about"] for r in device.rows())


def test_what_is_done_is_not_measured_again_and_small_sizes_do_not_count(device):
    device.start("--tiny")
    assert ("toy", "auto") in device.asked
    device.asked = []
    device.start()
    assert [name for name, _ in device.asked] == ["W1", "W2", "W3", "W4", "sweep"]  # agreements are the same in both sizes
    device.asked = []
    assert device.start() == 0 and device.asked == []
    assert sum(r["system"] == "floor" for r in device.rows()) == 5


def test_the_way_that_auto_does_not_take_is_measured_too_where_there_is_one(device):
    device.others, device.fails = {"W1": "xla", "W4": "pallas"}, {("W2", "auto")}
    device.start("--only", "W1,W2,W3,W4")
    ways = [("W1", "xla"), ("W2", "auto"), ("W2", "xla"), ("W3", "auto"), ("W4", "auto"), ("W4", "pallas")]
    assert device.asked == [("W1", "auto"), *ways]
    assert "| cfljax-pallas | 100 ms" in table(device.rows()) and "cfljax: not measured: did not compile" in table(device.rows())
    device.asked = []
    device.start("--only", "W3", "--kernel", "xla")
    assert device.asked == [("W3", "xla")]


def test_two_ways_that_disagree_are_said_and_end_with_1(device, capsys):
    bad = row("agreement-gram", "cfljax", {"machine": PEAK, "one_kernel": True, "error": 0.1, "bar": 1e-4, "holds": False})
    device.file.write_text(json.dumps([bad]))
    assert device.start("--only", "agreement") == 1
    assert "DOES NOT HOLD: agreement-gram" in capsys.readouterr().out
    assert "0.1 from XLA's kernels, at most 0.0001: DOES NOT HOLD" in accelerator.said(bad)


@pytest.mark.parametrize("name", ["w1", "W5", "toy"])
def test_a_piece_that_there_is_not_is_an_error_of_one_line(device, name):
    with pytest.raises(SystemExit, match=f"--only {name}: there are agreement, agreement-steps, .*W1.*sweep, kernels$"):
        device.start("--only", name)
    assert not device.file.exists()


def test_the_process_that_starts_the_pieces_has_no_jax():
    code = "import sys, benchmarks.accelerator; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=accelerator.ROOT).returncode == 0


def test_a_process_that_breaks_or_hangs_is_a_failure(monkeypatch):
    broken = "import os; os.kill(os.getpid(), 11)"
    with pytest.raises(accelerator.Failed, match="ended by SIGSEGV"):
        accelerator.process([sys.executable, "-c", broken], None)
    monkeypatch.setattr(accelerator, "PATIENCE", 0.1)
    begin = time.perf_counter()
    with pytest.raises(accelerator.Failed, match="not done after"):
        accelerator.process([sys.executable, "-c", "import time; time.sleep(60)"], None)
    assert time.perf_counter() - begin < 30


def test_the_kernels_are_measured_once_and_only_on_the_device(tmp_path, monkeypatch):
    file, started = tmp_path / "kernels.json", []
    rows = [{"machine": {"device": PEAK["device"]}}] * accelerator.KERNELS

    def process(command, log):  # noqa: ARG001
        started.append(command)
        file.write_text(json.dumps(rows))

    monkeypatch.setattr(accelerator, "process", process)
    for _ in range(2):
        accelerator.kernels(file, PEAK, None)
    assert len(started) == 1 and "--no-peers" in started[0]
    file.unlink()
    rows[-1] = {"machine": {"device": "cpu, 1"}}
    with pytest.raises(accelerator.Failed, match="JAX computed on cpu, 1"):
        accelerator.kernels(file, PEAK, None)


def test_a_piece_on_another_device_than_the_first_is_a_failure(tmp_path):
    with pytest.raises(RuntimeError, match="in this process, not on TPU v9"):
        pieces.piece("agreement-steps", pieces.Given(True, "auto", str(tmp_path), PEAK))


def test_a_workload_knows_both_ways_their_predictions_and_the_memory_that_is_foreseen(monkeypatch):
    for module in (two_ways, pieces):
        monkeypatch.setattr(module, "machine", lambda: machine_of("v5e"))
    toy = pieces.WORKLOADS["toy"].spec(4)
    found = two_ways.ways(toy)
    assert {found.auto, found.other} == {"xla", "pallas"} and found.auto == min(found.steps_s, key=found.steps_s.get)
    memory = [pieces._foreseen(with_plan(toy, kernel=kernel)) for kernel in ("xla", "pallas")]
    assert min(memory) > 0 and memory[0] != memory[1]
    none = two_ways.ways(toy | {"train": toy["train"] | {"optimizer": "adam"}})
    assert (none.auto, none.other, none.form) == ("xla", None, None) and "plain SGD" in none.why


def test_the_batches_of_a_sweep_have_one_width_and_are_cut_into_halves_where_they_do_not_fit(monkeypatch):
    spec = pieces.WORKLOADS["toy"].spec(2) | {"seeds": list(range(1))}
    spec["train"]["lr"] = [0.01 * n for n in range(1, 8)]
    widths = []

    def simulate(parts, seeds, hypers):
        assert len(seeds) == len(hypers)
        widths.append(len(seeds))
        if len(seeds) > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return [SimpleNamespace(seconds=SimpleNamespace(train=1.0, eval=0.5, compile=0.25))] * len(seeds)

    monkeypatch.setattr(launched, "assembled", lambda batch, machine: None)  # noqa: ARG005
    monkeypatch.setattr("cfljax.engine.simulate.simulate", simulate)
    monkeypatch.setattr(pieces, "machine", lambda: None)
    each = [pieces.spent(batch) for batch in batching.batches(read_spec(spec).runs(), 4)]
    assert widths == [4, 2, 2, 4, 2, 2]  # the second batch has three runs in a program for four
    assert each == [pieces.Spent(6.0, 1.0, 1)] * 2


def test_predictions_are_those_of_the_chip_and_of_the_way():
    h200, v5e = ({"kind": kind, "devices": 1} for kind in ("NVIDIA H200", "TPU v5 lite"))
    assert foretold("W1", h200, "pallas", 700) == pytest.approx(0.03211, rel=1e-3)
    assert foretold("W1", h200, "xla", 350) == pytest.approx(0.016 / 2, rel=1e-2)
    none = foretold("W3", v5e, "pallas", 10), foretold("W1", v5e | {"devices": 4}, "xla", 700), foretold("W1", PEAK, "xla", 700)
    assert none == (None, None, None)
    assert ratio_foretold(h200, 12) == pytest.approx(201, abs=1) and ratio_foretold(PEAK, 12) is None


@pytest.mark.parametrize("chip", ["v5e", "l4", "h100"])
def test_the_agreements_look_at_each_form_of_the_kernel(chip):
    """Gram form, a first layer that a GPU reads in tiles, a start among several models."""
    found = []
    for workload, plan in AGREEMENTS.values():
        run = read_spec(with_plan(workload.spec(2), kernel="pallas", **plan)).runs()[0]
        federation = assemble.host_federation(run)
        form = choose(run, assemble.model_of(run, federation), federation, machine_of(chip)).form
        found.append((form.gram, form.tile > 0, form.models))
    assert found == [(False, False, 1), (True, False, 1), (False, chip != "v5e", 1), (False, False, 4)]


def test_the_page_has_the_table_of_what_was_measured(capsys):
    assert accelerator.main(["--show", str(ROOT / "benchmarks" / "results" / "h200.json")]) == 0
    shown = capsys.readouterr().out.strip()
    page = (ROOT / "docs" / "accelerators.md").read_text(encoding="utf-8")
    table, lines = shown.split("\n\n")
    assert table in page and page.count("| W1 | one kernel | 17.3 | 25.5 |") == 1
    assert lines.count(": holds") == 4 and lines.endswith("256 runs in 149 times the time of one (predicted 183), 128 side by side")


@pytest.mark.long
def test_the_benchmark_runs_small_anywhere(tmp_path):
    file = tmp_path / "device.json"
    assert accelerator.main(["--tiny", "--json", str(file)]) == 0, (tmp_path / "device.log").read_text()
    rows = json.loads(file.read_text())
    names = [(r["workload"], r["system"]) for r in rows]
    ours = [*((name, "cfljax") for name in AGREEMENTS), ("toy", "cfljax"), ("toy", "cfljax-pallas"), ("toy", "floor")]
    assert names == [*ours, ("fedavg-2-seeds-2-rates", "cfljax")]
    assert all(r["about"]["one_kernel"] and r["about"]["error"] < 1e-4 for r in rows[:4])
    assert rows[4]["about"]["kernel"] == "xla" and rows[5]["about"]["kernel"] == "pallas" and rows[5]["about"]["form"]
    assert all(0 < r["about"]["share_of_peak"] < 1 and r["about"]["chunk_s"] > 0 for r in rows[4:6])
    assert rows[7]["about"]["runs"] == 4 and rows[7]["about"]["ratio"] > 0
    assert accelerator.main(["--tiny", "--json", str(file)]) == 0  # nothing is left to do
    assert json.loads(file.read_text()) == rows
