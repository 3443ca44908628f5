"""Many devices in one process."""

import pytest

from cfljax.devices import mesh
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests.launch.processes import FLAGS, python

FEW = ("ifca",)
REST = [name for name in METHODS if name not in FEW]
PARTS = 12
in_parts = pytest.mark.parametrize("part", range(PARTS))
"""Of so many processes each has some of the methods: one with all would take longer than a test may."""


def test_what_a_mesh_may_look_like():
    assert (
        mesh.parse_mesh("auto") == mesh.AUTO
        and mesh.parse_mesh("clients=4, runs=2") == (2, 4)
        and mesh.parse_mesh("runs=3") == (3, 1)
    )
    for wrong in ("", "runs", "runs=0", "clients=2,clients=3", "rows=2", "2x4", "runs=2;clients=4"):
        with pytest.raises(SpecError, match="must be auto, or such as runs=2,clients=4"):
            mesh.parse_mesh(wrong)


def every(methods):
    process = python("-m", "tests.launch.on_eight_devices", *methods, env={"XLA_FLAGS": FLAGS})
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err[-3000:]
    assert out.split() == list(methods)


def test_eight_devices_agree_with_one():
    every(["pool", *FEW])


@pytest.mark.long
@pytest.mark.parametrize("how", ["served", "sharded", "kept", "buffered"])
def test_so_they_do_with_a_server_with_dealt_samples_with_what_clients_keep_and_under_way(how):
    every([f"{how}:ifca"])


@pytest.mark.long
@in_parts
def test_eight_devices_agree_with_one_in_all_methods(part):
    every(REST[part::PARTS])


@pytest.mark.long
@in_parts
def test_eight_devices_with_their_own_clients_samples_agree_with_one_in_all_methods(part):
    every([f"sharded:{name}" for name in REST[part::PARTS]])
