"""The sweep command in processes of its own."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest

from cfljax.commands import sweep as command
from cfljax.errors import SpecError
from cfljax.launch.options import OPTIONS, TaskOptions
from cfljax.registry.options import option
from cfljax.store import Store
from tests.launch.processes import in_turn
from tests.often import rarely
from tests.patience import PATIENCE

SPEC = """
name = "small"
data = { name = "blobs", samples = 200, partition = "iid", clients = 4 }
model = { name = "mclr" }
train = { rounds = 3, lr = 0.1 }
seeds = [0]
[[method]]
name = "fedavg"
"""


def sweep(*flags, **more):
    return subprocess.run(
        [sys.executable, "-m", "cfljax.sweep", *map(str, flags)],
        capture_output=True,
        text=True,
        **more,
    )


def test_an_option_of_a_launcher_is_a_flag(monkeypatch):
    """Its type, its help and the launchers that have it are told nowhere else."""

    @dataclasses.dataclass(frozen=True)
    class Invented(TaskOptions):
        nodes: int | None = option(None, "nodes per batch", low=1)

    monkeypatch.setitem(OPTIONS, "invented", Invented)
    flags = command.parser()
    text = " ".join(flags.format_help().split())
    assert "--nodes N --launcher invented: nodes per batch" in text
    assert "--retries N --launcher ray, slurm, invented: restarts" in text
    assert flags.parse_args(["--nodes", "3"]).nodes == 3
    given = flags.parse_args(["--launcher", "slurm", "--nodes", "3"])
    with pytest.raises(SpecError, match="--launcher slurm.nodes"):
        command._choose_launcher(given)


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    return file


def test_a_sweep_prints_its_table_and_says_where_results_are(spec, tmp_path):
    command = ["sweep", spec, "--out", tmp_path / "r", "--no-report"]
    (code, out, err), (again, nothing, _) = in_turn(command, command)
    assert code == 0, err
    assert "fedavg" in out and "1 done, 0 diverged, 0 failed" in out and str(tmp_path / "r") in out
    assert again == 0 and "nothing to do" in nothing


def test_explain_says_the_form_of_the_rounds_and_trains_nothing(spec, tmp_path):
    explain = ["sweep", spec, "--explain", "--out", tmp_path / "no", "--set", "seeds=[0,1]"]
    (_, short, _), (_, long, _) = in_turn(explain, [*explain, "--set", "train.plan={quick=false}"])
    assert (
        all(word in short for word in ("fedavg", "predicted", "each stage of a round is a program"))
        and "short run" in short
    )
    assert (
        "the rounds between two evaluations are one program: it is no short run" in long
        and not (tmp_path / "no").exists()
    )


MISTAKES = [
    (["--set", "train.rouns=3"], 2, ["train.rouns", "rounds"]),
    (["--set", "method=fedavgg"], 2, ["fedavgg", "fedavg"]),
    (["--set", "train.lr=-1"], 2, ["train.lr", "-1"]),
    (["--set", "data=nowhere_to_be_found"], 4, ["nowhere_to_be_found", "prepare"]),
    (["--dry-run", "--set", "data=nowhere_to_be_found"], 4, ["nowhere_to_be_found", "prepare"]),
    (["--launcher", "locl"], 2, ["--launcher", "locl", "local"]),
    (["--workers", "0"], 2, ["--workers 0"]),
    (["--workers", "9" * 20], 2, ["--workers 9999", "10000"]),
    (["--target", "nan"], 2, ["--target", "fraction"]),
    (["--shard", "9" * 5000 + "/1"], 2, ["--shard", "I/N"]),
    (["--mesh", "clients=100000"], 2, ["--mesh", "1,024"]),
    (["--mesh", ""], 2, ["--mesh"]),
    (["--as-worker", "0/1"], 2, ["--as-worker", "--workers"]),
    (["--log", "jsonll"], 2, ["--log", "jsonl"]),
    (["--no-such-flag"], 2, ["--no-such-flag"]),
    (["--mesh", "2x4"], 2, ["--mesh 2x4"]),
    (["--coordinator", "localhost:1"], 2, ["--distributed"]),
    (["--mesh", "auto", "--workers", "2"], 2, ["--workers"]),
    (["--dry-run", "--address", "auto"], 2, ["--launcher local", "address"]),
    (["--dry-run", "--launcher", "ray", "--retries", "-1"], 2, ["--launcher ray.retries", "-1"]),
    (["--dry-run", "--launcher", "rai"], 2, ["rai", "ray"]),
    (["--target", "v5e"], 2, ["--target", "v5e"]),
    (["--out", "file/r"], 3, ["file/r"]),  # a folder that cannot be written
]
"""Flags, the exit code, and words of the message."""


def test_mistakes_are_one_line(spec, tmp_path):
    folders = [tmp_path / f"r{number}" for number in range(len(MISTAKES))]
    commands = [
        ["sweep", spec, "--out", folder, "--quiet", *flags]
        for folder, (flags, _, _) in zip(folders, MISTAKES, strict=True)
    ]
    (tmp_path / "file").write_text("not a folder")
    ends = in_turn(*commands, cwd=tmp_path, env=os.environ | {"CFLJAX_DATA": str(tmp_path)})
    for (flags, code, words), folder, (ended, _, err) in zip(MISTAKES, folders, ends, strict=True):
        assert ended == code, (flags, err)
        assert err.count("\n") == 1 and all(word in err for word in words), (flags, err)
        assert code != 2 or not folder.exists(), flags


def test_letters_of_any_alphabet_whatever_the_locale(tmp_path):
    """The locale "C" without Python's own remedy stands for all that are not UTF-8."""
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = SPEC.replace('"small"', '"größe"').replace(
        'name = "fedavg"', 'name = "fedavg"\nlabel = "größer 中"'
    )
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    done = sweep(
        tmp_path / "spec.toml",
        "--out",
        tmp_path / "r",
        "--workers",
        "1",
        "--log",
        "jsonl",
        "--quiet",
        env=plain,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "gr??e: 1 run computed" in done.stdout
    assert (tmp_path / "r" / "spec.toml").read_text(encoding="utf-8") == text
    (record,) = Store(tmp_path / "r", read_only=True).records().values()
    assert record["label"] == "größer 中"
    bad = sweep(
        tmp_path / "spec.toml",
        "--set",
        b"name=gr\xf6\xdfe".decode("utf-8", "surrogateescape"),
        env=plain,
    )
    assert (
        bad.returncode == 2 and bad.stderr.count("\n") == 1 and "is not valid UTF-8" in bad.stderr
    )
    shown = subprocess.run(
        [sys.executable, "-m", "cfljax.sweep", "--help"], capture_output=True, env=plain
    )
    assert shown.returncode == 0 and shown.stderr == b""


def test_dry_run_trains_nothing_and_starts_no_device(spec, tmp_path):
    nowhere = os.environ | {"JAX_PLATFORMS": "nowhere"}
    done = sweep(
        spec, "--dry-run", "--out", tmp_path / "r", "--set", "train.participation=1", env=nowhere
    )
    assert done.returncode == 0 and "runs 1" in done.stdout and not (tmp_path / "r").exists()
    assert "one client" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--dry-run", "--mesh", "nonsense"],
            "--mesh nonsense with --dry-run: says nothing of devices",
        ),
        (["--dry-run", "--target", "0.9"], "--target 0.9 with --dry-run: nothing is trained"),
        (["--dry-run", "--distributed"], "--distributed with --dry-run: one process"),
        (["--explain", "--mesh", "auto"], "--mesh auto with --explain: says nothing of devices"),
        (["--explain", "--target", "0.9"], "--target 0.9 with --explain: nothing is trained"),
        (["--explain", "--distributed"], "--distributed with --explain: one process"),
    ],
)
def test_flags_that_say_nothing_where_nothing_is_trained_are_refused(spec, flags, words):
    with pytest.raises(SpecError) as told:
        command.run(command.parser().parse_args([str(spec), *flags]))
    assert words in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["method=ifca", "method.ifca.clusters=500"],
            r"method.ifca.clusters = 500: only \d+ clients train",
        ),
        (["method=oracle", "data.partition=dirichlet"], 'method "oracle" needs the true group'),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(spec, flags, words):
    words_of = [word for flag in flags for word in ("--set", flag)]
    with pytest.raises(SpecError, match=words):
        command.run(command.parser().parse_args([str(spec), "--dry-run", *words_of]))


