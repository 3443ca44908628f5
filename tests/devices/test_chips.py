"""Chips by name, what runs take of their memory, and what --dry-run says of it. None is needed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices.chips import CHIPS, GIB, explain, machine_of
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecError
from cfljax.experiment import assemble, batching
from cfljax.experiment.needs import _beyond, bytes_of, needs, widest
from cfljax.federation.gather import insertion_points, samples
from tests import machines

IMAGES = {
    "data": {"name": "digits", "partition": "rotated", "groups": 2, "clients": 8},
    "model": {"name": "mlp", "hidden": [16]},
    "method": [{"name": "ifca", "clusters": 2}],
    "train": {"rounds": 2, "batch": 10},
}


@pytest.fixture(scope="module")
def run():
    return read_spec(IMAGES).runs()[0]


def parts_of(run):
    federation = assemble.host_federation(run)
    return federation, assemble.model_of(run, federation)


def test_names_make_machines():
    assert machine_of("v5e").memory == 16 * GIB and machine_of("V5E").backend == "tpu"
    grid = machine_of("v5e:2x4", Shape(2, 4))
    assert grid.devices == 8 and grid.shape(2) == (2, 4)
    assert machine_of("h200").backend == "gpu" and not machine_of("h200").sequential
    assert explain("v5e:2x2", machine_of("v5e:2x2")) == "v5e:2x2 (TPU v5 lite): 4 devices with 16 GiB of memory each"
    assert all(not machine_of(name).sequential for name in CHIPS)


@pytest.mark.parametrize("name", ["v5x", "h2000", "v5e:2", "v5e:0x2", "v5e:", ""])
def test_other_names_are_refused_with_the_nearest(name):
    with pytest.raises(SpecError, match=f'--target {name}: no such chip; the nearest is "[a-z0-9]+"'):
        machine_of(name)


def test_what_a_batch_takes_grows_with_its_runs_and_not_with_devices(run):
    parts = parts_of(run)
    (batch,) = batching.batches(read_spec(IMAGES | {"seeds": list(range(6))}).runs(), 6)
    found = needs(run, *parts, machines.tpu(1), 6)
    assert bytes_of(batch, *parts, machines.tpu(1)) == found.shared + 6 * found.each
    assert bytes_of(batch, *parts, machines.tpu(4, mesh=Shape(2, 2))) < found.of(6)


def test_a_chip_s_own_memory_takes_the_largest_arrays_that_it_has_room_for():
    assert _beyond([100, 10, 30, 60], 0) == 200
    assert _beyond([100, 10, 30, 60], 4 * 100) == 100
    assert _beyond([100, 10, 30, 60], 4 * 95) == 110 and _beyond([100, 10, 30, 60], 4 * 200) == 0


def test_a_batch_fills_at_most_half_of_the_memory(run):
    parts = parts_of(run)
    for memory in (1 << 20, 32 << 20, 96 << 20):
        machine = machines.gpu(memory=memory)
        found, width = needs(run, *parts, machine), widest(run, *parts, machine)
        assert width == 1 or found.of(width) <= memory // 2
        assert width == 256 or found.of(width + 1) > memory // 2
    assert widest(run, *parts, machines.gpu(8, mesh=Shape(4, 2))) == 4 * 256


def test_samples_in_lines_are_the_same_samples(run):
    federation = assemble.federation_of(run)
    lines = assemble.in_lines(federation)
    assert lines.pool.x.ndim == 2 and lines.sample_shape == federation.sample_shape
    at = (np.arange(6) % 8, np.arange(6) * 7, np.arange(6) != 2)
    look = jax.jit(samples)
    for one, other in zip(*(look(each, *at) for each in (federation, lines)), strict=True):
        assert one.shape == other.shape and np.array_equal(one, other)
    assert assemble.in_lines(lines) is lines
    assert jax.tree.structure(lines) != jax.tree.structure(federation)  # programs tell them apart


def test_only_accelerators_get_lines(run):
    assert assemble.assemble(run, 1, machines.cpu()).federation.form is None
    assert assemble.assemble(run, 1, machines.gpu()).federation.form == (8, 8, 1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_are_those_of_a_search(side):
    line, values = np.int32([0, 0, 3, 3, 3, 7, 9]), np.arange(-1, 11, dtype=np.int32)

    @jax.jit
    def both(line, values):  # compared: what an accelerator does
        return insertion_points(line, values, side), jnp.searchsorted(line, values, side=side, method="compare_all")

    found, compared = both(line, values)
    assert np.array_equal(found, compared) and found.dtype == compared.dtype
    text = jax.jit(lambda: insertion_points(jnp.cumsum(jnp.arange(1 << 14)), jnp.arange(1 << 13), side)).lower().as_text()
    assert "while" in text  # too many pairs
