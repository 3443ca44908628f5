"""Programs compiled for accelerators that are not there, by the compilers of the extra `aot`
(.ci/run installs them): they fit the chip's memory, and the loop over local steps has neither a
loop over clients or runs nor an exchange between devices in it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.compiled import (
    STEPS,
    TARGETS,
    below,
    bytes_accessed,
    compile_programs,
    computations,
    kernels,
    look,
    step_bodies,
)

SPEC = {
    "data": {"name": "digits", "partition": "rotated", "groups": 4, "clients": 40}, "model": {"name": "mlp", "hidden": [64]},
    "train": {"rounds": 20, "epochs": 2, "batch": 10, "lr": 0.1, "participation": 0.5, "eval_every": 10}, "seeds": [0, 1],
}  # fmt: skip
METHODS = {"fedavg": {}, "ifca": {"clusters": 4}}
COLLECTIVES = (
    r" "
    r"(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast)(-start)?\("
)


@pytest.mark.parametrize("target", TARGETS)
def test_programs_compile_for_a_chip_that_is_not_there(target):
    if importlib.util.find_spec(TARGETS[target][0]) is None:
        pytest.skip(f"{TARGETS[target][0]} is not installed")
    more = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    done = subprocess.run(
        [sys.executable, __file__, target], capture_output=True, text=True, env=os.environ | more
    )
    assert done.returncode == 0, done.stderr[-3000:]


MODULE = """HloModule two

%body (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %p = (s32[], f32[8,4]{1,0}) parameter(0)
  %x = f32[8,4]{1,0} get-tuple-element(%p), index=1
  %y = f32[8,4]{1,0} fusion(%x), kind=kLoop, calls=%inner
  ROOT %t = (s32[], f32[8,4]{1,0}) tuple(%i, %y)
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %w = (s32[], f32[8,4]{1,0}) while(%s), condition=%c, body=%body, metadata={op_name="jit(f)/local_steps/while"}
}
"""


def test_the_kernels_of_a_step_are_counted_with_the_bytes_that_they_write():
    found = computations(MODULE)
    assert step_bodies(found) == ["body"]
    assert kernels(found["body"]) == [("fusion", 8 * 4 * 4)]


READS = """HloModule three

%gathers (a: f32[100,4], b: s32[2,1]) -> f32[2,4] {
  %pool = f32[100,4]{1,0} parameter(0)
  %same = f32[100,4]{1,0} bitcast(%pool)
  %at = s32[2,1]{1,0} parameter(1)
  ROOT %g = f32[2,4]{1,0} gather(%same, %at), offset_dims={1}, slice_sizes={1,4}
}

%twice (a: f32[2,4], b: f32[2,4]) -> f32[2,4] {
  %left = f32[2,4]{1,0} parameter(0)
  %right = f32[2,4]{1,0} parameter(1)
  ROOT %sum = f32[2,4]{1,0} add(%left, %right)
}

%body (p: (f32[100,4], s32[2,1])) -> f32[2,4] {
  %p = (f32[100,4]{1,0}, s32[2,1]{1,0}) parameter(0)
  %x = f32[100,4]{1,0} get-tuple-element(%p), index=0
  %i = s32[2,1]{1,0} get-tuple-element(%p), index=1
  %y = f32[2,4]{1,0} fusion(%x, /*index=1*/%i), kind=kLoop, calls=%gathers
  ROOT %z = f32[2,4]{1,0} fusion(%y, %y), kind=kLoop, calls=%twice
}
"""


def test_of_what_is_gathered_the_part_counts_and_what_is_read_twice_counts_once():
    found = computations(READS)
    # 2 rows of the pool, 2 positions, 2 rows written; 2 rows read, 2 written
    assert bytes_accessed(found, "body") == (32 + 8 + 32) + (32 + 32)


def no_worse(target):
    """Fail if a step of the quickstart starts more kernels, or moves more bytes, than when the
    committed table was made."""
    rows = json.loads((Path(__file__).parents[1] / "results" / "compiled.json").read_text())
    for runs in (1, 64):
        wanted = (target, "Q", runs)
        then = next(r for r in rows if (r["target"], r["workload"], r["runs"]) == wanted)
        now = look(*wanted)
        for figure in ("kernels_per_step", "accessed_per_step"):
            assert now[figure] <= 1.02 * then[figure], f"{figure} of {wanted}: {now[figure]}"


def check(target):
    """Compile the programs of each method, and look into them."""
    for method, options in METHODS.items():
        rounds, evaluate = compile_programs(target, SPEC | {"method": {"name": method} | options})
        for program in (rounds, evaluate):
            memory = program.memory_analysis()
            assert (
                memory.argument_size_in_bytes + memory.temp_size_in_bytes < TARGETS[target][2] / 10
            )
        found = computations(rounds.as_text())
        bodies = step_bodies(found)
        assert bodies, "no loop over local steps"
        for body in bodies:
            inside = below(found, body)
            assert not [line for line in inside if re.search(COLLECTIVES, line)]
            nested = [line for line in inside if " while(" in line]
            assert all(STEPS in line for line in nested), (
                nested
            )  # a block of steps inside the loop over blocks
        whole = "\n".join(line for lines in found.values() for line in lines)
        assert bool(re.search(COLLECTIVES, whole)) == (":" in target)
    if ":" not in target:
        no_worse(target)


if __name__ == "__main__":
    check(sys.argv[1])
