# ruff: noqa: E501 (lines of XLA's text)
"""The reader of XLA's text, on small texts; no compiler is needed."""

import pytest

from benchmarks.aot import hlo, loops

GPU = """
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[64,64]{1,0}, s32[])->f32[64,64]{1,0}}

%fused_dot (p0: f32[64,64], p1: f32[64,32]) -> f32[64,32] {
  %p0 = f32[64,64]{1,0} parameter(0)
  %p1 = f32[64,32]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,32]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%fused_row (q0: f32[1000,64], q1: s32[]) -> f32[1,64] {
  %q0 = f32[1000,64]{1,0} parameter(0)
  %q1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,64]{1,0} dynamic-slice(%q0, %q1, %zero), dynamic_slice_sizes={1,64}
}

%inner_body (i: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %i = (s32[], f32[64,64]{1,0}) parameter(0)
  %i.0 = s32[] get-tuple-element(%i), index=0
  %i.1 = f32[64,64]{1,0} get-tuple-element(%i), index=1
  %copy.7 = f32[64,64]{1,0} copy(%i.1)
  ROOT %i.t = (s32[], f32[64,64]{1,0}) tuple(%i.0, %copy.7)
}

%inner_cond (j: (s32[], f32[64,64])) -> pred[] {
  %j = (s32[], f32[64,64]{1,0}) parameter(0)
  %j.0 = s32[] get-tuple-element(%j), index=0
  %five = s32[] constant(5)
  ROOT %lt = pred[] compare(%j.0, %five), direction=LT
}

%body (b: (s32[], f32[64,64], /*index=2*/f32[64,32])) -> (s32[], f32[64,64], f32[64,32]) {
  %b = (s32[], f32[64,64]{1,0}, /*index=2*/f32[64,32]{1,0}) parameter(0)
  %b.0 = s32[] get-tuple-element(%b), index=0
  %b.1 = f32[64,64]{1,0} get-tuple-element(%b), index=1
  %b.2 = f32[64,32]{1,0} get-tuple-element(%b), index=2
  %out = f32[64,32]{1,0} fusion(%b.1, %b.2), kind=kCustom, calls=%fused_dot
  %zero.1 = s32[] constant(0)
  %start = (s32[], f32[64,64]{1,0}) tuple(%zero.1, %b.1)
  %inner = (s32[], f32[64,64]{1,0}) while(%start), condition=%inner_cond, body=%inner_body, metadata={op_name="jit(f)/vmap(local_steps)/while/body/gather"}, backend_config={"known_trip_count":{"n":"5"}}
  %b.3 = f32[64,64]{1,0} get-tuple-element(%inner), index=1
  ROOT %b.t = (s32[], f32[64,64]{1,0}, f32[64,32]{1,0}) tuple(%b.0, %b.3, %out)
}

%cond (c: (s32[], f32[64,64], f32[64,32])) -> pred[] {
  %c = (s32[], f32[64,64]{1,0}, f32[64,32]{1,0}) parameter(0)
  %c.0 = s32[] get-tuple-element(%c), index=0
  ROOT %wrapped = pred[] fusion(%c.0), kind=kLoop, calls=%fused_row
}

ENTRY %main (x: f32[64,64], w: f32[64,32], n: s32[]) -> f32[64,64] {
  %x = f32[64,64]{1,0} parameter(0)
  %w = f32[64,32]{1,0} parameter(1)
  %n = s32[] parameter(2)
  %big = f32[1000,64]{1,0} broadcast(%n), dimensions={}
  %read = f32[1,64]{1,0} fusion(%big, %n), kind=kLoop, calls=%fused_row
  %t = (s32[], f32[64,64]{1,0}, f32[64,32]{1,0}) tuple(%n, %x, %w)
  %loop = (s32[], f32[64,64]{1,0}, f32[64,32]{1,0}) while(%t), condition=%cond, body=%body, metadata={op_name="jit(f)/vmap(local_steps)/while"}
  %sum = f32[64,64]{1,0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add, metadata={op_name="jit(f)/psum"}
  ROOT %get = f32[64,64]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_kernels_are_counted_per_iteration_of_each_loop():
    program = loops.look(hlo.parse(GPU), gpu=True)
    (outer, _), (inner, around) = loops.all_loops(program.body)
    assert (outer.name, outer.trip, outer.launches, outer.condition, outer.on_host) == ("local_steps", None, 1, 1, True)
    assert (inner.name, inner.trip, inner.launches, inner.condition, inner.on_host) == ("gather", 5, 1, 0, False)
    assert around == ("local_steps",)
    assert loops.launches_of(outer.body) == 1 + 5
    assert program.body.launches == 3  # a broadcast, a fusion and an all-reduce


def test_no_loop_of_a_tpu_returns_to_the_host():
    assert not any(loop.on_host for loop, _ in loops.all_loops(loops.look(hlo.parse(GPU), gpu=False).body))


def test_trip_counts_follow_from_a_counter_and_a_constant():
    text = GPU.replace(', backend_config={"known_trip_count":{"n":"5"}}', "")
    assert loops.all_loops(loops.look(hlo.parse(text), gpu=False).body)[1][0].trip == 5
    assert loops.all_loops(loops.look(hlo.parse(text.replace("%zero.1 = s32[] constant(0)", "%zero.1 = s32[] constant(2)")), False).body)[1][0].trip == 3  # fmt: skip
    unknown = text.replace("direction=LT", "direction=NE")
    assert loops.all_loops(loops.look(hlo.parse(unknown), gpu=True).body)[1][0].trip is None


def test_exchanges_say_where_they_are():
    (outside,) = loops.look(hlo.parse(GPU), gpu=True).collectives
    assert (outside.kind, outside.bytes, outside.op, outside.within) == ("all-reduce", 4 * 64 * 64, "jit(f)/psum", ())
    inside = GPU.replace("%copy.7 = f32[64,64]{1,0} copy(%i.1)", "%copy.7 = f32[64,64]{1,0} all-gather(%i.1), dimensions={0}")
    found = loops.look(hlo.parse(inside), gpu=True).collectives
    assert [(each.kind, each.within) for each in found] == [("all-gather", ("local_steps", "gather")), ("all-reduce", ())]


def test_scalars_of_a_tpu_and_marks_are_no_kernels():
    text = """
ENTRY %main (a: s32[], b: f32[8]) -> f32[8] {
  %a = s32[] parameter(0)
  %b = f32[8]{0} parameter(1)
  %c = s32[] add(%a, %a)
  %d = f32[8]{0} custom-call(%b), custom_call_target="AssumeGatherIndicesInBound"
  %e = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%d)
  %f = f32[8]{0} copy-done(%e)
  ROOT %g = f32[8]{0} add(%f, %b)
}
"""
    found = loops.look(hlo.parse(text), gpu=False).body
    assert found.launches == 2  # a copy and a sum


def test_a_text_without_a_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.parse("HloModule nothing\n")
