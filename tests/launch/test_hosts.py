"""Several processes for one run."""

import json
import signal
import time

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.launch.sweep import SweepOptions, carry_out
from cfljax.store import Store
from tests.launch.processes import arrays, both, by_seed, finish, free_port, python, start
from tests.often import rarely

SPEC = """
name = "shared"
data = { name = "blobs", samples = 2000, partition = "label_permutation", groups = 2, clients = 39 }
model = { name = "mclr" }
train = { rounds = 60, participation = 13, lr = 0.1, batch = 10, eval_every = 20 }
seeds = "0:3"
[[method]]
name = "ifca"
clusters = 2
"""
SHORT = [
    "--set",
    "train.rounds=3",
    "--set",
    "train.eval_every=1",
    "--set",
    "data.samples=400",
    "--set",
    "seeds=0:2",
]
MESHES = ["clients=4", "runs=2,clients=4"]


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


WORDS = """
import sys
import time
import numpy as np
from cfljax.devices import distributed

number = int(sys.argv[2])
distributed.connect(f"localhost:{sys.argv[1]}", number, 2)
assert distributed.leads() == (number == 0)
for value in (True, False, 7, [1.5, "a"]):
    assert distributed.agree(value if number == 0 else None) == value
assert distributed.gather(f"word {number}") == ["word 0", "word 1"]
given = {"labels": np.full(3 + number, number), "none": np.zeros((number, 2), np.float32), "one": np.float32(number)}
found = distributed.broadcast(given)
assert found["labels"].tolist() == [0, 0, 0] and found["none"].shape == (0, 2) and found["none"].dtype == np.float32
assert found["one"].shape == () and found["one"] == 0

distributed.next_batch(None)
if number:
    distributed.gather("x")  # it is now ahead of the other by a message
else:
    distributed._client.key_value_set("cfljax/1/1/0", "x")
time.sleep(number)
distributed.next_batch(ValueError(f"no value in {number}"))  # both have failed, and can go on
assert distributed.agree(number) == 0
print(number, "goes on")
if number == 0:
    distributed.fail(ValueError("enough"))
time.sleep(300)  # as one that waits for devices of the other does
"""


def test_what_processes_tell_each_other(tmp_path):
    port = free_port()
    processes = [python("-c", WORDS, port, i) for i in (0, 1)]
    (out, err), (out1, err1) = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [1, 1], err + err1
    assert "0 goes on" in out and "1 goes on" in out1
    assert err.splitlines()[-1] == "cfljax: ValueError: enough"
    assert err1.splitlines()[-1] == "cfljax: process 0 of --distributed: ValueError: enough"


ALONE = """
import sys
from cfljax.devices import distributed
distributed.TOGETHER = 1
distributed.connect(f"localhost:{sys.argv[1]}", int(sys.argv[2]), 2)
"""


@pytest.mark.parametrize("number", [rarely(0), 1])
def test_a_process_whose_partners_never_come_says_so(number):
    process = python("-c", ALONE, port := free_port(), number)
    code, err = finish(process)
    assert code == 2 and err.count("\n") == 1
    assert (
        f"--distributed: not all processes have met at localhost:{port} after 1 seconds; "
        "start all of them" in err
    )


def test_two_processes_agree_with_one(spec, tmp_path):
    """Evaluation is cheap here, so that it is timed again and again until process 0 has had
    enough."""
    few = [*SHORT, "--set", "method=fedavg"]
    ends = both(spec, tmp_path / "two", *few, "--mesh", "clients=4")
    assert [code for code, _ in ends] == [0, 0], ends
    alone(spec, tmp_path / "one", *few)
    assert_alike(tmp_path / "two", tmp_path / "one", runs=2)


def alone(spec, folder, *flags):
    """The same sweep in this process alone. `flags`: --set and a value, …"""
    outcome = carry_out(read_spec(spec, list(flags[1::2])), Store(folder), SweepOptions(quiet=True))
    assert outcome.done == outcome.computed > 0


