"""A mutation run: small wrong changes to the package, one at a time, each of which the tests of its part should notice.

    python -m drills.mutate --count 100 --seed 0
    python -m drills.mutate --only store --count 20

Works on a copy of the checkout; mutants are drawn at random, each part equally often and none twice. A mutant that no test fails
on is listed with its place, for a person to read. Those that were read and change nothing are in `equivalent.toml`,
each with the reason; they are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NoReturn

from drills import common
from drills.common import Figure, Tally
from drills.mutants import Mutant, described, wanted

WHAT = "mutants of kernels/, store/, federation/, devices/, local/ and engine/"
FIGURE = Figure("mutate", "mutants", WHAT, "at least 85 % killed", 100)
KERNELS, STORE, FEDERATION = "tests/kernels/test_contract.py", "tests/store/", "tests/federation/"
DEVICES, LOCAL = "tests/devices/", "tests/local/"
SHAPES = "tests/kernels/test_shapes.py"
FEW_STEPS = LOCAL + "test_solver.py -k number_of_steps"
WHOLE = {
    "kernels": ("tests/kernels",),
    "store": (
        *(f"tests/store/test_{name}.py" for name in ("units", "order", "damage", "result", "summary", "processes", "round_trips")),
        "tests/hostile/test_array_files.py",
    ),
    "federation": (
        *(f"tests/federation/test_{name}.py" for name in ("pack", "errors", "recipes", "gather", "partitions", "properties")),
    ),
    "devices": ("tests/devices", "tests/launch/test_mesh.py"),
    "local": ("tests/local", "tests/engine/test_engine.py"),
    "engine": ("tests/engine/test_engine.py", "tests/engine", "tests/methods/test_contract.py -k ifca"),
}
"""Part → its tests, for files that TESTS does not name."""
TESTS = {
    "kernels/blocks.py": ("tests/kernels/test_cosine_cover.py", "tests/kernels/test_choose.py", KERNELS),
    "kernels/choose.py": ("tests/kernels/test_choose.py", KERNELS),
    "kernels/cosine.py": ("tests/kernels/test_cosine_cover.py", "tests/kernels/test_spectral.py", KERNELS),
    "kernels/cover.py": ("tests/kernels/test_cosine_cover.py", KERNELS),
    "kernels/host.py": ("tests/kernels/test_host.py",),
    "kernels/inter_group.py": ("tests/kernels/test_inter_group.py", KERNELS),
    "kernels/kmeans.py": ("tests/kernels/test_kmeans.py", KERNELS),
    "kernels/mix.py": ("tests/kernels/test_mix.py", "tests/kernels/test_mix_properties.py", KERNELS),
    "kernels/robust.py": ("tests/kernels/test_robust.py",),
    "kernels/simplex.py": ("tests/kernels/test_simplex.py", KERNELS),
    "kernels/sketch.py": ("tests/kernels/test_sketch.py", KERNELS),
    "kernels/spectral.py": ("tests/kernels/test_spectral.py", KERNELS),
    "store/compact.py": (STORE + "test_compact.py",),
    "store/summary.py": (STORE + "test_summary.py", STORE + "test_result.py"),
    "store/provenance.py": (STORE + "test_summary.py",),
    "store/arrays.py": (STORE + "test_units.py", STORE + "test_damage.py", "tests/hostile/test_array_files.py"),
    "store/locks.py": (STORE + "test_order.py", STORE + "test_processes.py", STORE + "test_damage.py"),
    "federation/gather.py": (FEDERATION + "test_gather.py",),
    "local/data.py": (FEW_STEPS, LOCAL + "test_solver.py"),
    "local/gradients.py": (LOCAL + "test_solver.py -k gradient", FEW_STEPS, LOCAL + "test_solver.py"),
    "local/gram.py": (LOCAL + "test_plans.py -k gram_matrix", LOCAL + "test_plans.py", LOCAL + "test_turned.py"),
    "local/optimiser.py": (LOCAL + "test_solver.py -k optax", LOCAL + "test_plans.py -k gram_matrix", LOCAL + "test_solver.py"),
    "local/sizes.py": (LOCAL + "test_plans.py -k size", LOCAL + "test_plans.py"),
    "local/schedule.py": (FEW_STEPS, LOCAL + "test_turned.py", LOCAL + "test_solver.py", LOCAL + "test_plans.py -k gram_matrix"),
    "local/send.py": (LOCAL + "test_send.py",),
    "local/lanes.py": (LOCAL + "test_lanes_properties.py", LOCAL + "test_lanes.py"),
    "local/solver.py": (
        *(FEW_STEPS, LOCAL + "test_solver.py", LOCAL + "test_plans.py", LOCAL + "test_send.py"),
        "tests/methods/test_ifca.py",
    ),
    "local/predict.py": (LOCAL + "test_plans.py -k pays",),
    "devices/machine.py": ("tests/devices/test_machine.py",),
    "devices/cores.py": ("tests/launch/test_progress.py",),
    "devices/placement.py": (DEVICES + "test_dealing.py", "tests/launch/test_mesh.py"),
    "devices/spread.py": (
        *(
            DEVICES + "test_dealing.py",
            DEVICES + "test_spread.py",
            "tests/engine/test_scoring.py",
            LOCAL + "test_plans.py -k dealt",
            LOCAL + "test_plans.py -k devices",
        ),
        "tests/launch/test_mesh.py",
    ),
    "engine/metrics.py": ("tests/kernels/test_metrics.py",),
    "local/stream.py": ("tests/engine/test_scoring.py", LOCAL + "test_plans.py -k blocks"),
    "local/train.py": (FEW_STEPS, LOCAL + "test_solver.py"),
    "local/turned.py": (LOCAL + "test_turned.py",),
}
"""The tests of a file that find its mistakes, those that take least first; words as for pytest."""
SLOWER = 4
"""A mutant whose tests take this many times as long as they should counts as killed: it never ends."""


def tests_of(file: str) -> tuple[str, ...]:
    """The tests that should notice a mutant of this file of the package."""
    name = file.removeprefix("cfljax/")
    part = name.partition("/")[0]
    return (*((SHAPES,) if part == "kernels" else ()), *(TESTS.get(name) or WHOLE[part]))


class Runner:
    """Runs tests in processes forked off this one, which has imported what takes long and nothing of the package. They share
    compiled programs: most are those of the package as it is."""

    def __init__(self, copy: Path):
        self.copy, self.usual = copy, dict[str, float]()
        os.environ |= {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0",  # a third less time
            "JAX_COMPILATION_CACHE_DIR": str(common.CACHE / "mutants"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "CFLJAX_CACHE": str(copy.parent / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        import chex  # noqa: F401
        import flax.linen  # noqa: F401
        import hypothesis  # noqa: F401
        import jax  # noqa: F401
        import optax  # noqa: F401
        import scipy.cluster.hierarchy  # noqa: F401
        import sklearn.cluster  # noqa: F401

        warnings.filterwarnings("ignore", "os.fork")

    def passes(self, tests: str, limit: float) -> bool:
        """Whether all of them pass, in time."""
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._run(tests)
        end, done = time.monotonic() + limit, 0
        try:
            while time.monotonic() < end:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    return status == 0
                time.sleep(0.01)
        finally:
            if not done:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return False

    def _run(self, tests: str) -> NoReturn:
        code = 1
        try:
            import pytest

            os.chdir(self.copy)
            sys.path[:] = [str(self.copy), *(p for p in sys.path if p not in ("", str(common.ROOT)))]
            for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "cfljax")]:
                del sys.modules[name]
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests.split()]))
        finally:
            os._exit(code)

    def survives(self, mutant: Mutant) -> bool:
        """Whether no test fails on it; one file of tests after another."""
        path = self.copy / mutant.file
        data = path.read_bytes()
        for tests in tests_of(mutant.file):
            self._look(tests)
            path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
            try:
                compile(path.read_bytes(), str(path), "exec")
                if not self.passes(tests, 30 + SLOWER * self.usual[tests]):
                    return False
            except SyntaxError:
                return False
            finally:
                path.write_bytes(data)
        return True

    def _look(self, tests: str) -> None:
        """They have to pass on the package as it is."""
        if tests not in self.usual:
            begin = time.monotonic()
            assert self.passes(tests, 1200), f"{tests}: fail as they are"
            self.usual[tests] = time.monotonic() - begin
            print(f"{tests}: {self.usual[tests]:.1f} s", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    made = argparse.ArgumentParser("python -m drills.mutate", description=__doc__)
    made.add_argument("--count", type=int, default=FIGURE.count)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", help="parts whose name holds this")
    made.add_argument("--add", action="store_true")
    made.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant later than this")
    made.add_argument("--json", type=Path, default=common.RESULTS / "mutate.json")
    flags = made.parse_args(arguments)
    tally, begin, draw = Tally(), time.perf_counter(), random.Random(flags.seed)
    tally.end = time.monotonic() + flags.seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    parts = [f"cfljax/{part}" for part in WHOLE if flags.only in part]
    with tempfile.TemporaryDirectory(prefix="cfljax-mutants-") as name:
        copy = Path(name) / "copy"
        shutil.copytree(common.ROOT, copy, ignore=shutil.ignore_patterns(".git", "*.egg-info", ".*_cache", "__pycache__"))
        for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "copy"]):
            subprocess.run(["git", *words], cwd=copy, check=True)  # some tests ask for the state of the repository
        runner, left = Runner(copy), {part: wanted(part, copy) for part in parts}
        with contextlib.suppress(SystemExit):  # ended early; what has been tried is kept
            for _ in tally.trials(flags.count):
                part = draw.choice(parts)
                if not left[part]:
                    continue
                mutant = left[part].pop(draw.randrange(len(left[part])))
                lived = runner.survives(mutant)
                _, before, after = described(mutant, copy)
                tally.check(f"{mutant.file}:{mutant.line}: {before!r} → {after!r} survives" if lived else None)
                tally.count(part)
                tally.count("survivors", int(lived))
    only = f" --only {flags.only}" if flags.only else ""
    line = f"python -m drills.mutate --count {flags.count} --seed {flags.seed}{only}"
    common.write(FIGURE, tally, line, flags.json, flags.add, begin)
    return 0 if len(tally.failures) <= 0.15 * tally.tried else 1


if __name__ == "__main__":
    sys.exit(main())
