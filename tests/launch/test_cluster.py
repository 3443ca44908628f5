"""The Slurm launcher on a real Slurm. `.ci/slurm` starts one on this machine, and runs these tests."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cfljax.launch import slurm
from cfljax.store import Store
from tests.launch import test_slurm
from tests.launch.processes import python
from tests.launch.test_slurm import SPEC, launch, plain, spec, to_bytes  # noqa: F401
from tests.patience import PATIENCE

pytestmark = pytest.mark.rare
MINUTES = 5
SHORT = 3
"""Submitit has a job signalled 90 seconds before its time is over, and Slurm may do so a minute
earlier still."""
LONGER = SPEC.replace("rounds = 200", "rounds = 10_000").replace('"0:2"', "[0]")
"""A run that is not over when Slurm has ended its job, which takes some seconds."""


def ask(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    pytest.importorskip("submitit")
    if shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True).returncode:
        pytest.skip("there is no Slurm: .ci/slurm starts one")
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0")
    # Jobs import the tested package, whatever is installed
    monkeypatch.setenv("PYTHONPATH", str(test_slurm.__file__).partition("/tests/")[0])


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """The results of the longer run, computed by a plain sweep."""
    place = tmp_path_factory.mktemp("longer")
    (place / "spec.toml").write_text(LONGER)
    words = [sys.executable, "-m", "cfljax.sweep", place / "spec.toml", "--out", place / "r"]
    words += ["--no-report", "--quiet", "--workers", "2"]  # each with one thread, as a job has
    subprocess.run([str(word) for word in words], check=True)
    return to_bytes(place / "r")


def wait_for_an_empty_queue():
    until = time.monotonic() + 60
    while ask("squeue", "--noheader", "--name=cfljax", "--states=RUNNING,PENDING").strip():
        assert time.monotonic() < until
        time.sleep(1)


def begins(folder):
    """{batch: the rounds from which it was begun, one for each time}."""
    found = {}
    for event in Store(folder).events():
        if event["event"] == "begin":
            found.setdefault(event["batch"], []).append(event["from"])
    return found


def test_an_array_computes_the_bits_of_a_plain_sweep(spec, plain, tmp_path):  # noqa: F811
    assert launch(spec, tmp_path / "r", f"time={MINUTES}") == (2, 0, 0, 2)
    assert to_bytes(tmp_path / "r") == plain
    wait_for_an_empty_queue()


@pytest.mark.parametrize(
    "command", [("scontrol", "requeue"), ("scancel", "--signal=KILL")], ids=["requeued", "killed"]
)
def test_a_job_that_slurm_ends_goes_on_to_the_same_bits(
    command, spec, longer, tmp_path, monkeypatch, capfd  # noqa: F811
):  # fmt: skip
    ended, update = [], slurm._Watch.update

    def updated(self, job, rounds, accuracy=None):
        update(self, job, rounds, accuracy)
        if not ended and self.worker.store.load_checkpoint(job.batch.id):
            ended.append(job.done)
            ask(*command, job.handle.job_id)

    monkeypatch.setattr(slurm._Watch, "update", updated)
    spec.write_text(LONGER)
    assert launch(spec, tmp_path / "r", f"time={3 * MINUTES}") == (1, 0, 0, 1)
    assert 0 <= ended[0] < 10_000
    assert "its job was interrupted; it goes on from its last checkpoint" in capfd.readouterr().err
    ((first, *_, last),) = begins(tmp_path / "r").values()
    assert first == 0 < last
    assert to_bytes(tmp_path / "r") == longer


def test_a_run_goes_on_beyond_the_time_of_its_job(spec, longer, tmp_path, capfd):  # noqa: F811
    spec.write_text(LONGER)
    assert launch(spec, tmp_path / "r", f"time={SHORT}") == (1, 0, 0, 1)
    ((first, *_, last),) = begins(tmp_path / "r").values()
    assert first == 0 < last
    assert "it goes on from its last checkpoint" in capfd.readouterr().err
    assert to_bytes(tmp_path / "r") == longer


def test_ctrl_c_cancels_the_jobs_and_the_next_start_goes_on(spec, plain, tmp_path):  # noqa: F811
    words = ["-m", "cfljax.sweep", spec, "--out", tmp_path / "r", "--launcher", "slurm"]
    words += ["--slurm", f"time={MINUTES}", "--workers", "1", "--quiet", "--no-report"]
    first, until = python(*words), time.monotonic() + PATIENCE
    while not list((tmp_path / "r").glob("checkpoints/*.npz")) and first.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    assert first.wait(PATIENCE) == 130, first.communicate()
    wait_for_an_empty_queue()
    second = python(*words)
    assert second.wait(PATIENCE) == 0, second.communicate()
    assert to_bytes(tmp_path / "r") == plain


def test_an_option_that_slurm_refuses_is_a_line(spec, tmp_path):  # noqa: F811
    words = ["-m", "cfljax.sweep", spec, "--out", tmp_path / "r", "--launcher", "slurm"]
    done = python(*words, "--slurm", "partition=none", "--no-report")
    _, errors = done.communicate(timeout=PATIENCE)
    assert done.returncode == 2
    assert "sbatch" in errors and "invalid partition" in errors.lower()
    assert "Traceback" not in errors and os.linesep * 3 not in errors
