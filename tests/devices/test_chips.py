"""Chips by name, what runs take of their memory, and what --dry-run says of it. None is needed."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cfljax.devices.chips import CHIPS, GIB, UNKNOWN, explain, machine_of, near, rates_of
from cfljax.experiment.needs import _beyond, bytes_of, needs, widest

from cfljax.commands.preview import _misfits
from cfljax.config import read_spec
from cfljax.devices.machine import this_machine, told
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecError, SpecWarning
from cfljax.experiment import assemble, batching
from cfljax.experiment.execution import choose
from cfljax.federation.gather import insertion_points, samples
from cfljax.launch.batch import run_batch
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v5x", 'no such chip; the nearest is "v5p", and there are t4, l4,'),
        ("h2000", 'no such chip; the nearest is "h200"'),
        ("tpu", "no such chip; there are t4, l4,"),
        ("", "no such chip; there are"),
        ("v5e:8", 'TPUs are in a grid; write "v5e:2x4"'),
        ("v5litepod-16", 'TPUs are in a grid; write "v5e:4x4"'),
        ("h200:2x2", 'GPUs are in no grid; write "h200:4"'),
        ("v5e:0x2", 'write a grid as "v5e:2x4"'),
        ("v5e:", 'write a grid as "v5e:2x4"'),
        ("h100-many", 'write a grid as "v5e:2x4"'),
    ],
)
def test_other_names_are_refused_with_what_to_write(name, said):
    with pytest.raises(SpecError, match=re.escape(f"--target {name}: {said}")):
        machine_of(name)


def test_the_names_of_clouds_and_of_other_cards_of_a_family_are_known():
    assert machine_of("a100-80") == machine_of("a100") and machine_of("a100-40").memory == 39 * GIB
    assert machine_of("h100:8").devices == 8 and machine_of("v5e:1") == machine_of("v5e")
    pcie = machine_of("h100")._replace(kind="NVIDIA H100 PCIe")
    assert (near(pcie), rates_of(pcie)) == (near(machine_of("h100")), rates_of(machine_of("h100")))
    other = pcie._replace(kind="NVIDIA GeForce RTX 9999")
    assert near(other) == UNKNOWN["gpu"] and rates_of(other) == CHIPS["l4"].rates


class Card:
    """What JAX says of a GPU."""

    platform, device_kind = "gpu", "Tesla T4"

    def __init__(self, capability):
        self.compute_capability = capability

    def memory_stats(self):
        return {"bytes_limit": 15 * GIB}


@pytest.mark.parametrize(("capability", "old"), [("7.5", True), ("8.0", False), ("9.0", False), ("gfx90a", False), (None, False)])
def test_a_gpu_for_which_triton_does_not_compile_trains_by_xla_and_says_why(run, capability, old, monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Card(capability)])
    assert bool(this_machine().no_kernels) is old
    federation, model = parts_of(run)
    chosen = choose(run, model, federation, machine_of("l4")._replace(no_kernels=this_machine().no_kernels))
    assert (chosen.plan.kernel is None) is old and ("compute capability 8.0" in str(chosen.form)) is old
    assert choose(run, model, federation, machine_of("t4")).plan.kernel is None


def test_a_kernel_that_does_not_compile_is_replaced_by_those_of_xla_unless_it_was_asked_for(run):
    """This machine has no such GPU, so that JAX refuses to compile for it."""
    (batch,) = batching.batches([run], 1)
    with pytest.warns(SpecWarning, match="ifca: one kernel for a client's training does not do here, .*interpret mode"):
        ((record, arrays),) = run_batch(batch, machines.gpu(1))
    assert record["status"] == "done" and 'kernel = "xla"' in record["plan"] and len(arrays["history/accuracy"]) == 3
    asked = read_spec(IMAGES | {"train": IMAGES["train"] | {"plan": {"kernel": "pallas"}}}).runs()
    ((record, _),) = run_batch(batching.batches(asked, 1)[0], machines.gpu(1))
    assert record["status"] == "failed" and "interpret mode" in record["error"]


def test_a_kernel_that_is_asked_for_where_there_is_none_is_a_warning_with_the_reason(run):
    table = {"precision": "bfloat16", "plan": {"kernel": "pallas"}}
    (half,) = read_spec(IMAGES | {"train": IMAGES["train"] | table}).runs()
    with pytest.warns(SpecWarning, match='ifca: train.plan.kernel = "pallas" is not done: it computes in float32'):
        assemble.assemble(half, 1, machines.cpu(1))


def test_a_dry_run_says_what_does_not_fit_and_which_devices_are_idle(run):
    made = batching.batches([run], 1)
    machine = machine_of("v5e:2x4", Shape(3, 1))
    idle, large = _misfits(made, machine, lambda batch: 20 * GIB)
    assert idle.startswith("--mesh: 3 of 8 devices compute")
    assert "ifca on digits would take 21.5 GB for a single run, and there are 17.2 GB" in large
    assert _misfits(made, machine_of("v5e:2x4", Shape(2, 4)), lambda batch: 16 * GIB) == []


def test_a_sweep_says_what_it_computes_on_and_that_an_accelerator_is_not_used(tmp_path, monkeypatch):
    assert told(machines.gpu(2)) == ["computing on NVIDIA H100, 2 devices"]
    monkeypatch.delenv("JAX_PLATFORMS")
    assert told(machines.cpu(2), tmp_path) == []
    (tmp_path / "accel0").touch()
    (line,) = told(machines.cpu(2), tmp_path)
    assert line.startswith("computing on the CPU, though there is an accelerator: ") and 'pip install "jax[tpu]"' in line
    (tmp_path / "accel0").rename(tmp_path / "nvidia0")
    assert "jax[cuda12]" in told(machines.cpu(2), tmp_path)[0]
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert told(machines.cpu(2), tmp_path) == []


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
