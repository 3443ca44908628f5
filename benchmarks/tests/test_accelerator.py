"""The benchmark for a rented accelerator: no piece takes another with it, nothing that was measured
is lost, and what is ended leaves a whole file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks import accelerator, accelerator_pieces, profiles

MEASURED = {"runs": 1, "ms_per_round": 2.0, "ms_per_run_round": 2.0, "share_of_peak": 0.5}
SLOW = """
import json, sys, time
about = json.loads(sys.argv[1])
print("begun", flush=True)
with open(about["out"], "w") as file:
    json.dump([{"name": about["name"], "runs": 1}], file)
if about["name"] == "wide-W1":
    time.sleep(60)
"""
"""A piece that has measured a row; the first of them hangs then."""


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device that measures at once: `fails` are pieces that fail there, `asked` those that were
    measured."""

    class Device:
        file, fails, asked = tmp_path / "device.json", set(), []

        def start(self, *flags):
            return accelerator.main(["--json", str(self.file), *flags])

        def rows(self):
            return json.loads(self.file.read_text())

    here = Device()

    def run_piece(name, given, folder, log, seconds):
        here.asked.append(name)
        if name in here.fails:
            return [{"piece": name, "name": name, "reason": "did not compile"}]
        return [{"piece": name, "name": name, "device": "H9"} | MEASURED]

    monkeypatch.setattr(accelerator, "run_piece", run_piece)
    return here


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A file, and pieces of which the first hangs."""
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, str(tmp_path / "slow.py")]
    monkeypatch.setattr(accelerator, "COMMAND", command)
    return tmp_path / "device.json"


def test_the_same_command_measures_only_what_the_file_lacks(device):
    device.fails = {"wide-W2"}
    assert device.start("--only", "wide-W1,wide-W2") == 1
    device.fails, device.asked = set(), []
    assert device.start("--only", "wide-W1,wide-W2,table") == 0
    assert device.asked == ["wide-W2", "table"]
    assert sorted(row["piece"] for row in device.rows() if "reason" not in row) == [
        "table",
        "wide-W1",
        "wide-W2",
    ]


def test_unknown_pieces_and_tables(device, capsys):
    with pytest.raises(SystemExit, match="wide-W9"):
        device.start("--only", "wide-W9")
    device.start("--only", "wide-W1")
    assert accelerator.main(["--show", str(device.file)]) == 0
    assert "| H9 | wide-W1 | 1 | 2 | 2 | – | 50 % |" in capsys.readouterr().out


def test_no_piece_begins_after_the_end_and_the_first_are_the_most_valuable(device):
    assert device.start("--seconds", "0") == 0
    assert device.asked == []
    assert device.start() == 0
    assert device.asked == list(accelerator.PIECES)
    parts = [piece.part for piece in accelerator.PIECES.values()]
    assert parts == sorted(parts)


def test_a_piece_that_hangs_is_ended_and_the_next_is_measured(slow, monkeypatch):
    pieces = {name: accelerator.PIECES[name]._replace(seconds=1.0) for name in ("wide-W1", "table")}
    monkeypatch.setattr(accelerator, "PIECES", pieces)
    begin = time.monotonic()
    assert accelerator.main(["--json", str(slow)]) == 1
    assert time.monotonic() - begin < 30
    rows = json.loads(slow.read_text())
    assert [(row["piece"], "reason" in row) for row in rows] == [
        ("wide-W1", False),  # what it had measured
        ("wide-W1", True),
        ("table", False),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_file_is_whole_where_the_program_is_ended_in_the_middle_of_a_piece(
    slow, number, monkeypatch
):
    handler = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    log, begun = slow.with_suffix(".log"), []

    def interrupt():
        while not (log.is_file() and "begun" in log.read_text()):
            time.sleep(0.05)
        begun.extend(accelerator.read_rows(slow))
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert accelerator.main(["--json", str(slow)]) == 128 + number
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, handler)
    assert begun == []
    rows = json.loads(slow.read_text())
    assert [row.get("reason") for row in rows][-1] == "interrupted"
    assert {row["piece"] for row in rows} == {"wide-W1"}


def test_aims_are_met_or_missed_beside_two_cores():
    there = accelerator.two_cores()
    assert {name.removeprefix("wide-") for name in accelerator.REFERRED} <= set(there)
    row = {"name": "W1", "runs": 256, "ms_per_run_round": there["W1"] / 11}
    found = accelerator.judge(row)
    assert found["times_two_cores"] == pytest.approx(11) and found["aim"]["met"]
    assert not accelerator.judge(row | {"ms_per_run_round": there["W1"] / 9})["aim"]["met"]
    assert accelerator.judge(row | {"small": True}) == row | {"small": True}


def test_each_piece_has_a_function():
    kinds = {piece.kind for piece in (accelerator.PIECES | accelerator.MORE).values()}
    assert kinds == set(accelerator_pieces.KINDS)


def test_the_process_that_starts_the_pieces_has_no_jax():
    code = "import sys, benchmarks.accelerator; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=accelerator.ROOT).returncode == 0


def trace(plane, line, kernels):
    """A trace with these (kernel, begin in µs, length in µs)."""
    from jax.profiler import ProfileData

    names = sorted({name for name, _, _ in kernels})
    named = "".join(
        f'event_metadata {{ key: {k} value {{ id: {k} name: "{name}" }} }} '
        for k, name in enumerate(names, 1)
    )
    shown = "".join(
        f"events {{ metadata_id: {names.index(name) + 1} offset_ps: {int(1e6 * begin)} "
        f"duration_ps: {int(1e6 * length)} }} "
        for name, begin, length in kernels
    )
    other = 'planes { id: 2 name: "/host:CPU" }'
    text = f'planes {{ id: 1 name: "{plane}" {named} lines {{ id: 1 name: "{line}" {shown} }} }}'
    data = ProfileData.text_proto_to_serialized_xspace(f"{text} {other}")
    return profiles.summarise(profiles.events(ProfileData.from_serialized_xspace(data)))


@pytest.mark.parametrize(
    ("plane", "line"),
    [("/device:GPU:0", "Stream #13(Compute)"), ("/device:TPU:0", "XLA Ops")],
)
def test_a_trace_tells_the_dearest_kernels_the_launches_of_a_step_and_the_gaps(plane, line):
    steps = [
        kernel
        for k in range(10)
        for kernel in (("gemm_fusion_dot_3", 10.0 * k, 6.0), ("loop_convert_fusion", 10 * k + 7, 2))
    ]
    found = trace(
        plane,
        line,
        [("copy_1", -5.0 + 10, 0.0), *steps, ("while.2", 0.0, 100.0), ("cond.1", 0.0, 100.0)],
    )
    assert (found["launches"], found["local_steps"]) == (21, 10)
    assert found["launches_per_step"] == pytest.approx(2.1)
    assert found["share_in_products"] == pytest.approx(0.75)
    assert [kernel["name"] for kernel in found["kernels"]][:2] == [
        "gemm_fusion_dot_3",
        "loop_convert_fusion",
    ]
    # 1 µs between the two kernels of a step, and 1 µs to the next step
    assert found["gaps"]["number"] == 19
    assert found["gaps"]["median_us"] == pytest.approx(1.0)


def test_a_trace_without_kernels_is_no_fault():
    assert accelerator.show_profile("W1", trace("/device:GPU:0", "Stream #1", []))


@pytest.mark.rare
def test_pieces_run_in_small(tmp_path):
    file = tmp_path / "device.json"
    pieces = "wide-W1,table,agreement,board,evidence,flags-while,precision-W4"
    flags = ["--small", "--seconds", "1200", "--only", pieces]
    assert accelerator.main(["--json", str(file), *flags]) == 0
    rows = json.loads(file.read_text())
    assert {row["piece"] for row in rows} == set(pieces.split(","))
    assert not [row for row in rows if {"reason", "skipped", "left"} & set(row)]
    assert all(row["profile"]["kernels"] for row in rows if row["piece"] == "wide-W1")
    record = next(row["record"] for row in rows if row["piece"] == "evidence")
    assert Path(record).is_dir()
    assert {row["precision"] for row in rows if row["piece"] == "precision-W4"} == {
        "highest",
        "high",
        "bfloat16",
    }