def test_a_dry_run_explains_too_and_says_how_long(spec, capsys):
    assert command.run(command.parser().parse_args([str(spec), "--dry-run", "--explain"])) == 0
    said = capsys.readouterr().out
    assert (
        "programs to compile" in said
        and "this machine: " in said
        and "clients one after another" in said
    )
    assert said.count("time on this machine: ") == 2


@pytest.mark.parametrize(
    "number, code, more",
    [(signal.SIGINT, 130, []), rarely(signal.SIGTERM, 143, ["--workers", "1"])],
)
def test_signals_end_it_and_it_can_go_on(spec, tmp_path, number, code, more):
    """As many processes as there are cores, and one."""
    flags = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        str(spec),
        "--out",
        str(tmp_path / "r"),
        "--set",
        "seeds=0:2",
        "--no-report",
    ]
    flags += ["--set", "train.rounds=2000000", "--set", "train.eval_every=1000", *more]
    process = subprocess.Popen(flags, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE
    while not list((tmp_path / "r" / "locks").glob("*.lock")):
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(number)
    # Two million rounds would take hours: that it ends at all is the proof.
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "go on" in errors.splitlines()[-1]
    assert not [p for p in (tmp_path / "r").rglob("*") if ".tmp" in p.name or p.suffix == ".part"]
