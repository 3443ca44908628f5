"""Sweeps in processes of their own, two of them together."""

import json
import os
import socket
import subprocess
import sys

from cfljax.store import Store
from tests.patience import PATIENCE

FLAGS = os.environ["XLA_FLAGS"]  # of conftest.py: compiling is most of the time

IN_TURN = """
import contextlib, io, json, os, sys
from cfljax.commands.cli import main

for words, environment in json.loads(sys.stdin.read()):
    os.environ |= environment
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    for name in environment:
        del os.environ[name]
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def in_turn(*commands, each=(), **more):
    """The ends (code, output, errors) of commands, one after another in one process: to start it
    takes longer than most of them. `each`: variables that the environment has besides during each
    command."""
    given = [
        ([str(word) for word in words], own)
        for words, own in zip(commands, each or [{}] * len(commands), strict=True)
    ]
    run = [sys.executable, "-c", IN_TURN]
    done = subprocess.run(
        run, input=json.dumps(given), capture_output=True, text=True, timeout=PATIENCE, **more
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def python(*words, **more):
    environment = os.environ | {"JAX_PLATFORMS": "cpu"} | more.pop("env", {})
    return subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=-1, stderr=-1, text=True, env=environment, **more
    )


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(spec, folder, number, port, *flags, **env):
    """Process `number` of two."""
    words = ["-m", "cfljax.sweep", spec, "--out", folder, "--no-report", "--quiet", *flags]
    words += [
        "--distributed",
        "--coordinator",
        f"localhost:{port}",
        "--process-id",
        number,
        "--num-processes",
        2,
    ]
    return python(*words, env={"XLA_FLAGS": FLAGS} | env)


def finish(process):
    """(exit code, standard error)."""
    try:
        _, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, err


def both(spec, folder, *flags, first=None, second=None):
    """The ends of two processes; `first`, `second`: what is special of each, (flags,
    environment)."""
    port, special = free_port(), [first or ([], {}), second or ([], {})]
    processes = [
        start(spec, folder, i, port, *flags, *more, **env) for i, (more, env) in enumerate(special)
    ]
    return [finish(process) for process in processes]


def arrays(folder):
    store = Store(folder, read_only=True)
    return {name: store.read(name).arrays for name in store.ids()}


def by_seed(folder):
    """The ids of its units, which depend on the plan."""
    return [
        name
        for name, _ in sorted(
            Store(folder, read_only=True).records().items(), key=lambda item: item[1]["seed"]
        )
    ]
