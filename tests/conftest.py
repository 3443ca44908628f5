"""Tests run on the CPU, on tiny arrays: compiling is most of their time, so compile less thoroughly, and each program once."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("CFLJAX_CACHE", tempfile.mkdtemp(prefix="cfljax-tests-"))
