"""Functions in pieces: the same values, programs of their own compiled once, and memory taken only from what nobody reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.devices import compiled
from cfljax.devices.cut import LARGE, cut, in_pieces
from cfljax.devices.own_program import forget_traces, own_program
from cfljax.engine.pieces import check_types

A = jnp.arange(3.0)
TABLE = np.array([2.0, 4.0, 8.0], np.float32)


@own_program(static=(0,))
def _worked(times, x, y):
    return jnp.sin(x) * times + y, x.sum()


def several(a, b, c):
    """Calls before and after each other, with constants, and results that are arguments, constants, one array twice or a call's."""
    x, total = _worked(2, a + 1, 3.0)
    z, _ = _worked(2, x * b, TABLE)
    ones = jnp.ones(3)
    return {
        "z": z + total + ones,
        "x": x,
        "a": a,
        "again": x,
        "twice": [c * ones] * 2,
        "zeros": jnp.zeros(3),
        "four": [np.float32(4)] * 2,
        "t": TABLE,
    }


def made(f, *args, lost=0):
    of = cut(jax.jit(f).trace(*args), lost)
    return of, of.run_by(compiled.compiled(of.sources("f", None, False))[0])


def test_the_pieces_together_are_the_function():
    of, run = made(several, A, 2 * A, 3 * A)
    assert [bool(piece.own) for piece in of.pieces] == [False, True, False, True, False]
    jax.tree.map(np.testing.assert_array_equal, run(A, 2 * A, 3 * A), jax.jit(several)(A, 2 * A, 3 * A))
    jax.tree.map(np.testing.assert_array_equal, run(2 * A, A, A), jax.jit(several)(2 * A, A, A))


def test_a_function_without_calls_is_one_piece_and_one_of_calls_alone_has_no_other():
    assert len(made(lambda a: a * 2, A)[0].pieces) == 1
    of, run = made(lambda a, b: _worked(3, a, b), A, A)
    assert [piece.own for piece in of.pieces] == ["own_program_worked"]
    np.testing.assert_array_equal(run(A, A)[0], jax.jit(lambda a, b: _worked(3, a, b))(A, A)[0])


def test_what_nobody_needs_is_not_computed():
    def f(a):
        _worked(5, a, a)
        return a + 1

    assert [piece.own for piece in made(f, A)[0].pieces] == [""]


def test_a_call_does_not_wait_for_what_it_does_not_need():
    """Both calls come before the only other piece, which needs nothing but `a` for its product."""
    of, _ = made(lambda a, b: (_worked(2, a, b)[0] + _worked(3, b, a)[0]) * (a * a), A, A)
    assert [bool(piece.own) for piece in of.pieces] == [True, True, False]


def test_functions_share_a_program_of_its_own_and_nothing_else():
    f, g = (in_pieces(lambda a, k=k: _worked(7, a * k, a)[0] - k, False) for k in (2.0, 3.0))
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
    twice = in_pieces(lambda a: _worked(11, a, a)[0] + _worked(11, a + 1, a)[0], False)
    before = compiled.compilations
    twice(A)
    assert compiled.compilations - before == 3  # before, the program, after


def test_traces_are_kept_up_to_a_number_and_can_be_forgotten(monkeypatch):
    traced = []

    @own_program(static=(0,))
    def _noted(number, a):
        traced.append(number)
        return a * number

    def call(number):
        in_pieces(lambda a: _noted(number, a), False)(A)

    call(1), call(1), call(2)
    assert traced == [1, 2]
    forget_traces()
    call(1)
    assert traced == [1, 2, 1]
    monkeypatch.setattr("cfljax.devices.own_program.MOST", 2)
    traced.clear()
    for number in (3, 4, 5, 3):  # all are forgotten after the third
        call(number)
    assert traced == [3, 4, 5, 3]


def test_python_numbers_are_arrays():
    np.testing.assert_array_equal(in_pieces(lambda a, n: a * n, False)(A, 3), 3 * A)


def test_only_large_arrays_that_are_lost_are_overwritten():
    big, small = jnp.ones(LARGE), jnp.ones(LARGE - 1)

    def f(lost, kept, little):
        return lost + kept, little * 2

    of, run = made(f, big, big + 1, small, lost=1)
    assert of.overwrites == [(0,)]
    kept = big + 1
    np.testing.assert_array_equal(run(big, kept, small)[0], np.full(LARGE, 3.0))
    assert big.is_deleted() and not kept.is_deleted() and not small.is_deleted()
    assert made(lambda lost: (lost * 2, lost), kept, lost=1)[0].overwrites == [()]  # it is a result as well
    assert made(lambda a: _worked(2, a, a)[0], kept, lost=1)[0].overwrites == [()]  # the program is others', too


def test_what_is_lost_next_time_shares_no_memory_with_what_stays():
    """Results may be overwritten by the next call: they are neither arguments that stay, nor constants, nor each other."""
    _, run = made(lambda state, data: (state, data, data, jnp.asarray(TABLE), state), A, 2 * A, lost=1)
    state, data = A + 0, 2 * A
    results = run(state, data)
    places = [each.unsafe_buffer_pointer() for each in results]
    assert results[0] is state and len(set(places)) == 5 and data.unsafe_buffer_pointer() not in places
    again = run(state, data)
    assert again[3].unsafe_buffer_pointer() != results[3].unsafe_buffer_pointer()


def test_what_prints_stays_in_its_order(capfd):
    def f(a):
        jax.debug.print("before {}", a.sum(), ordered=True)
        x, _ = _worked(2, a, a)
        jax.debug.print("after {}", x.sum(), ordered=True)
        return x

    of, run = made(f, A)
    assert len(of.pieces) == 1
    np.testing.assert_array_equal(run(A), jax.jit(f)(A))
    jax.effects_barrier()
    said = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["before", "after"] * 2 and said[:2] == said[2:]


@pytest.mark.parametrize(
    "after", [{"a": jnp.zeros(4), "b": A}, {"a": jnp.zeros(3, jnp.int32), "b": A}, {"a": A}, {"a": A, "b": A, "c": A}]
)
def test_a_state_keeps_its_types(after):
    before, now = (jax.eval_shape(lambda of=of: of) for of in ({"a": A, "b": A}, after))
    check_types(before, before)
    with pytest.raises(TypeError, match=r"must not change .*\['"):
        check_types(before, now)
