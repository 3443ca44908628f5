"""Functions in segments: the same values, shared functions compiled once, and memory taken only
from what nobody reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.devices import compiled
from cfljax.devices.compiled import MAX_KEPT, compile_later, keep, shared_function
from cfljax.devices.split import MIN_DONATED, SplitFunction, check_types, split_jit

A = jnp.arange(3.0)
TABLE = np.array([2.0, 4.0, 8.0], np.float32)


@shared_function(static=(0,))
def _worked(times, x, y):
    return jnp.sin(x) * times + y, x.sum()


def several(a, b, c):
    """Calls before and after each other, with constants, and results that are arguments, constants,
    one array twice or a call's."""
    x, total = _worked(2, a + 1, 3.0)
    z, _ = _worked(2, x * b, TABLE)
    ones = jnp.ones(3)
    constants = {"zeros": jnp.zeros(3), "four": [np.float32(4)] * 2, "t": TABLE}
    return {"z": z + total + ones, "x": x, "a": a, "again": x, "twice": [c * ones] * 2} | constants


def made(f, *args, **more):
    of = SplitFunction(jax.jit(f).trace(*args), quick=False, **more)
    return of, of.result()


def test_the_segments_together_are_the_function():
    of, run = made(several, A, 2 * A, 3 * A)
    assert [bool(segment.shared) for segment in of.segments] == [False, True, False, True, False]
    jax.tree.map(
        np.testing.assert_array_equal, run(A, 2 * A, 3 * A), jax.jit(several)(A, 2 * A, 3 * A)
    )
    jax.tree.map(np.testing.assert_array_equal, run(2 * A, A, A), jax.jit(several)(2 * A, A, A))


def test_a_function_without_calls_is_one_segment_and_one_of_calls_alone_has_no_other():
    assert len(made(lambda a: a * 2, A)[0].segments) == 1
    of, run = made(lambda a, b: _worked(3, a, b), A, A)
    assert [segment.shared for segment in of.segments] == ["shared_worked"]
    np.testing.assert_array_equal(run(A, A)[0], jax.jit(lambda a, b: _worked(3, a, b))(A, A)[0])


def test_what_nobody_needs_is_not_computed():
    def f(a):
        _worked(5, a, a)
        return a + 1

    assert [segment.shared for segment in made(f, A)[0].segments] == [""]


def test_a_call_does_not_wait_for_what_it_does_not_need():
    """Both calls come before the only other piece, which needs nothing but `a` for its product."""
    of, _ = made(lambda a, b: (_worked(2, a, b)[0] + _worked(3, b, a)[0]) * (a * a), A, A)
    assert [bool(segment.shared) for segment in of.segments] == [True, True, False]


def test_functions_share_a_program_of_its_own_and_nothing_else():
    f, g = (split_jit(lambda a, k=k: _worked(7, a * k, a)[0] - k) for k in (2.0, 3.0))
    before = compiled.compilations
    np.testing.assert_allclose(f(A), np.sin(2 * A) * 7 + A - 2, rtol=1e-5)
    first = compiled.compilations - before
    np.testing.assert_allclose(g(A), np.sin(3 * A) * 7 + A - 3, rtol=1e-5)
    assert first == 3 and compiled.compilations - before == 5
    f(A)
    g(A + 1)
    assert compiled.compilations - before == 5
    f(jnp.arange(4.0))  # of another shape
    assert compiled.compilations - before == 8


def test_a_program_that_is_called_twice_is_compiled_once():
    twice = split_jit(lambda a: _worked(11, a, a)[0] + _worked(11, a + 1, a)[0])
    before = compiled.compilations
    twice(A)
    assert compiled.compilations - before == 3  # before, the program, after


def test_traces_are_kept_until_programs_are_forgotten():
    traced = []

    @shared_function(static=(0,))
    def _noted(number, a):
        traced.append(number)
        return a * number

    def call(number):
        split_jit(lambda a: _noted(number, a))(A)

    call(1), call(1), call(2)
    assert traced == [1, 2]
    for number in range(MAX_KEPT):  # all are forgotten before they are too many
        keep(("test", number), number)
    assert len(compiled._kept) <= MAX_KEPT
    call(1)
    assert traced == [1, 2, 1]


def test_a_program_that_could_not_be_compiled_is_compiled_again(monkeypatch):
    compile, tried = compiled._compile, []

    def fail_once(*args):
        tried.append(args)
        return compile(*args) if len(tried) > 1 else 1 / 0

    monkeypatch.setattr(compiled, "_compile", fail_once)
    with pytest.raises(ZeroDivisionError):
        compile_later(jax.jit(lambda a: a + 1), (A,), "test_again").result()
    assert compile_later(jax.jit(lambda a: a + 1), (A,), "test_again").result()(A).tolist() == [
        1,
        2,
        3,
    ]


def test_python_numbers_are_arrays():
    np.testing.assert_array_equal(split_jit(lambda a, n: a * n)(A, 3), 3 * A)


def test_only_large_arrays_that_are_lost_are_overwritten():
    big, small = jnp.ones(MIN_DONATED), jnp.ones(MIN_DONATED - 1)

    def f(lost, kept, little):
        return lost + kept, little * 2

    of, run = made(f, big, big + 1, small, lost=1)
    assert [each.result().donate_argnums for each in of.programs] == [(0,)]
    kept = big + 1
    np.testing.assert_array_equal(run(big, kept, small)[0], np.full(MIN_DONATED, 3.0))
    assert big.is_deleted() and not kept.is_deleted() and not small.is_deleted()
    made(lambda lost: (lost * 2, lost), kept, lost=1)[1](kept)  # it is a result as well
    made(lambda a: _worked(2, a, a)[0], kept, lost=1)[1](kept)  # the program is others', too
    assert not kept.is_deleted()


def test_what_is_lost_next_time_shares_no_memory_with_what_stays():
    """Results may be overwritten by the next call: they are neither arguments that stay, nor
    constants, nor each other."""
    _, run = made(
        lambda state, data: (state, data, data, jnp.asarray(TABLE), state), A, 2 * A, lost=1
    )
    state, data = A + 0, 2 * A
    results = run(state, data)
    places = [each.unsafe_buffer_pointer() for each in results]
    assert (
        results[0] is state and len(set(places)) == 5 and data.unsafe_buffer_pointer() not in places
    )
    again = run(state, data)
    assert again[3].unsafe_buffer_pointer() != results[3].unsafe_buffer_pointer()


def test_what_prints_stays_in_its_order(capfd):
    def f(a):
        jax.debug.print("before {}", a.sum(), ordered=True)
        x, _ = _worked(2, a, a)
        jax.debug.print("after {}", x.sum(), ordered=True)
        return x

    of, run = made(f, A)
    assert len(of.segments) == 1
    np.testing.assert_array_equal(run(A), jax.jit(f)(A))
    jax.effects_barrier()
    said = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["before", "after"] * 2 and said[:2] == said[2:]


@pytest.mark.parametrize(
    "after",
    [
        {"a": jnp.zeros(4), "b": A},
        {"a": jnp.zeros(3, jnp.int32), "b": A},
        {"a": A},
        {"a": A, "b": A, "c": A},
    ],
)
def test_a_state_keeps_its_types(after):
    before, now = (jax.eval_shape(lambda of=of: of) for of in ({"a": A, "b": A}, after))
    check_types(before, before)
    with pytest.raises(TypeError, match=r"must not change .*\['"):
        check_types(before, now)
