"""Samples as an accelerator has them, in lines, and where it looks for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.experiment import assemble
from cfljax.federation.gather import insertion_points, samples
from tests import machines

IMAGES = {
    "data": {"name": "digits", "partition": "rotated", "groups": 2, "clients": 8}, "model": {"name": "mlp", "hidden": [16]},
    "method": [{"name": "ifca", "clusters": 2}], "train": {"rounds": 2, "batch": 10},
}  # fmt: skip


@pytest.fixture(scope="module")
def run():
    return read_spec(IMAGES).runs()[0]


def test_samples_in_lines_are_the_same_samples(run):
    federation = assemble.federation_of(run)
    lines = assemble.flatten_samples(federation)
    assert lines.pool.x.ndim == 2 and lines.sample_shape == federation.sample_shape
    at = (np.arange(6) % 8, np.arange(6) * 7, np.arange(6) != 2)
    look = jax.jit(samples)
    for one, other in zip(*(look(each, *at) for each in (federation, lines)), strict=True):
        assert one.shape == other.shape and np.array_equal(one, other)
    assert assemble.flatten_samples(lines) is lines
    assert jax.tree.structure(lines) != jax.tree.structure(federation)  # programs tell them apart


def test_only_accelerators_get_lines(run):
    assert assemble.assemble(run, 1, machines.cpu()).federation.form is None
    assert assemble.assemble(run, 1, machines.gpu()).federation.form == (8, 8, 1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_are_those_of_a_search(side):
    line, values = np.int32([0, 0, 3, 3, 3, 7, 9]), np.arange(-1, 11, dtype=np.int32)

    @jax.jit
    def both(line, values):  # compared: what an accelerator does
        return insertion_points(line, values, side), jnp.searchsorted(
            line, values, side=side, method="compare_all"
        )

    found, compared = both(line, values)
    assert np.array_equal(found, compared) and found.dtype == compared.dtype
    text = (
        jax.jit(
            lambda: insertion_points(jnp.cumsum(jnp.arange(1 << 14)), jnp.arange(1 << 13), side)
        )
        .lower()
        .as_text()
    )
    assert "while" in text  # too many pairs
