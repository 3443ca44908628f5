"""The Slurm launcher: with submitit's local executor, and with stand-ins for Slurm's commands."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.launch import slurm
from cfljax.launch.slurm import SlurmOptions, carry_out_by_slurm
from cfljax.launch.sweep import SweepOptions
from cfljax.registry.options import check
from cfljax.store import Store
from tests.launch.processes import arrays, python
from tests.patience import PATIENCE

with contextlib.suppress(
    ImportError
):  # here, as it closes all log handlers: absl's closes a stream that pytest captures
    import submitit  # noqa: F401

SPEC = """
name = "by slurm"
data = { name = "blobs", samples = 2000, partition = "quantity", clients = 40 }
model = { name = "mclr" }
train = { rounds = 200, lr = 0.1, batch = 10 }
method = { name = "ifca", clusters = 3 }
seeds = "0:2"
"""
SBATCH = """#!{python}
import os, pathlib, re, subprocess, sys
text = pathlib.Path(sys.argv[1]).read_text()
place = pathlib.Path(os.environ["FAKE_SLURM"])
(place / "script").write_text(text)
tasks = re.search(r"--array=0-(\\d+)%", text)
command = re.search(r"^srun.*--error \\S+ (.*)$", text, re.M)[1]
output = re.search(r"#SBATCH --output=(\\S+)", text)[1]
for at in range(int(tasks[1]) + 1 if tasks else 1):
    where = {{"SLURM_JOB_ID": "71", "SUBMITIT_EXECUTOR": "slurm"}}
    where |= {{"SLURM_ARRAY_JOB_ID": "71", "SLURM_ARRAY_TASK_ID": str(at)}} if tasks else {{}}
    log = open(output.replace("%A_%a", f"71_{{at}}").replace("%j", "71"), "a")
    done = subprocess.Popen(["bash", "-c", "exec " + command], env=os.environ | where, stdout=log, stderr=log)
    with open(place / "pids", "a") as pids:
        print(done.pid, file=pids)
print("Submitted batch job 71")
"""
SCANCEL = '#!/bin/bash\necho "$*" >> $FAKE_SLURM/cancelled; kill -9 $(cat $FAKE_SLURM/pids)\n'


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The results of a plain sweep in which each run has one thread, as a job has."""
    place = tmp_path_factory.mktemp("plain")
    (place / "spec.toml").write_text(SPEC)
    command = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        str(place / "spec.toml"),
        "--out",
        str(place / "r"),
        "--no-report",
        "--quiet",
    ]
    subprocess.run([*command, "--workers", str(len(os.sched_getaffinity(0)))], check=True)
    return to_bytes(place / "r")


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Stand-ins for Slurm's commands that start the jobs of an array as processes."""
    commands = {
        "sbatch": SBATCH.format(python=sys.executable),
        "scancel": SCANCEL,
        "srun": "#!/bin/bash\n",
        "sacct": "#!/bin/bash\n",
    }
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in commands.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(place))
    return place


def to_bytes(folder):
    return {
        name: {key: value.tobytes() for key, value in unit.items()}
        for name, unit in arrays(folder).items()
    }


def launch(spec, folder, *flags, **options):
    options = check(SlurmOptions, {"slurm": list(flags), **options}, "--launcher slurm")
    return carry_out_by_slurm(
        read_spec(spec), Store(folder), SweepOptions(quiet=True, launcher=options), None, []
    )


@pytest.mark.parametrize(("limited", "most"), [(True, 3), (False, 7)])
def test_a_limit_of_jobs_at_a_time_holds_for_all_arrays(limited, most, monkeypatch):
    """An array limits its own jobs alone, so that two of them would have twice as many."""
    watch = slurm._Watch(None, SimpleNamespace(progress=SimpleNamespace(lines=2)), 0, limited)
    open_at_once = []
    monkeypatch.setattr(slurm, "MAX_ARRAY", 3)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0)
    monkeypatch.setattr(slurm, "_cancel", lambda *_: None)
    monkeypatch.setattr(slurm, "_submit", lambda _, jobs: list(jobs))
    monkeypatch.setattr(
        watch, "follow", lambda _: open_at_once.append(len(watch.jobs)) or len(open_at_once) % 2
    )
    job = slurm.Job({}, (), "", "", "labels", False, 1, "")
    batches = [SimpleNamespace(runs=[SimpleNamespace(id=str(at))]) for at in range(7)]
    watch.work(job, batches)
    assert max(open_at_once) == most and not watch.jobs


def test_without_submitit_it_says_what_to_install(spec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SpecError, match=r'pip install "\.\[slurm\]" in the checkout'):
        launch(spec, tmp_path / "r")


