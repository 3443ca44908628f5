"""Many devices in one process."""

import pytest

from cfljax.devices import mesh
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests.launch.processes import FLAGS, python

FEW = ("ifca",)


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
def test_an_optimiser_of_the_server_takes_the_same_steps_on_eight_devices():
    every(["served:ifca"])


@pytest.mark.long
def test_where_samples_are_dealt_out_the_results_are_the_same():
    every(["sharded:ifca"])


@pytest.mark.long
def test_what_clients_keep_and_choose_by_chance_is_the_same_on_eight_devices():
    every(["kept:ifca"])


@pytest.mark.long
def test_who_is_under_way_is_the_same_on_eight_devices():
    every(["buffered:ifca"])


@pytest.mark.long
def test_eight_devices_agree_with_one_in_all_methods():
    every([name for name in METHODS if name not in FEW])


@pytest.mark.long
def test_eight_devices_with_their_own_clients_samples_agree_with_one_in_all_methods():
    every([f"sharded:{name}" for name in METHODS if name != "ifca"])
