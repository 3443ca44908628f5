"""Tests run on the CPU, on tiny arrays: compiling is most of their time, so compile less thoroughly, and each program once."""

import gc
import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("CFLJAX_CACHE", tempfile.mkdtemp(prefix="cfljax-tests-"))

import jax  # noqa: E402
import pytest  # noqa: E402

from cfljax import simulate  # noqa: E402


def group_of(item):
    """A file's tests share compiled programs, so they stay in one process; of the contract, those of a method."""
    group = item.path.name
    if group == "test_contract.py" and "name" in getattr(getattr(item, "callspec", None), "params", {}):
        group += f":{item.callspec.params['name']}"
    return group


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Compiled programs are dropped after each group. Every one maps some twenty pieces of memory, a process may map 65,530
    (vm.max_map_count), and XLA ends the process without a word when it gets no more."""
    if nextitem is None or group_of(nextitem) != group_of(item):
        simulate.forget()
        jax.clear_caches()
        gc.collect()