def test_without_slurm_it_says_where_to_start(spec, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="needs srun; start the sweep on a machine of the cluster"):
        launch(spec, tmp_path / "r")


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("time=2:00:00", "time=2:00:00: must be a number of minutes"),
        ("time", "must be a number of minutes"),
        ("partition=", "must be an option of sbatch"),
        ("=gpu", "must be an option of sbatch"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_submitted(flag, why):
    with pytest.raises(SpecError, match=why):
        check(SlurmOptions, {"slurm": [flag]}, "--launcher slurm")


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "gpus"), [(signal.SIGKILL, 0), (signal.SIGUSR2, 1)], ids=["killed", "preempted"]
)
def test_a_job_that_ends_early_goes_on_to_the_same_bits(
    spec, plain, tmp_path, monkeypatch, capfd, number, gpus
):
    pytest.importorskip("submitit")
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0")
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.1)
    ended, update = [], slurm._Watch.update

    def updated(self, job, rounds, accuracy=None):
        update(self, job, rounds, accuracy)
        saved = self.worker.store.load_checkpoint(job.batch.id)
        if not ended and job.done < 200 and saved and saved[1]["done"]:
            begun = [
                each
                for each in self.worker.store.events()
                if each["event"] == "begin" and each["batch"] == job.batch.id
            ]
            ended.append(job.batch.id)
            os.kill(begun[-1]["pid"], number)

    monkeypatch.setattr(slurm._Watch, "update", updated)
    assert (
        launch(spec, tmp_path / "r", "cluster=local", gpus_per_task=gpus) == (2, 0, 0, 2)
        and len(ended) == 1
    )
    said = capfd.readouterr().err
    assert "its job was interrupted; it goes on from its last checkpoint" in said
    assert ("waiting for a job that makes the plan" in said) == bool(gpus)
    begun = [
        each["from"]
        for each in Store(tmp_path / "r").events()
        if each["event"] == "begin" and each["batch"] == ended[0]
    ]
    assert begun[0] == 0 < begun[1]
    assert to_bytes(tmp_path / "r") == plain
    assert launch(spec, tmp_path / "r", "cluster=local", cpus_per_task=2) == (2, 0, 0, 0)
    assert "was begun with 1, and continues so" in capfd.readouterr().err


@pytest.mark.long
def test_a_batch_whose_jobs_are_all_killed_is_a_failed_run(spec, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr("submitit.core.core.Job._results_timeout_s", 1)
    deadly = (
        "import os, signal\nif 'SUBMITIT_FOLDER' in os.environ:\n    os.kill(os.getpid(), "
        "signal.SIGKILL)\n"
    )
    (tmp_path / "deadly.py").write_text(deadly)
    spec.write_text(SPEC.replace('"0:2"', "[0]") + 'plugins = ["deadly.py"]\n')
    outcome = launch(spec, tmp_path / "r", "cluster=local", retries=1)
    assert (outcome.done, outcome.failed) == (0, 1)
    (record,) = Store(tmp_path / "r").records().values()
    assert record["error"].startswith("its job was killed 2 times")


@pytest.mark.long
def test_a_job_with_other_data_ends_the_sweep_and_its_array_in_one_line(
    spec, tmp_path, fake_slurm, monkeypatch
):
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "fingerprint", lambda spec: "another")
    with pytest.raises(slurm.WorkerError, match="reads other data files, plugins"):
        launch(spec, tmp_path / "r")
    assert (fake_slurm / "cancelled").read_text() == "71\n"


@pytest.mark.long
def test_ctrl_c_cancels_the_array_and_the_next_start_goes_on(spec, plain, tmp_path, fake_slurm):
    pytest.importorskip("submitit")
    flags = [
        "--launcher",
        "slurm",
        "--slurm",
        "partition=gpu",
        "--slurm",
        "time=90",
        "--workers",
        "2",
        "--quiet",
        "--no-report",
    ]
    words = ["-m", "cfljax.sweep", spec, "--out", tmp_path / "r", *flags]
    first, until = python(*words, env={"CFLJAX_CHECKPOINT": "0"}), time.monotonic() + PATIENCE
    while not list((tmp_path / "r").glob("checkpoints/*.npz")) and first.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    assert first.wait(PATIENCE) == 130, first.communicate()
    assert (fake_slurm / "cancelled").read_text() == "71\n"
    script = (fake_slurm / "script").read_text()
    for line in (
        "--array=0-1%2",
        "--partition=gpu",
        "--time=90",
        "--cpus-per-task=1",
        "--job-name=cfljax",
    ):
        assert f"#SBATCH {line}\n" in script
    second = python(*words, env={"CFLJAX_CHECKPOINT": "0"})
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert to_bytes(tmp_path / "r") == plain
    assert any(
        event["from"] for event in Store(tmp_path / "r").events() if event["event"] == "begin"
    )
