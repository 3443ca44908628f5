"""Run by test_mesh.py in a process of its own: every method on a mesh of eight devices against one
device. `sharded:NAME`: with the samples dealt to the devices; `served:NAME`: with an optimiser at
the server; `kept:NAME`: with error feedback, and a private choice where the method chooses by loss;
`buffered:NAME`: with a server that waits for two of five clients. `pool`: how samples are dealt."""

import sys

import jax
import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices import mesh
from cfljax.devices.machine import describe_machine, make_mesh
from cfljax.devices.placement import shard_federation
from cfljax.engine import scoring
from cfljax.engine.simulate import simulate
from cfljax.experiment import assemble, federations
from cfljax.experiment.batching import make_batches
from cfljax.methods import METHODS
from tests import toy

CALM = {
    "cfl_sattler": {"min_rounds": 1, "eps1": 9.0, "eps2": 0.0},
    "fl_hc": {"warmup_rounds": 1},
    "joint": {"local_steps": 2},
}
CALM |= {"feddrift": {"every": 1, "start": "each"}}
"""Options that make a method do in two rounds what it does in many."""
EVERYBODY = ("cfl_sattler", "ocfl_zuziak")
ONE, EIGHT = mesh.Shape(1, 1), mesh.Shape(2, 4)
CHANGING = ("ifca", "oracle")
"""Methods whose clients change their groups after the first round, and are timed, so that some are
late."""


def batch(name, pool=None, server=None):
    method = (
        {"name": name}
        | CALM.get(name, {})
        | ({"clusters": 2} if "clusters" in _options(name) else {})
    )
    table = {
        "name": "eight",
        "data": {
            "name": "blobs",
            "samples": 300,
            "features": 6,
            "partition": "label_permutation",
            "groups": 2,
            "clients": 11,
        }
        | {"validation": 0.2, "new_clients": {"share": 0.25, "shots": 6, "steps": [0, 2]}}
        | ({"drift": {"at": [1], "share": 0.5}} if name in CHANGING else {}),
        "model": toy.named_model(name),
        "train": {
            "rounds": 2,
            "participation": 1.0 if name in EVERYBODY else 5,
            "lr": 0.1,
            "batch": 5,
            "eval_every": 2,
        }
        | ({"batch": "full"} if name == "fedbn" else {})
        | {"finetune_steps": 2}
        | ({"clock": {"deadline_s": 0.05}} if name in CHANGING else {})
        | (
            kept(name)
            if pool == "kept"
            else {}
            if pool in (None, "buffered")
            else {"plan": {"pool": pool}}
        )
        | ({"clock": {}, "asynchronous": {"buffer": 2}, "rounds": 4} if pool == "buffered" else {})
        | ({} if server is None else {"server": server}),
        "seeds": [0, 1, 2],
        "method": [method],
    }
    return make_batches(read_spec(table).runs(), 3)[0]


def kept(name):
    choice = {"choice": {"epsilon": 30.0}} if METHODS.check(name, {}, name).chooses_by_loss else {}
    return {
        "compress": {"name": "topk", "keep": 0.3, "feedback": True},
        "privacy": {"clip": 9.0, **choice},
    }


def _options(name):
    return METHODS.entry(name).options.__dataclass_fields__


def outputs(batch, shape):
    federations.device_federation.cache_clear()
    parts = assemble.assemble(batch.first, batch.width, describe_machine(shape))
    assert (parts.mesh is None) == (shape == (1, 1))
    return simulate(parts, batch.seeds, batch.hypers, chunk_rounds=2)


def check(name, pool, server=None):
    """11 clients, 5 participants and 3 runs: nothing is a multiple of anything. FedAvg's is scored
    in products, all others' client by client. Under normalisation a batch of two samples turns
    their last bits into thousandths, so FedBN's batches are full."""
    scoring._is_product_faster = lambda *_: name == "fedavg"
    alone = pool if pool in ("kept", "buffered") else None
    one, eight = (
        outputs(batch(name, p, server), shape) for p, shape in ((alone, ONE), (pool, EIGHT))
    )
    assert len(one) == len(eight) == 3
    for a, b in zip(one, eight, strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)
        np.testing.assert_allclose(a.models, b.models, atol=1e-5)
        assert name not in CHANGING or "late" not in a.history or 0 < a.history["late"][-1] < 10
        assert (
            pool != "buffered"
            or a.history["staleness"][-1] > 0
            and a.diag["applied"][-1].sum() == 8
        )
        for quantity, values in a.history.items():
            np.testing.assert_allclose(values, b.history[quantity], atol=1e-4, err_msg=quantity)
        assert list(a.newcomers) == ["accuracy_new_0", "accuracy_new_2", "ari_new"]
        assert a.newcomers == pytest.approx(b.newcomers, abs=1e-6) and a.finetuned == pytest.approx(
            b.finetuned, abs=1e-6
        )
        for quantity in ("mixture_of_clients", "mixture_of_groups"):
            np.testing.assert_allclose(
                a.diag.get(quantity, 0), b.diag.get(quantity, 0), atol=1e-4, err_msg=quantity
            )


def check_pool():
    """A device has the samples of its own clients and of no others, all clients' together are those
    of the federation, and a test set that everybody shares is everywhere."""
    grid = make_mesh(describe_machine(mesh.Shape(2, 4)), mesh.Shape(2, 4))
    for test in ("own", "global"):
        data = {
            "name": "blobs",
            "samples": 4000,
            "features": 50,
            "partition": "quantity",
            "clients": 39,
            "test": test,
        }
        run = read_spec({"name": "pool", "data": data, "method": ["fedavg"]}).runs()[0]
        whole = assemble.host_federation(run)
        dealt = shard_federation(whole, grid)
        shared = len(np.unique(whole.test.rows)) if test == "global" else 0
        for shard in dealt.pool.x.addressable_shards:
            assert (shard.data.shape[0] - shared) / (len(whole.pool.y) - shared) < 1.25 / 4
        blocks = {
            s.index[0].start or 0: np.asarray(s.data) for s in dealt.pool.x.addressable_shards
        }
        rows = np.split(np.asarray(dealt.train.rows), 4)
        for client, device in enumerate(dealt.owner):
            start, count = int(dealt.train.start[client]), int(dealt.train.count[client])
            mine = sorted(blocks)[int(device)]
            a = whole.train.start[client]
            wanted = whole.pool.x[whole.train.rows[a : a + count]]
            np.testing.assert_array_equal(
                blocks[mine][rows[int(device)][start : start + count]], wanted
            )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    for word in sys.argv[1:] or METHODS:
        how, _, method = word.rpartition(":")
        served = {"name": "adam", "lr": 0.05, "eps": 1e-3} if how == "served" else None
        check_pool() if word == "pool" else check(
            method, how if how in ("sharded", "kept", "buffered") else None, served
        )
        print(word, flush=True)
