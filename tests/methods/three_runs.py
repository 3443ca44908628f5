"""The three runs of a method that the contract and the record look at."""

import functools

import pytest

from cfljax.devices import compiled
from cfljax.devices import split as devices_split
from cfljax.devices.split import SplitFunction
from cfljax.engine import program, simulate
from tests.play import on_nine

RUNS = ({}, {}, {})
"""All tests play three runs, so that a method's program is compiled once for most of them."""


def played(name, *runs, **more):
    """Return (the outputs of runs, their programs in stages or as one, the texts of all that was
    compiled)."""
    made, split, futures = [], [], []
    # What methods share is not compiled again: `compile_later` returns it, too
    shared = {key: program for key, program in compiled._kept.items() if key[0] != "programs"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_kept", shared)
        compile_programs, begin, later = (
            simulate.compile_programs,
            SplitFunction.__init__,
            compiled.compile_later,
        )
        patch.setattr(
            simulate,
            "compile_programs",
            lambda *args: made.append(compile_programs(*args)) or made[-1],
        )
        patch.setattr(
            SplitFunction,
            "__init__",
            lambda self, *args, **more: split.append(self) or begin(self, *args, **more),
        )
        for module in (program, devices_split):
            patch.setattr(
                module,
                "compile_later",
                lambda *args, **more: futures.append(later(*args, **more)) or futures[-1],
            )
        outputs, kept = on_nine(name, *runs, **more), compiled._kept
    compiled._kept.update(kept)
    return outputs, made[0][0], split, [each.result().as_text() for each in futures]


@functools.cache
def three_and_their_programs(name):
    """Return (the outputs of three runs, the shapes of what one carries before a round and after
    it, the texts of all programs)."""
    outputs, _, split, texts = played(name, RUNS)
    form = {each.name: each.form for each in split}
    return outputs, form["start"], form["advance"][0], texts


def three(name):
    return three_and_their_programs(name)[0]
