"""The console command and shell completion."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cfljax import __version__
from cfljax.commands import cli
from cfljax.commands.completion import SHELLS, write_script
from tests.packaging.own import forgotten


@pytest.fixture(autouse=True)
def signals():
    """Commands take over the signals of their process; here that is pytest's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_after_a_command_nobody_watches_signals_any_more(capsys):
    """A notebook that is interrupted later must not be ended by a command that has returned."""
    threads = set(threading.enumerate())
    for _ in range(2):
        assert cli.main(["methods", "ifca"]) == 0
    assert "IFCA" in capsys.readouterr().out
    assert signal.set_wakeup_fd(-1) == -1
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()


def test_help_version_and_slips(capsys):
    assert cli.main([]) == 0 and cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in cli.COMMANDS) and "examples:" in said
    assert cli.main(["--version"]) == 0 and capsys.readouterr().out == f"cfljax {__version__}\n"
    assert cli.main(["swep"]) == 2 and 'did you mean "sweep"' in capsys.readouterr().err
    assert cli.main(["completion", "ksh"]) == 2 and "bash, zsh" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_its_help_under_this_name(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0 and f"usage: cfljax {name}" in capsys.readouterr().out


def test_commands_run(capsys):
    assert cli.main(["methods"]) == 0 and capsys.readouterr().out.startswith("fedavg")
    assert cli.main(["data", "list"]) == 0 and "digits" in capsys.readouterr().out
    assert cli.main(["load", "nowhere"]) == 3
    assert "nowhere" in capsys.readouterr().err


def test_methods_of_a_file_are_listed(capsys, tmp_path):
    page = Path(__file__).parents[2].joinpath("docs", "own.md").read_text()
    (tmp_path / "mine.py").write_text(
        re.search(r'title="my_method.py"\n(.*?)```', page, re.S)[1].replace('"median"', '"listed"')
    )
    with forgotten():
        assert cli.main(["methods", "--plugin", str(tmp_path / "mine.py")]) == 0
        assert "\nlisted" in capsys.readouterr().out
        assert cli.main(["methods", "listed", "--plugin", str(tmp_path / "mine.py")]) == 0
        assert "pull = 1.0" in capsys.readouterr().out


def test_a_reader_that_has_gone_is_an_error_without_a_traceback():
    kept = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }  # what is printed waits for the end
    words = [sys.executable, "-m", "cfljax.methods"]
    begun = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept
    )
    begun.stdout.close()
    assert (begun.stderr.read(), begun.wait()) == ("", 0)


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no device that is always full"
)
def test_a_full_disk_is_a_line_and_an_exit_code():
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "cfljax.methods"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ran.returncode == 3 and ran.stderr.startswith("cfljax: No space left")


