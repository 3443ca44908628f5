"""Signals that arrive at a bad moment."""

import re
import signal
import subprocess
import sys

import pytest

from tests.patience import PATIENCE

PROGRAM = """
import argparse, os, signal, sys, time
from cfljax.commands import process

def kill():
    os.kill(os.getpid(), signal.{name})

class Dying:
    def __del__(self):
        kill()  # what the handler raises is lost in here

def run(flags):
    print("begun", flush=True)
    {what}
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pass
    return 7

sys.path.insert(0, sys.argv.pop())
sys.exit(process.main(run, argparse.ArgumentParser()))
"""
WAYS = {
    "in a destructor": "thing = Dying(); del thing",
    "in an import": "import importing_slowly; print('imported', flush=True)",
    "twice": "kill() or kill()",
}


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_command_ends_at_once_in_one_line(tmp_path, way, name, code):
    (tmp_path / "importing_slowly.py").write_text(
        f"import os, signal\nos.kill(os.getpid(), signal.{name})\nprint('whole')\n"
    )
    line = [sys.executable, "-c", PROGRAM.format(name=name, what=WAYS[way]), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert (
        done.returncode == code
        and len(done.stderr.strip().splitlines()) == 1
        and "Traceback" not in done.stderr
    )
    assert ("whole" in done.stdout) == (
        way == "in an import"
    )  # the module has been imported to its end


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_a_command_ends_is_one_line(name):
    program = (
        "import argparse, os, signal, sys\nfrom cfljax import errors\nfrom cfljax.commands "
        "import process\n"
    )
    program += (
        "class Refused(errors.CfljaxError):\n    def __str__(self):\n        "
        f"os.kill(os.getpid(), signal.{name})\n"
    )
    program += (
        "def run(flags):\n    raise Refused\nsys.exit(process.main(run, "
        "argparse.ArgumentParser()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 128 + getattr(signal, name)
    assert re.fullmatch(
        r"cfljax: (stopped|terminated); start the same command again to go on\n", done.stderr
    )


def test_what_a_machine_lacks_is_no_traceback(tmp_path):
    (tmp_path / "program.py").write_text(
        "import argparse, sys, warnings\n"
        "from cfljax.commands import process\n"
        "from cfljax.store import DamagedWarning\n\n"
        "def run(flags):\n"
        "    warnings.warn('a: damaged', DamagedWarning)\n"
        "    warnings.warn('Error writing persistent compilation cache entry for f: OSError: "
        "full')\n"
        "    warnings.warn('Error writing persistent compilation cache entry for g: OSError: "
        "full')\n"
        "    print(chr(0x2013))\n"
        "    raise RuntimeError('Unable to initialize backend')\n\n"
        "sys.exit(process.main(run, argparse.ArgumentParser()))\n"
    )
    bare = {
        "PYTHONIOENCODING": "ascii",
        "JAX_PLATFORMS": "abacus",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        capture_output=True,
        text=True,
        env=bare,
        timeout=PATIENCE,
    )
    assert done.returncode == 2 and done.stdout == "?\n"
    first, cache, last = done.stderr.splitlines()
    assert (
        first == "cfljax: a: damaged"
        and "CFLJAX_CACHE" in cache
        and cache.endswith("OSError: full")
    )
    assert last == "cfljax: JAX_PLATFORMS=abacus: Unable to initialize backend"


def test_a_signal_after_the_end_of_a_command_says_nothing():
    program = "import argparse, os, signal; from cfljax.commands import process\n"
    program += (
        "process.main(lambda flags: 0, argparse.ArgumentParser())\nos.kill(os.getpid(), "
        "signal.SIGTERM)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == -signal.SIGTERM and done.stderr == ""
