# ruff: noqa: E501 (lines of XLA's text)
"""The reader of XLA's text, on small texts, and predictions from what it finds; no compiler is needed."""

import json
from pathlib import Path

import numpy as np
import pytest
from cfljax.devices.chips import CHIPS, Rates
from cfljax.local.fitting import Form
from cfljax.local.predict_chip import STEP, THIN, by_xla, in_kernel

from benchmarks.aot import hlo, loops, predict, work
from benchmarks.aot.__main__ import ALL
from benchmarks.aot.table import table
from benchmarks.aot.targets import CHOSEN
from cfljax.local.lanes import packed
from cfljax.methods import METHODS

ROOT = Path(__file__).parents[2]
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


def test_operations_and_bytes_of_fusions():
    module = hlo.parse(GPU)
    body, entry = module.computations["body"], module.computations["main"]
    product = body.by_name["out"]
    assert work.flops(module, product, body) == 2 * 64 * 64 * 32
    assert work.bytes_moved(module, product, body) == 4 * (64 * 64 + 64 * 32 + 64 * 32)
    row = entry.by_name["read"]  # one row of a thousand, and where it is
    assert work.bytes_moved(module, row, entry) == 4 * (64 + 1 + 64)


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        # 20 products of 10 x 784 and 784 x 10, as XLA writes them for a TPU: in each position one place of the window counts
        ("f32[20,10,10]{2,1,0} convolution(f32[20,10,784] %a, f32[20,784,10] %b), window={size=20 stride=19 lhs_dilate=20}, dim_labels=0bf_0io->0bf", 2 * 20 * 10 * 784 * 10),
        # 3 x 3 over 4 x 4 with a border of zeros: 4 corners meet 4 numbers, 8 edges 6, 4 inner places 9
        ("f32[2,4,4,8]{3,2,1,0} convolution(f32[2,4,4,3] %a, f32[3,3,3,8] %b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", 2 * 2 * 8 * 3 * (4 * 4 + 8 * 6 + 4 * 9)),
        ("f32[2,8]{1,0} convolution(f32[2,3] %a, f32[3,8] %b), dim_labels=bf_io->bf", 2 * 2 * 3 * 8),
    ],
)  # fmt: skip
def test_operations_of_convolutions(line, operations):
    left, right = hlo.shapes_in(line.split("(")[1].split(")")[0])
    dims = lambda shape: f"f32[{','.join(map(str, shape.dims))}]"  # noqa: E731
    text = f"""
ENTRY %main (a: {dims(left)}, b: {dims(right)}) -> f32[] {{
  %a = {dims(left)} parameter(0)
  %b = {dims(right)} parameter(1)
  ROOT %c = {line.replace(dims(left) + " ", "").replace(dims(right) + " ", "")}
}}
"""
    module = hlo.parse(text)
    main = module.computations["main"]
    assert work.flops(module, main.root, main) == operations


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
    assert found.launches == 2 and found.bytes == 2 * 32 + 3 * 32  # a copy; two operands and a result


def test_seconds_are_those_of_kernels_products_bytes_and_the_host():
    program = loops.look(hlo.parse(GPU), gpu=True)
    only = lambda **of: Rates(**({"flops": 1e30, "bytes": 1e30, "launch": 0.0, "host": 0.0} | of))  # noqa: E731
    turns = predict.Turns(steps=7, blocks=1)
    close = lambda value: pytest.approx(value, rel=1e-6)  # noqa: E731
    assert predict.seconds(program, turns, only(launch=1.0)) == close(3 + 7 * (1 + 1 + 5))
    assert predict.seconds(program, turns, only(host=1.0)) == close(7)
    assert predict.seconds(program, turns, only(flops=1.0)) == close(7 * 2 * 64 * 64 * 32)


def test_clients_in_one_kernel_go_one_after_another_on_a_tpu_and_side_by_side_on_a_gpu():
    form = Form("tpu", 10, 16, 128, 128, (128,), 10, 1, True, *(False,) * 6)
    rates, product = Rates(flops=1.0, bytes=1.0, launch=0.0, host=0.0), 3 * 2 * 128**3
    assert in_kernel(form, [3, 1], rates) == 4 * product
    form = form._replace(dialect="gpu", rows=32, across=32, widths=(16,))
    a_step = STEP + 132 * (3 * 2 * 16 * 32 * THIN + 4 * 2 * 16 * (16 + 32))
    assert in_kernel(form, [3, 1], rates._replace(cores=132)) == 3 * a_step
    assert in_kernel(form, [3] * 264, rates._replace(cores=132)) == 6 * a_step


def test_the_way_that_was_faster_on_an_h200_is_predicted_to_be():
    """A step of W1 and W2 there, of twenty clients side by side; the quickstart's took half as long by the kernel."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "h200.json").read_text(encoding="utf-8"))
    took = {(r["workload"], r["system"]): r["about"] for r in rows}
    step = {name: about["chunk_s"] / about["steps_in_a_row"] for name, about in took.items() if "steps_in_a_row" in about}
    rates, steps = CHIPS["h200"].rates, np.full(20, 1000)
    at = lambda across, *widths, tile=0: Form("gpu", 10, 16, 2048, across, widths, 10, 1, False, *(False,) * 6, tile)  # noqa: E731
    kernel = lambda form: in_kernel(form, steps.tolist(), rates) / 1000  # noqa: E731
    xla = lambda form, inputs, *widths: by_xla(form, packed(steps, 0), inputs, widths, 10, 1, rates) / 1000  # noqa: E731
    near = lambda value: pytest.approx(value, rel=0.25)  # noqa: E731
    w1, w2, quickstart = at(1024, 16), at(1024, 128, 16, tile=64), at(64, 64, 16)
    assert (kernel(w1), xla(w1, 784, 10)) == (near(step["W1", "cfljax-pallas"]), near(step["W1", "cfljax"]))
    assert (kernel(w2), xla(w2, 784, 128, 10)) == (near(step["W2", "cfljax-pallas"]), near(step["W2", "cfljax"]))
    assert 2 * kernel(quickstart) < xla(quickstart, 64, 64, 10)


def test_a_text_without_a_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.parse("HloModule nothing\n")


def test_every_chip_has_its_constants():
    assert set(CHOSEN) <= set(CHIPS)


def test_the_page_has_the_table_of_the_kept_figures():
    text = (ROOT / "docs" / "accelerators.md").read_text(encoding="utf-8")
    kept = json.loads((ROOT / "benchmarks" / "results" / "aot.json").read_text(encoding="utf-8"))
    assert table(kept["rows"]) in text and kept["date"] in text and kept["versions"]["jax"] in text


def test_kept_figures_hold_what_they_are_to_hold():
    rows = json.loads((ROOT / "benchmarks" / "results" / "aot.json").read_text(encoding="utf-8"))["rows"]
    for target in ("v5e", "h200"):
        assert {row["method"] for row in rows if row["workload"] == "quickstart" and row["target"] == target} >= set(METHODS)
    assert {row["workload"] for row in rows} == {*ALL, "W5"}
    for row in rows:
        assert "error" not in row and row["collectives_in_steps"] == 0
        assert bool(row["collectives"]) == (":" in row["target"])