def test_a_program_that_runs_a_command_ends_as_it_likes():
    text = """
import runpy, sys
sys.argv = ["x"]
try:
    runpy.run_module("cfljax.methods", run_name="__main__")
except SystemExit as ended:
    print("code", ended.code)
sys.exit(5)
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ran.returncode == 5 and ran.stdout.endswith("code 0\n")


@pytest.mark.parametrize(
    "text",
    [
        "{kill}\nfrom cfljax import script\nsys.meta_path.insert(0, Kill)\nscript.main()",
        "{kill}\nfrom cfljax.commands import cli\ncli.process.importlib.import_module = "
        "Kill.find_spec\ncli.run_program()",
    ],
)
def test_a_signal_while_modules_are_imported_is_a_line_and_no_traceback(text):
    kill = "class Kill:\n  def find_spec(*_): os.kill(os.getpid(), signal.SIGINT)"
    begun = "import os, signal, sys\nsys.argv = ['', 'sweep']\n" + text.format(kill=kill)
    ran = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True)
    assert (
        ran.returncode == 130
        and ran.stderr == "cfljax: stopped; start the same command again to go on\n"
    )


def complete(*words):
    """What bash offers for the last of these words."""
    line = f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}"
    text = f"{write_script('bash')}\n{line}; _shtab_cfljax; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert not ran.stderr
    return ran.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_flags_names_and_files(tmp_path, monkeypatch):
    assert complete("cfljax", "s") == ["sweep", "schema"]
    offered = set(complete("cfljax", "sweep", "--"))
    assert {"--out", "--dry-run", "--shard"} <= offered and "--as-worker" not in offered
    assert complete("cfljax", "sweep", "--keep", "") == ["state", "models", "labels", "none"]
    assert complete("cfljax", "run", "--model", "ml") == ["mlp"]
    assert complete("cfljax", "load", "--log", "w") == ["wandb"]
    assert (
        complete("cfljax", "run", "fedgr") == complete("cfljax", "methods", "fedgr") == ["fedgroup"]
    )
    assert complete("cfljax", "data", "i") == ["import"]
    assert complete("cfljax", "data", "describe", "dig") == ["digits"]
    assert complete("cfljax", "completion", "z") == ["zsh"]
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").touch()
    assert complete("cfljax", "sweep", "mi") == complete("cfljax", "report", "mi") == ["mine.toml"]
    assert not complete("cfljax", "init", "data", "--name", "d")


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "bash"])
def test_other_shells_take_their_script(shell):
    text = write_script(shell)
    assert "sweep" in text and "ifca" in text and "dry-run" in text
    if shutil.which(shell) and shell in ("zsh", "fish"):
        subprocess.run([shell, "-n", "-c", text], check=True)


def test_options_of_the_one_method_need_no_name(capsys):
    flags = ["--data", "blobs", "--model", "mclr", "--quiet", "--set", "train.rounds=1"]
    assert cli.main(["run", "fedprox", *flags, "--set", "method.mu=-1"]) == 2
    assert "method.fedprox.mu = -1" in capsys.readouterr().err


@pytest.mark.parametrize("lr", [1e9, 0.1])
def test_a_run_that_diverges_says_what_to_lower(lr, capsys):
    words = [
        "--rounds",
        "2",
        "--lr",
        str(lr),
        "--data",
        "blobs",
        "--set",
        "data.samples=200",
        "--quiet",
    ]
    assert cli.main(["run", "fedavg", *words]) == 0
    hint = re.fullmatch(
        r"cfljax: a run diverged, the first in round [12]: lower train.lr \(1e\+09\)\n",
        capsys.readouterr().err,
    )
    assert (hint is not None) == (lr > 1)


def test_data_that_are_not_there_are_refused_before_anything_is_announced(capsys):
    assert cli.main(["run", "fedavg", "--set", "data.name=nosuch"]) == 4
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and "nosuch" in said.err


def test_options_of_a_run_are_flags_and_what_others_call_them_is_known(capsys):
    words = ["--set", "data.samples=200", "--data", "blobs", "--quiet"]
    assert cli.main(["run", "--rounds", "1", "ifca", "--clusters=2", "--lr", "0.1", *words]) == 0
    short = capsys.readouterr().out
    long = [
        "--set",
        "train.rounds=1",
        "--set",
        "method.clusters=2",
        "--set",
        "train.lr=0.1",
        *words,
    ]
    assert cli.main(["run", "ifca", *long]) == 0 and capsys.readouterr().out == short
    for wrong, told in (
        (["run", "ifca", "--k", "4"], '"clusters"'),
        (["run", "fedavg", "--learning_rate", "4"], '"lr"'),
        (
            ["run", "fedavg", "--num_clients", "20"],
            "--num_clients: is an option of data; write --set data.clients=20",
        ),
        (["run", "fedavg", "--lr"], "its value is missing"),
        (["sweep", "--set", "clusters=4"], '"method.NAME.clusters"'),
        (["sweep", "--set", "num_rounds=4"], '"train.rounds"'),
        (["sweep", "--set", "data.num_clients=4"], '"clients"'),
        (["report", "x", "--dpi", "5"], "from 50 to 1200"),
    ):
        try:
            assert cli.main(wrong) == 2
        except SystemExit as ended:
            assert ended.code == 2
        said = capsys.readouterr().err
        assert told in said and said.count("\n") == 1 and len(said) < 300, said
