"""How many clients an accelerator trains side by side, against a plain program that packs them one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfljax.local import lanes

some_steps = st.lists(st.integers(0, 60), min_size=1, max_size=24)


def packed(steps, width, block):
    """(steps in a row, clients' steps computed, clients trained): blocks one after another, and parts of a block."""
    in_a_row = computed = trained = 0
    block = min(block or len(steps), len(steps))
    width = min(width or block, block)
    for begin in range(0, len(steps), block):
        of_block = steps[begin : begin + block]
        for first in range(0, len(of_block), width):
            part = of_block[first : first + width]
            in_a_row += max(part)
            computed += width * max(part)
            trained += len(part)
    return in_a_row, computed, trained


@given(some_steps, st.integers(0, 30), st.integers(0, 30))
def test_steps_in_a_row_are_those_of_the_slowest_of_each_part(steps, width, block):
    steps = np.sort(steps)[::-1]
    in_a_row, computed, trained = packed(steps.tolist(), width, block)
    assert lanes.pack(steps, width, block) == (in_a_row, computed) and trained == len(steps)
    assert in_a_row >= steps.max() and computed >= steps.sum()


@given(some_steps, st.integers(1, 50))
def test_a_typical_round_has_the_spread_of_all_clients(steps, participants):
    found = lanes.typical_steps(np.array(steps), participants)
    ranked = sorted(steps, reverse=True)
    assert found.tolist() == [ranked[int((2 * s + 1) * len(steps) / (2 * participants))] for s in range(participants)]
    times = participants // len(steps)
    if times * len(steps) == participants:
        assert found.tolist() == [each for each in ranked for _ in range(times)]


@pytest.mark.parametrize("least", [2, 5])
def test_the_best_number_has_the_least_price_of_all_even_parts(least, monkeypatch):
    monkeypatch.setattr(lanes, "MIN_LANES", least)

    @given(some_steps, st.integers(0, 24))
    def check(steps, block):
        steps = sorted(steps, reverse=True)
        number = min(block or len(steps), len(steps))

        def price(width):
            in_a_row, computed, _ = packed(steps, width, block)
            return in_a_row / max(packed(steps, 0, block)[0], 1) + computed / max(sum(steps), 1)

        parts = {-(-number // int(2 ** (i / 2))) for i in range(2, 40)} | {least}
        allowed = [0, *(width for width in parts if least <= width < number)]
        best = lanes.choose_width(np.array(steps), block)
        assert best in allowed and price(best) == min(map(price, allowed))

    check()
