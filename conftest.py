"""Tests run on the CPU, on tiny arrays: compiling is most of their time, so compile less
thoroughly, and each program once."""

import atexit
import gc
import importlib.util
import mmap
import os
import pathlib
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Threads of scikit-learn and numpy for a few points wait for each other longer than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
QUICK = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0"
SIMPLER = {"xla_cpu_use_fusion_emitters": "false", "xla_cpu_parallel_codegen_split_count": "1"}
"""Half of the time of compiling goes into the newer way of making a kernel of a fusion. Versions of
XLA differ in these flags, and one that does not know a flag ends the process, so they are looked
for in the library."""


def known_to_xla(names):
    found = importlib.util.find_spec("jaxlib")
    library = pathlib.Path(found.submodule_search_locations[0]) / "libjax_common.so"
    if not library.is_file():
        return []
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        return [
            name for name in names if code.find(b"\0" + name.encode() + b"\0") >= 0
        ]  # a flag is a whole string


if QUICK not in os.environ.get(
    "XLA_FLAGS", ""
):  # a process of pytest-xdist has it from the one that started it
    more = [f"--{name}={SIMPLER[name]}" for name in known_to_xla(SIMPLER)]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), QUICK, *more]).strip()
CHECKOUT, programs = pathlib.Path(__file__).parent, None
if "CFLJAX_CACHE" not in os.environ:
    cache = os.environ["CFLJAX_CACHE"] = tempfile.mkdtemp(prefix="cfljax-tests-")
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    if os.access(
        CHECKOUT, os.W_OK
    ):  # tests that are run again find their programs; `pytest --cache-clear` removes them
        programs = CHECKOUT / ".pytest_cache" / "d" / "programs"
if (
    "JAX_COMPILATION_CACHE_DIR" not in os.environ
):  # for this process, pytest's workers, and the commands that tests start
    programs = programs or pathlib.Path(os.environ["CFLJAX_CACHE"]) / "compiled"
    programs.mkdir(parents=True, exist_ok=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(programs)
    os.environ |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

import jax  # noqa: E402
import pytest  # noqa: E402
from xdist.scheduler import LoadScopeScheduling  # noqa: E402

from cfljax.commands.process import COLLECT_RARELY  # noqa: E402
from cfljax.devices import compiled  # noqa: E402
from cfljax.files import MAX_CACHE_BYTES, drop_oldest  # noqa: E402
from tests.packaging.own import forgotten  # noqa: E402
from tests.programs import Programs  # noqa: E402
from tests.skips import Skips  # noqa: E402

if programs is not None:
    drop_oldest(programs, MAX_CACHE_BYTES)
gc.set_threshold(*COLLECT_RARELY)


@pytest.fixture(autouse=True)
def registries():
    """What a test registers is gone after it: others look at everything that is registered."""
    with forgotten():
        yield


TRACED = ("cfljax.devices", "cfljax.federation", "cfljax.kernels", "cfljax.local", "cfljax.models")


class Patches(pytest.MonkeyPatch):
    """After a change of what programs are traced from, what was traced before is not taken again
    (`devices.compiled`)."""

    traced = False

    def setattr(self, target, *args, **more):
        super().setattr(target, *args, **more)
        where = (
            target
            if isinstance(target, str)
            else getattr(target, "__module__", None) or getattr(target, "__name__", "")
        )
        if where.startswith(TRACED):
            self.traced = True
            compiled.forget()

    def undo(self):
        super().undo()
        if self.traced:
            compiled.forget()


@pytest.fixture
def monkeypatch():
    patches = Patches()
    yield patches
    patches.undo()


def is_of_contract(nodeid):
    """Whether this is a test that every method passes; its parameter is the method."""
    return nodeid.partition("::")[0].endswith("methods/test_contract.py")


def group_of(nodeid):
    """A file's tests share compiled programs, so they stay in one process; of the contract and of
    the crossings, those of a method."""
    path, _, test = nodeid.partition("::")
    by_method = is_of_contract(nodeid) or "tests/crossings/" in path
    return f"{path}:{test.partition('[')[2]}" if by_method else path


class Together(LoadScopeScheduling):
    """Shares groups out to the processes. pytest-xdist's own groups are marks, which pytest 9.2 no
    longer lets it use."""

    def _split_scope(self, nodeid):
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return Together(config, log)


def pytest_addoption(parser):
    parser.addoption(
        "--count-programs",
        action="store_true",
        help="count the programs of each file from scratch, and lower the numbers in programs.txt",
    )
    parser.addoption(
        "--expected-skips",
        metavar="FILE",
        action="append",
        help="fail where a test is skipped that no such file lists",
    )


def pytest_configure(config):
    config.pluginmanager.register(Programs(config, is_of_contract, group_of), "programs")
    expected = config.getoption("--expected-skips")
    if expected is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(expected), "skips")


@pytest.hookimpl(tryfirst=True)  # before -m deselects what is not long
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("rare"):
            item.add_marker("long")
    groups = {}
    for item in items:
        groups.setdefault(group_of(item.nodeid), []).append(item)
    items[:] = [
        item for group in groups.values() for item in group
    ]  # in one process, too, a group's tests follow each other


def pytest_xdist_auto_num_workers(config):
    """As many processes as there are cores for the whole suite; tests that are named run in this
    process, under any debugger."""
    if config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        return 0
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


CROWDED = 15_000


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Compiled programs are dropped between groups, once they are many. Every one maps some twenty
    pieces of memory, a process may map 65,530 (vm.max_map_count), and XLA ends the process without
    a word when it gets no more."""
    if (
        nextitem is not None
        and group_of(nextitem.nodeid) != group_of(item.nodeid)
        and _pieces_of_memory() > CROWDED
    ):
        compiled.forget()
        jax.clear_caches()
        gc.collect()


def _pieces_of_memory():
    maps = pathlib.Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 2 * CROWDED