def assert_alike(two, one, runs):
    there, here = arrays(two), arrays(one)
    assert len(there) == len(here) == runs
    for a, b in zip(by_seed(two), by_seed(one), strict=True):
        np.testing.assert_allclose(
            there[a]["history/accuracy"], here[b]["history/accuracy"], atol=0.01
        )
        np.testing.assert_array_equal(there[a]["labels"][1], here[b]["labels"][1])


def test_an_error_of_one_process_ends_both_with_its_message(spec, tmp_path):
    """Nothing is computed: process 1 reads another spec, or the folder of process 0 is none."""
    (tmp_path / "file").write_text("not a folder")
    for flags, folder, code, words in [
        (["--set", "train.lr=0.2"], "r", 2, ["--distributed: the spec is", "in process 1"]),
        ([], "file/r", 3, ["cannot write"]),
    ]:
        ends = both(spec, tmp_path / folder, "--mesh", "clients=2", second=(flags, {}))
        assert [end[0] for end in ends] == [code, code], ends
        for _, err in ends:
            assert err.count("\n") == 1 and all(word in err for word in words), err


BROKEN = """
import os
import jax
from cfljax.methods import METHODS
from cfljax.methods.fedavg import FedAvg
from cfljax.round.entry import method_of
from cfljax.registry.options import option
import dataclasses

def broken(config, model, solver):
    def setup(key, federation, hyper):
        if "0" in os.environ["BROKEN"]:
            raise ValueError("no such thing")
        return {}
    return method_of("broken", config, model, solver)._replace(setup=setup)

METHODS.add("broken", broken, FedAvg)
"""
"""A method whose set-up fails where the environment says so."""


