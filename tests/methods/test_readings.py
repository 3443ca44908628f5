"""What a method's module says about its paper, and what the registry makes of it."""

import re

import pytest

from cfljax.commands import methods as listing
from cfljax.methods import METHODS

PUBLISHED = [name for name in METHODS if listing.describe(name).paper]


def test_every_method_of_a_paper_is_under_the_tests_below():
    assert set(METHODS) - set(PUBLISHED) == {"local", "oracle"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_options_that_a_reading_names_exist_and_take_the_values_that_it_gives(name):
    about = listing.describe(name)
    assert about.readings
    fields = {field.name for field in about.options}
    for reading in about.readings:
        option = None
        named = reading.split(" Option: ")[1]
        for code in re.findall(r"`([^`]+)`", named):
            option, _, value = (
                code.partition(" = ") if not code.startswith('"') else (option, "", code)
            )
            if option.startswith("train."):
                continue
            assert option in fields, f"{name}: {option}"
            if value:
                METHODS.check(name, {option: _parsed(value)}, "method")
        assert option or named.startswith("none"), reading


def _parsed(value):
    return value.strip('"') if value.startswith('"') else {"true": True, "false": False}[value]


def test_details_show_the_readings():
    assert "reading: What is compared. Paper: whole models. Here: " in listing.details("fesem")
