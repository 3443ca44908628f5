"""Promises of all methods are tested for some of them in the ordinary tests, and for the others in
the long ones, which CI runs after them: each method is compiled for each promise, and compiling is
what takes the time."""

import pytest

from cfljax.methods import METHODS

KINDS = ("fedavg", "ifca", "fedgroup", "fedem", "ditto", "cfl_sattler")
"""One method of each kind: one model; models chosen by loss; clusters made before the first round;
mixtures; a model for each client; clusters made between rounds, on the host."""


def every(names=tuple(METHODS), often=KINDS):
    """Parameters of a test for these methods: with those of `often` it is an ordinary test, with
    the others a long one."""
    return [
        pytest.param(name, marks=() if name in often else pytest.mark.long)
        for name in sorted(names)
    ]


def rarely(*values):
    """A set of parameters with which a test is a long one."""
    return pytest.param(*values, marks=pytest.mark.long)