@pytest.fixture
def broken(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    return [
        "--plugin",
        tmp_path / "broken.py",
        "--set",
        "method=broken,fedavg",
        "--set",
        "seeds=[0]",
        *SHORT[:-2],
    ]


@pytest.mark.long
def test_a_run_that_fails_in_all_processes_is_a_failed_run_and_the_others_go_on(
    spec, tmp_path, broken
):
    ends = both(
        spec,
        tmp_path / "r",
        "--mesh",
        "clients=2",
        *broken,
        first=([], {"BROKEN": "0"}),
        second=([], {"BROKEN": "0"}),
    )
    assert [code for code, _ in ends] == [1, 0] and "ValueError: no such thing" in ends[0][1]
    statuses = {
        r["method"]: r["status"] for r in Store(tmp_path / "r", read_only=True).records().values()
    }
    assert statuses == {"broken": "failed", "fedavg": "done"}


@pytest.mark.long
def test_a_run_that_fails_in_one_process_ends_both_with_its_reason(spec, tmp_path, broken):
    ends = both(
        spec,
        tmp_path / "r",
        "--mesh",
        "clients=2",
        *broken,
        first=([], {"BROKEN": ""}),
        second=([], {"BROKEN": "0"}),
    )
    assert all(code != 0 and "ValueError: no such thing" in err for code, err in ends), ends
    assert not arrays(tmp_path / "r")


def wait_for_checkpoint(folder, processes):
    """Until a checkpoint is there. A process that ends before is shown with what it said."""
    until = time.monotonic() + 400
    while not list(folder.glob("checkpoints/*.npz")):
        assert time.monotonic() < until
        assert all(process.poll() is None for process in processes), [
            finish(process) for process in processes
        ]
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_when_one_process_is_terminated_the_other_says_so(spec, tmp_path, number):
    port = free_port()
    flags = [
        "--mesh",
        "clients=2",
        "--set",
        "train.rounds=200000",
        "--set",
        "train.eval_every=1000",
        "--set",
        "seeds=[0]",
    ]
    each = [start(spec, tmp_path / "r", i, port, *flags, CFLJAX_CHECKPOINT="0") for i in (0, 1)]
    wait_for_checkpoint(tmp_path / "r", each)
    each[number].send_signal(signal.SIGTERM)
    ends = [finish(process) for process in each]
    assert ends[number][0] == 143 and ends[1 - number][0] == 1
    assert f"process {number} of --distributed: Terminated" in ends[1 - number][1]


@pytest.mark.long
def test_data_that_differ_are_an_error_of_both(tmp_path):
    rng = np.random.default_rng(0)
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        arrays = {
            "x_train": rng.normal(size=(80, 4)).astype(np.float32),
            "y_train": np.arange(80) % 2,
        }
        np.savez(
            tmp_path / str(number) / "mine.npz",
            x_test=arrays["x_train"],
            y_test=arrays["y_train"],
            **arrays,
        )
    (tmp_path / "spec.toml").write_text(
        'data = { name = "mine", clients = 4 }\nmodel = "mclr"\nmethod = "fedavg"\n'
    )
    places = [([], {"CFLJAX_DATA": str(tmp_path / str(number))}) for number in (0, 1)]
    ends = both(
        tmp_path / "spec.toml",
        tmp_path / "r",
        "--mesh",
        "clients=2",
        first=places[0],
        second=places[1],
    )
    assert [code for code, _ in ends] == [2, 2], ends
    assert all(err.count("\n") == 1 and "process 1" in err for _, err in ends), ends
    ends = both(
        tmp_path / "spec.toml",
        tmp_path / "r",
        "--mesh",
        "clients=2",
        first=places[0],
        second=([], {"CFLJAX_DATA": ""}),
    )
    assert [code for code, _ in ends] == [4, 4], ends
    assert all("mine" in err for _, err in ends), ends


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The folder of one process with one device."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "spec.toml").write_text(SPEC)
    alone(folder / "spec.toml", folder / "r")
    return folder / "r"


@pytest.mark.long
@pytest.mark.parametrize(("pool", "shape"), zip(["copied", "sharded"], MESHES, strict=True))
def test_two_processes_with_four_devices_agree_with_one_process_with_one(
    spec, tmp_path, pool, shape, one
):
    ends = both(spec, tmp_path / "two", "--mesh", shape, "--set", f"train.plan.pool={pool}")
    assert [code for code, _ in ends] == [0, 0], ends
    assert_alike(tmp_path / "two", one, runs=3)


LONG = ["--set", "train.rounds=200", "--set", "train.eval_every=100", "--set", "seeds=0:2"]


def together(spec, folder, shape):
    """Two processes do the sweep to its end."""
    ends = both(spec, folder, "--mesh", shape, *LONG)
    assert [code for code, _ in ends] == [0, 0], ends
    return arrays(folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "spec.toml").write_text(SPEC)
    return together(folder / "spec.toml", folder / "r", MESHES[1])


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_process_dies_the_other_ends_and_both_go_on_from_the_checkpoint(
    spec, tmp_path, victim, uninterrupted
):
    shape, whole, port = MESHES[1], uninterrupted, free_port()
    each = [
        start(spec, tmp_path / "r", number, port, *LONG, "--mesh", shape, CFLJAX_CHECKPOINT="0")
        for number in (0, 1)
    ]
    wait_for_checkpoint(tmp_path / "r", each)
    each[victim].send_signal(signal.SIGKILL)
    code, err = finish(each[1 - victim])
    assert code != 0
    assert "lost their connection" in err or "another task died" in err
    finish(each[victim])
    assert not arrays(tmp_path / "r")
    resumed = together(spec, tmp_path / "r", shape)
    begun = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    assert max(event.get("from", 0) for event in begun) > 0
    assert resumed.keys() == whole.keys() and len(resumed) == 2
    for name, found in resumed.items():
        assert found.keys() == whole[name].keys()
        for key, values in found.items():
            assert values.tobytes() == whole[name][key].tobytes(), key
