"""The two sides: where their packages are, and how specs are played with one of them, in processes of their own."""

import collections
import concurrent.futures
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import numpy as np

COMMIT = "a7ef2bbd"
ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
FORMAT = 1
"""Of the reference arrays; another number where `worker.py` names or keeps them in another way, or makes other data."""
MAKERS = ("jax", "jaxlib", "numpy", "flax", "optax", "scikit-learn", "scipy")
AT_A_TIME = 40
"""Specs that one process plays: its programs are gone with it."""
PATIENCE = 1200
"""Seconds after which a spec has failed."""
MOST_BYTES = 4 << 30
"""The most that compiled programs take up in the cache folder when specs are played."""


class Unplayable(Exception):
    """Specs cannot be played."""


def package_before(folder):
    """Write the package of COMMIT into the folder, and return that."""
    packed = _git(ROOT, "archive", COMMIT, "cfljax")
    if packed is None:  # a shallow clone: it is fetched without touching that
        origin, whole = _git(ROOT, "remote", "get-url", "origin"), folder / "git"
        fetched = origin and _git(ROOT, "init", "--quiet", "--bare", whole) is not None
        fetched = fetched and _git(whole, "fetch", "--quiet", "--depth", "1", origin.decode().strip(), COMMIT) is not None
        packed = _git(whole, "archive", "FETCH_HEAD", "cfljax") if fetched else None
    if packed is None:
        raise Unplayable(f"this clone has no commit {COMMIT} to compare with, and it cannot be fetched from its origin")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _git(folder, *arguments):
    """Return what git says, or None where it fails."""
    done = subprocess.run(["git", "-C", folder, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout if done.returncode == 0 else None


def reference_folder(cache):
    """Return the folder of the reference arrays for these versions and this machine."""
    cpu = platform.processor()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text().splitlines()
        cpu = "\n".join(next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags"))
    key = [FORMAT, platform.machine(), cpu, platform.python_version_tuple()[:2], *map(importlib.metadata.version, MAKERS)]
    return cache / "bits" / f"{COMMIT}-jax-{importlib.metadata.version('jax')}-{_short(key)}"


def reference_file(folder, spec):
    """Return the file of a spec's reference arrays, which is another one if anything in the spec changes."""
    return folder / f"{_short({key: spec[key] for key in sorted(spec) if key != 'quick'})}.npz"


def _short(what):
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


def read(file):
    """Return the arrays of an npz file."""
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def play(package, jobs, cache, side):
    """Play the jobs {name: spec with `file`} with the package in a folder, by two processes with a core each. Return {name: why} of
    those in which a process died. The processes begin at either end of the jobs, as neighbours share programs."""
    waiting = collections.deque(sorted(jobs, key=lambda name: jobs[name]["devices"]))
    programs, dead = cache / "bits" / "programs", {}
    if programs.exists() and sum(file.stat().st_size for file in programs.rglob("*") if file.is_file()) > MOST_BYTES:
        shutil.rmtree(programs)
    programs.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []
    print(f"{side}: {len(jobs)} specs to play", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        arguments = (package, jobs, waiting, programs, Path(folder), cores, dead)
        for served in [pool.submit(_serve, number, *arguments) for number in range(2)]:
            served.result()
    return dead


def _serve(number, package, jobs, waiting, programs, folder, cores, dead):
    """Play jobs until none is waiting, with one process after the other."""
    process, played, devices = None, 0, 0
    log = folder / f"log-{number}"
    while waiting:
        try:
            name = waiting.pop() if number else waiting.popleft()
        except IndexError:  # it was the last one
            break
        job = jobs[name]
        if process is None or played == AT_A_TIME or job["devices"] != devices:
            _end(process)
            devices, played = job["devices"], 0
            if cores:  # of this thread, which the process gets from it
                os.sched_setaffinity(0, set(cores) if devices > 1 else {cores[number % len(cores)]})
            process = _start(package, programs, folder, log, devices)
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        answer = _ask(process, json.dumps(job))
        timer.cancel()
        played += 1
        if not answer:
            dead[name] = f"its process ended with {process.wait()}: {_last_line(log)}"
            process = None
    _end(process)


def _start(package, programs, folder, log, devices):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CFLJAX", "JAX", "XLA", "PYTHON"))}
    settings = {
        "PYTHONPATH": str(package),
        "CFLJAX_CACHE": str(folder / "cache"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if devices > 1:
        settings["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-P", WORKER, package]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, env=kept | settings, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    if not process.stdout.readline():
        raise Unplayable(f"no process can be started with the package in {package}: {_last_line(log)}")
    return process


def _ask(process, line):
    """Send a line and return the answer, "" from a process that has died."""
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline()


def _end(process):
    if process is not None:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _last_line(log):
    return (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
