"""The benchmark for a rented accelerator: no piece takes another with it, and nothing that was
measured is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import accelerator, accelerator_pieces


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

    def run_piece(name, given, folder, log):
        here.asked.append(name)
        if name in here.fails:
            return [{"piece": name, "name": name, "reason": "did not compile"}]
        measured = {"runs": 1, "ms_per_round": 2.0, "ms_per_run_round": 2.0, "share_of_peak": 0.5}
        return [{"piece": name, "name": name, "device": "H9"} | measured]

    monkeypatch.setattr(accelerator, "run_piece", run_piece)
    return here


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
    assert "| H9 | wide-W1 | 1 | 2 | 2 | 50 % |" in capsys.readouterr().out


def test_each_piece_has_a_function():
    assert set(accelerator.PIECES.values()) <= set(dir(accelerator_pieces))


def test_the_process_that_starts_the_pieces_has_no_jax():
    code = "import sys, benchmarks.accelerator; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=accelerator.ROOT).returncode == 0


@pytest.mark.rare
def test_pieces_run_in_small(tmp_path):
    file = tmp_path / "device.json"
    pieces = "agreement,wide-W1,flags-while,table,precision-W4"
    assert accelerator.main(["--json", str(file), "--tiny", "--only", pieces]) == 0
    rows = json.loads(file.read_text())
    assert {row["piece"] for row in rows} == set(pieces.split(","))
    assert {row["precision"] for row in rows if row["piece"] == "precision-W4"} == {
        "highest",
        "high",
        "bfloat16",
    }
