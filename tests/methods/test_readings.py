"""What a method's file says about its paper, and what the registry makes of it."""

import dataclasses
import inspect
import sys
import tomllib
from typing import get_args

import pytest

from cfljax.commands import methods as listing
from cfljax.config.train import Train
from cfljax.methods import METHODS, find_about
from cfljax.registry.options import check_value
from cfljax.round import about

BUILT_IN = list(filter(METHODS.is_built_in, METHODS))
PUBLISHED = [name for name in BUILT_IN if find_about(name).paper]
SHARED = [each for each in vars(about).values() if isinstance(each, about.Reading)]


def test_every_method_of_a_paper_is_under_the_tests_below():
    assert set(BUILT_IN) - set(PUBLISHED) == {"local", "oracle"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_method_says_its_family_and_where_its_paper_is(name):
    found = find_about(name)
    assert found.family in get_args(about.Family) and found.title and found.communication
    if name in PUBLISHED:
        assert found.authors and found.year >= 2017
        assert not found.link or found.link.startswith("https://")
        assert f"published: {found.authors} {found.year}, “{found.paper}”" in listing.details(name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_options_that_a_reading_names_exist_and_take_the_values_that_it_gives(name):
    readings = listing.describe(name).readings
    assert readings
    fields = {field.name for field in listing.describe(name).options}
    for option in (option for reading in readings for option in reading.options):
        key, _, value = option.partition(" = ")
        if key.startswith("train."):
            train = {field.name: field for field in dataclasses.fields(Train)}
            field = train[key.removeprefix("train.")]
            if value:
                hint = inspect.get_annotations(Train, eval_str=True)[field.name]
                check_value(tomllib.loads(f"x = {value}")["x"], hint, field.metadata, key)
            continue
        assert key in fields, f"{name}: {key}"
        if value:
            METHODS.check(name, tomllib.loads(option), "method")


def test_a_reading_that_several_methods_share_is_one_constant():
    seen = {}
    for name in PUBLISHED:
        for reading in listing.describe(name).readings:
            seen.setdefault(reading, []).append(reading)
    inherited = sys.modules["cfljax.methods.fedavg_ft"].READINGS
    several = {each for each, found in seen.items() if len(found) > 1} - set(inherited)
    assert several <= set(SHARED)
    assert all(each is seen[each][0] for found in seen.values() for each in found)
    assert all(len(seen[each]) > 1 for each in SHARED)


def test_details_show_the_readings():
    assert "reading: What is compared. Paper: whole models. Here: " in listing.details("fesem")


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_longer_than_the_terminal(width):
    for text in (listing.lines(), *map(listing.details, BUILT_IN)):
        wrapped = listing.wrap(text, width, 4)
        # A word such as a link may be longer than the terminal, and is not broken
        assert all(len(line) <= width or " " not in line.strip() for line in wrapped.splitlines())
        assert wrapped.split() == text.split()
