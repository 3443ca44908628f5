"""What is counted in XLA's dumps and JAX's log is what a person would count there."""

import pytest

from benchmarks.programs import compile_seconds, dumped, kernels
from benchmarks.startup import PARTS, starts, table

MODULE = """HloModule jit_f, is_scheduled=true

%fused (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  ROOT %add.1 = f32[8]{0} add(%param_0, %param_0)
}

%less (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %compare.1 = pred[] compare(%a, %b), direction=LT
}

%body (loop: (s32[], f32[8])) -> (s32[], f32[8]) {
  %loop = (s32[], f32[8]{0}) parameter(0)
  %one = f32[8]{0} get-tuple-element(%loop), index=1
  %zero = s32[] get-tuple-element(%loop), index=0
  %sort.1 = f32[8]{0} sort(%one), dimensions={0}, to_apply=%less
  %next = s32[] add(%zero, %zero)
  ROOT %both = (s32[], f32[8]{0}) tuple(%next, %sort.1)
}

%until (loop.1: (s32[], f32[8])) -> pred[] {
  %loop.1 = (s32[], f32[8]{0}) parameter(0)
  %count = s32[] get-tuple-element(%loop.1), index=0
  ROOT %done = pred[] compare(%count, %count), direction=LT
}

%outlined (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %fusion.1 = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused
}

%left (p.1: f32[8]) -> f32[8] {
  %p.1 = f32[8]{0} parameter(0)
  ROOT %negate.1 = f32[8]{0} negate(%p.1)
}

%right (p.2: f32[8]) -> f32[8] {
  ROOT %p.2 = f32[8]{0} parameter(0)
}

ENTRY %main (x: f32[8], n: s32[]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %n = s32[] parameter(1)
  %call.1 = f32[8]{0} call(%x), to_apply=%outlined
  %call.2 = f32[8]{0} call(%call.1), to_apply=%outlined
  %start = (s32[], f32[8]{0}, /*index=2*/f32[2,4]{1,0}) tuple(%n, %call.2)
  %while.1 = (s32[], f32[8]{0}) while(%start), condition=%until, body=%body
  %last = f32[8]{0} get-tuple-element(%while.1), index=1
  %chosen = f32[8]{0} conditional(%n, %last, %last), branch_computations={%left, %right}
  ROOT %product = f32[8]{0} multiply(%chosen, %chosen)
}
"""


def test_kernels_of_loops_branches_and_calls_are_counted_and_those_inside_of_kernels_are_not():
    # the entry: multiply; the outlined fusion, once; the body: sort, add; the condition: compare; a branch: negate
    assert kernels(MODULE) == 6
    with pytest.raises(ValueError, match="ENTRY"):
        kernels("HloModule jit_f")


def test_a_folder_of_dumps(tmp_path):
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations.txt").write_text(MODULE)
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text(MODULE)
    (tmp_path / "module_0002.jit_g.cpu_after_optimizations.txt").write_text("ENTRY %m (x: f32[8]) -> f32[8] {\n}\n")
    assert dumped(tmp_path) == [("f", 6), ("g", 0)]


def test_seconds_of_compiling_are_read_from_the_log():
    log = "noise\nFinished XLA compilation of jit(<lambda>) in 0.5 sec\nW Finished XLA compilation of jit(on_all) in 2.25 sec\n"
    assert compile_seconds(log) == [("<lambda>", 0.5), ("on_all", 2.25)]


def test_a_second_start_follows_a_first_one_of_the_same_command():
    todo = starts(list(PARTS))
    for before, start in zip(todo, todo[1:], strict=False):
        assert not start.second or before.words == start.words
    assert {start.workload for start in todo if start.second} == {"dry-run", "run, second start", "quickstart, second start"}


def test_the_table_has_ratios():
    rows = [
        {"workload": "run", "system": name, "median_s": seconds, "compile_s": 1.0, "about": {}}
        for name, seconds in (("cfljax", 2.0), ("cfljax 684e9dc", 8.0))
    ]
    assert "0.25" in table(rows).splitlines()[1] and "1.00" in table(rows).splitlines()[2]
