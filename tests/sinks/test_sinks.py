"""Curves of a sweep in other tools: each with the real package, skipped where it is not
installed."""

import json
import shutil
import subprocess
import sys
import time

import pytest

import cfljax
from cfljax.commands import process
from cfljax.commands.load import parser as load_parser
from cfljax.commands.load import run as load_command
from cfljax.commands.sweep import parser as sweep_parser
from cfljax.commands.sweep import run as sweep_command
from cfljax.errors import SpecError
from cfljax.registry.options import show
from cfljax.sinks import SINKS, feed
from cfljax.sinks.feed import Feed, send_finished_runs
from cfljax.store import Store
from tests.report import synthetic


@pytest.fixture
def folder(tmp_path):
    """Two finished runs of a sweep."""
    store = Store(tmp_path / "r")
    for seed in (0, 1):
        synthetic.add(store, f"run{seed}", seed, evaluations=3)
    return tmp_path / "r"


def lines(folder):
    return [
        json.loads(line) for line in (folder / "logs" / "history.jsonl").read_text().splitlines()
    ]


def fed(folder, *names):
    return Feed(folder, list(names), {"name": "a sweep"}, say=pytest.fail).feed()


def test_json_lines_have_every_evaluation_and_every_run_once(folder):
    assert fed(folder, "jsonl") == 2 and fed(folder, "jsonl") == 0
    found = lines(folder)
    assert (
        len(found) == 2 * (3 + 1)
        and [line["run"] for line in found if "summary" in line] == cfljax.load(folder).store.ids()
    )
    result = next(iter(cfljax.load(folder)))
    assert [line["accuracy"] for line in found[:3]] == [
        float(v) for v in result.history["accuracy"]
    ]


def test_runs_of_an_earlier_spec_are_not_logged_under_the_name_of_this_one(folder):
    made = Feed(folder, ["jsonl"], {"name": "now", "units": ["run1"]}, say=pytest.fail)
    assert made.feed() == 1 and {(line["sweep"], line["run"]) for line in lines(folder)} == {
        ("now", "run1")
    }
    Store(folder).write_plan({"name": "then", "units": ["run1"]})
    assert (
        process.main(load_command, load_parser(), [str(folder), "--log", "jsonl"]) == 0
        and len(lines(folder)) == 4
    )


def test_runs_are_logged_with_what_varies_in_the_sweep_that_logs_them(tmp_path):
    """The first run was computed by a start in which nothing varied."""
    data = {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3}
    small = {"data": data, "model": "mclr", "method": "fedavg", "seeds": [0]}
    for rates, flags in (("0.1", []), ("0.1,0.2", ["--log", "jsonl"])):
        spec = [
            f"--set=train.lr={rates}",
            "--set=train.rounds=1",
            *flags,
            "--workers=1",
            "--quiet",
            "--no-report",
        ]
        (tmp_path / "spec.toml").write_text(
            "".join(f"{key} = {show(value)}\n" for key, value in small.items())
        )
        assert (
            process.main(
                sweep_command,
                sweep_parser(),
                [str(tmp_path / "spec.toml"), "--out", str(tmp_path / "r"), *spec],
            )
            == 0
        )
    logged = {line["run"]: line.get("train.lr") for line in lines(tmp_path / "r")}
    assert sorted(logged.values()) == [0.1, 0.2]
    shutil.rmtree(tmp_path / "r" / "logs")
    assert process.main(load_command, load_parser(), [str(tmp_path / "r"), "--log", "jsonl"]) == 0
    assert {line["run"]: line.get("train.lr") for line in lines(tmp_path / "r")} == logged


def test_a_sweep_feeds_its_sinks_while_it_runs_and_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(feed, "POLL_SECONDS", 0.01)
    store = Store(tmp_path / "r")
    with send_finished_runs(tmp_path / "r", ["jsonl"], {"name": "s"}, say=pytest.fail):
        synthetic.add(store, "a", 0, evaluations=2)
        synthetic.add(store, "b", 1, evaluations=2)
    assert len(lines(tmp_path / "r")) == 6


def test_a_sink_that_fails_says_so_once_and_ends_nothing(folder, monkeypatch):
    said = []
    made = Feed(folder, ["jsonl"], {"name": "s"}, said.append)
    monkeypatch.setattr(made.sinks["jsonl"], "write", lambda result: 1 / 0)
    made.feed()
    made.feed()
    assert len(said) == 1 and "--log jsonl: ZeroDivisionError" in said[0]
    assert fed(folder, "jsonl") == 2  # nothing was marked as written


def test_names_and_packages_are_checked_before_anything_runs(folder, monkeypatch):
    with pytest.raises(SpecError, match='did you mean "tensorboard"'):
        Feed(folder, ["tensorbord"], {"name": "s"})
    for package, sink in (("tensorboardX", "tensorboard"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(SpecError, match=rf"pip install .\.\[{sink}\]"):
            Feed(folder, [sink], {"name": "s"})


def test_nothing_is_imported_unless_it_is_asked_for(folder):
    code = (
        "import sys; from cfljax.sinks.feed import Feed; Feed(sys.argv[1], ['jsonl'], {'name': "
        "'s'}).feed();"
    )
    code += "print([m for m in ('tensorboardX', 'wandb', 'jax') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_an_old_folder_is_logged_by_the_load_command(folder, capsys):
    assert load_command(load_parser().parse_args([str(folder), "--log", "jsonl"])) == 0
    assert "2 runs logged" in capsys.readouterr().out and len(lines(folder)) == 8
    assert set(SINKS) == {"jsonl", "tensorboard", "wandb"}


@pytest.mark.long
def test_tensorboard_reads_what_was_written(folder):
    pytest.importorskip("tensorboardX")
    assert fed(folder, "tensorboard") == 2
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    places = sorted((folder / "logs" / "tensorboard").iterdir())
    assert len(places) == 2
    events = accumulator.EventAccumulator(str(places[0])).Reload()
    result = cfljax.load(folder)[places[0].name.rpartition("-")[2]]
    found = {event.step: event.value for event in events.Scalars("accuracy")}
    assert found == dict(
        zip(result.history["round"].astype(int), result.history["accuracy"], strict=True)
    )
    assert events.Scalars("summary/accuracy_max")


@pytest.mark.long
def test_wandb_offline_writes_its_files(folder, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert fed(folder, "wandb") == 2
    runs = list((folder / "logs" / "wandb" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(runs) == 2
    deadline = time.monotonic() + 20  # its service writes behind our back
    while (
        not all(b"accuracy_worst10" in file.read_bytes() for file in runs)
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert all(b"accuracy_worst10" in file.read_bytes() for file in runs)
