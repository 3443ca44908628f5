"""The sweep command in processes of its own."""

import os
import signal
import subprocess
import sys
import time

import pytest

from cfljax.commands import sweep as command
from cfljax.errors import SpecError
from cfljax.store import Store

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
    return subprocess.run([sys.executable, "-m", "cfljax.sweep", *map(str, flags)], capture_output=True, text=True, **more)


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    return file


def test_a_sweep_prints_its_table_and_says_where_results_are(spec, tmp_path):
    done = sweep(spec, "--out", tmp_path / "r", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "fedavg" in done.stdout and "1 done, 0 diverged, 0 failed" in done.stdout and str(tmp_path / "r") in done.stdout
    again = sweep(spec, "--out", tmp_path / "r", "--no-report")
    assert again.returncode == 0 and "nothing to do" in again.stdout


def test_explain_says_what_has_been_compiled_before(spec, tmp_path):
    environment = os.environ | {"CFLJAX_CACHE": str(tmp_path / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    assert "programs to be compiled" in sweep(spec, "--explain", env=environment).stdout
    assert sweep(spec, "--out", tmp_path / "r", "--no-report", env=environment).returncode == 0
    other = ["--explain", "--set", "train.rounds=5", "--set", "train.lr=0.2", "--set", "seeds=[7]"]  # finds the same programs
    known, new = (sweep(spec, *other, *more, env=environment).stdout for more in ([], ["--set", "train.batch=7"]))
    assert "programs compiled before" in known and "to be compiled" not in known
    assert "programs to be compiled" in new and "compiled before" not in new


@pytest.mark.parametrize(
    "flags, code, words",
    [
        (["--set", "train.rouns=3"], 2, ["train.rouns", "rounds"]),
        (["--set", "method=fedavgg"], 2, ["fedavgg", "fedavg"]),
        (["--set", "train.lr=-1"], 2, ["train.lr", "-1"]),
        (["--set", "data=nowhere_to_be_found"], 4, ["nowhere_to_be_found", "prepare"]),
        (["--launcher", "locl"], 2, ["--launcher", "locl", "local"]),
        (["--workers", "0"], 2, ["--workers 0"]),
        (["--target", "nan"], 2, ["--target", "fraction"]),
        (["--shard", "9" * 5000 + "/1"], 2, ["--shard", "I/N"]),
        (["--mesh", "clients=100000"], 2, ["--mesh", "1,024"]),
        (["--mesh", ""], 2, ["--mesh"]),
        (["--as-worker", "0/1"], 2, ["--as-worker", "--workers"]),
        (["--log", "jsonll"], 2, ["--log", "jsonl"]),
        (["--no-such-flag"], 2, ["--no-such-flag"]),
    ],
)
def test_mistakes_are_one_line(spec, tmp_path, flags, code, words):
    done = sweep(spec, "--out", tmp_path / "r", "--quiet", *flags, env=os.environ | {"CFLJAX_DATA": str(tmp_path)})
    assert done.returncode == code, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and all(word in done.stderr for word in words)
    assert code != 2 or not (tmp_path / "r").exists()


def test_letters_of_any_alphabet_whatever_the_locale(tmp_path):
    """The locale "C" without Python's own remedy stands for all that are not UTF-8."""
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = SPEC.replace('"small"', '"größe"').replace('name = "fedavg"', 'name = "fedavg"\nlabel = "größer 中"')
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    done = sweep(tmp_path / "spec.toml", "--out", tmp_path / "r", "--workers", "1", "--log", "jsonl", "--quiet", env=plain)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "gr??e: 1 run computed" in done.stdout
    assert (tmp_path / "r" / "spec.toml").read_text(encoding="utf-8") == text
    (record,) = Store(tmp_path / "r", read_only=True).records().values()
    assert record["label"] == "größer 中"
    bad = sweep(tmp_path / "spec.toml", "--set", b"name=gr\xf6\xdfe".decode("utf-8", "surrogateescape"), env=plain)
    assert bad.returncode == 2 and bad.stderr.count("\n") == 1 and "is not valid UTF-8" in bad.stderr
    shown = subprocess.run([sys.executable, "-m", "cfljax.cli", "--help"], capture_output=True, env=plain)
    assert shown.returncode == 0 and shown.stderr == b""


def test_a_missing_file_and_a_broken_one(tmp_path):
    missing = sweep(tmp_path / "no.toml")
    assert missing.returncode == 2 and "no.toml" in missing.stderr and missing.stderr.count("\n") == 1
    (tmp_path / "bad.toml").write_text("data = {")
    assert sweep(tmp_path / "bad.toml").returncode == 2


def test_a_folder_that_cannot_be_written(spec, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    done = sweep(spec, "--out", tmp_path / "file" / "r")
    assert done.returncode == 3 and done.stderr.count("\n") == 1


def test_dry_run_trains_nothing_and_starts_no_device(spec, tmp_path):
    nowhere = os.environ | {"JAX_PLATFORMS": "nowhere"}
    done = sweep(spec, "--dry-run", "--out", tmp_path / "r", "--set", "train.participation=1", env=nowhere)
    assert done.returncode == 0 and "runs 1" in done.stdout and not (tmp_path / "r").exists()
    assert "one client" in done.stderr


def test_a_dry_run_says_what_a_chip_would_hold(spec, tmp_path):
    done = sweep(spec, "--dry-run", "--target", "v5e:2x2", "--mesh", "runs=2,clients=2", "--set", "seeds=0:4", "--explain")
    assert done.returncode == 0 and done.stdout.startswith("v5e:2x2 (TPU v5 lite): 4 devices with 16 GiB of memory each")
    assert "runs 4, batches 1" in done.stdout  # side by side; on a CPU each is a batch
    assert "2 runs side by side" in done.stdout and "predicted for all steps of a round" in done.stdout
    wrong = [(["--dry-run", "--target", "v5x"], 'the nearest is "v5'), (["--target", "v5e"], "a chip is for --dry-run")]
    for flags, words in wrong:
        done = sweep(spec, *flags, "--out", tmp_path / "r")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and words in done.stderr and not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dry-run", "--mesh", "nonsense"], "--mesh nonsense with --dry-run: is for a chip"),
        (["--dry-run", "--mesh", "nonsense", "--target", "v5e:2x2"], "nonsense"),
        (["--dry-run", "--target", "0.9"], "--target 0.9 with --dry-run: nothing is trained"),
        (["--dry-run", "--distributed"], "--distributed with --dry-run: one process"),
        (["--explain", "--mesh", "auto"], "--mesh auto with --explain: says how one device would train"),
        (["--explain", "--target", "0.9"], "--target 0.9 with --explain: nothing is trained"),
        (["--explain", "--distributed"], "--distributed with --explain: one process"),
    ],
)
def test_flags_that_say_nothing_where_nothing_is_trained_are_refused(spec, flags, words):
    with pytest.raises(SpecError) as told:
        command.run(command.parser().parse_args([str(spec), *flags]))
    assert words in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_soon_and_it_can_go_on(spec, tmp_path, number, code):
    flags = [sys.executable, "-m", "cfljax.sweep", str(spec), "--out", str(tmp_path / "r"), "--set", "seeds=0:2", "--no-report"]
    flags += ["--set", "train.rounds=2000000", "--set", "train.eval_every=1000"]
    process = subprocess.Popen(flags, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "r" / "locks").glob("*.lock")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(number)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code and time.monotonic() - begin < 10
    assert "go on" in errors.splitlines()[-1]
    assert not [p for p in (tmp_path / "r").rglob("*") if ".tmp" in p.name or p.suffix == ".part"]
