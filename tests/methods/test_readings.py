"""What a method's module says about its paper, and what the registry makes of it."""

import re
import sys

import pytest

from cfljax.commands import methods as listing
from cfljax.methods import METHODS

PUBLISHED = [name for name in METHODS if listing.describe(name).paper]


def test_every_method_of_a_paper_is_under_the_tests_below():
    assert set(METHODS) - set(PUBLISHED) == {"local", "oracle"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_method_lists_what_its_paper_says_what_is_done_here_and_the_option(name):
    about = listing.describe(name)
    assert about.readings
    for reading in about.readings:
        assert re.fullmatch(r"[^.]+\. Paper: .+\. Here: .+\. Option: .+\.", reading), reading


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_options_that_a_reading_names_exist_and_take_the_values_that_it_gives(name):
    about = listing.describe(name)
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


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_choice_between_ways_of_computing_is_named(name):
    """`similarity = "sketch"` saves memory and is no reading of a paper, but for Joint's option of
    that name."""
    text = sys.modules[METHODS.entry(name).make.__module__].__doc__
    chosen = [field.name for field in listing.describe(name).options if field.metadata["choices"]]
    missing = [option for option in chosen if f"`{option}" not in text and option != "similarity"]
    assert not missing


def test_details_show_the_readings():
    assert "reading: What is compared. Paper: whole models. Here: " in listing.details("fesem")
