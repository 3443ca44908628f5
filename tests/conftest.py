"""Tests run on the CPU, on tiny arrays: compiling is most of their time, so compile less thoroughly, and each program once."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("CFLJAX_CACHE", tempfile.mkdtemp(prefix="cfljax-tests-"))

import pytest  # noqa: E402


def pytest_collection_modifyitems(items):
    """A file's tests share compiled programs, so they stay in one process; of the contract, those of a method."""
    for item in items:
        group = item.path.name
        if group == "test_contract.py" and "name" in getattr(getattr(item, "callspec", None), "params", {}):
            group += f":{item.callspec.params['name']}"
        item.add_marker(pytest.mark.xdist_group(group))
