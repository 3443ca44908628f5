"""The table of what each method sends: some of its lines, played again."""

import pytest

from drills import bills


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "setting"),
    [("ifca", "int8 and dropout"), ("sr_fca", "late clients"), ("scaffold", "noise")],
)
def test_a_line_of_the_table_is_played_to_the_same_numbers(name, setting):
    assert bills.bill_of(name, setting) == bills.read_table()[name, setting]


def test_a_combination_that_is_refused_has_the_error():
    line = bills.bill_of("scaffold", "own heads")
    assert line == bills.read_table()["scaffold", "own heads"] and line["refused"]
    assert not line["bytes_up"]


def test_a_line_has_the_bytes_after_each_round():
    up, down = (
        [*map(int, bills.read_table()["ifca", "plain"][column].split())] for column in bills.COUNTED
    )
    # Five participants send a model of 48 numbers in each of four rounds, and receive two
    assert up == [5 * 48 * 4 * rounds for rounds in range(5)]
    assert down == [2 * each for each in up]
