"""What plug-ins and libraries print in a worker is said, and is never taken for an event."""

import json
import types

import pytest

from cfljax.launch import slurm
from cfljax.launch.workers import RelayedProgress, split_event
from cfljax.store import Store
from tests.launch.test_command import SPEC, sweep

PRINTED = [
    "42",
    "0.5",
    "[1, 2]",
    "null",
    "true",
    '"x"',
    '["it\'s"]',
    '{"loss": 1}',
    "NaN",
    "Infinity",
    "hello",
    "",
    '["error", "a plug-in is no worker", 1]',
    '["finish", "failed", "x"]',
]


def test_a_plug_in_may_print_anything_in_a_sweep_of_several_processes(tmp_path):
    lines = [f"print({line!r})" for line in PRINTED]
    # The next event follows it on the same line.
    lines += ['print("without an end", end="")']
    (tmp_path / "prints.py").write_text("\n".join(lines))
    (tmp_path / "spec.toml").write_text(
        'plugins = ["prints.py"]\n' + SPEC.replace("seeds = [0]", "seeds = [0, 1]")
    )
    flags = ("--out", tmp_path / "r", "--no-report", "--workers", "2")
    done = sweep(tmp_path / "spec.toml", *flags)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert {*PRINTED, "without an end"} <= {*said}
    assert not any("without an end" in line and '["' in line for line in said)
    assert len(Store(tmp_path / "r").records()) == 2


@pytest.mark.parametrize(
    "line, text, event",
    [
        ('word["update", 1, 0.5]\n', "", ["update", 1, 0.5]),
        ('42word["say", "[1]"] 43\r\n', "42 43", ["say", "[1]"]),
        ('["update", 1, 0.5]\n', '["update", 1, 0.5]', None),
        ("Job(word='word', runs=())\n", "Job(word='word', runs=())", None),
        ("word[unfinished\n", "word[unfinished", None),
    ],
)
def test_an_event_is_what_follows_the_word(line, text, event):
    assert split_event(line, "word") == (text, event)


def test_events_are_printed_as_they_are_read(capsys):
    RelayedProgress("secret").update(2, 0.25)
    assert split_event(capsys.readouterr().out, "secret") == ("", ["update", 2, 0.25])


def test_a_log_of_slurm_has_the_events_among_what_others_print(tmp_path):
    log = tmp_path / "log"
    handle = types.SimpleNamespace(paths=types.SimpleNamespace(stdout=log))
    job = slurm._Submitted(types.SimpleNamespace(word="secret"), None, handle, 0)
    assert job.read_log() == []
    first, second = (f"secret{json.dumps(event)}\n" for event in (["begin"], ["update", 1, 0.5]))
    log.write_bytes(b"\n".join([*(line.encode() for line in PRINTED), b"\xff", first.encode()]))
    assert job.read_log() == [["begin"]]
    with log.open("a") as file:
        file.write(f"no end{second}" + second[:5])
    assert job.read_log() == [["update", 1, 0.5]]
    with log.open("a") as file:
        file.write(second[5:])
    assert job.read_log() == [["update", 1, 0.5]]
