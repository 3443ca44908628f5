"""What methods say that they hold in memory for each client, against the arrays of their states."""

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices.machine import this_machine
from cfljax.experiment.assemble import assemble
from cfljax.experiment.batching import held, hyper_of
from cfljax.experiment.model_size import size_of_run
from cfljax.methods import METHODS

CLIENTS, GROUPS = 13, 2
DATA = {"name": "blobs", "samples": 400, "features": 6, "classes": 4, "partition": "label_permutation", "groups": GROUPS}
QUICK = {"fl_hc": {"warmup_rounds": 1}, "cfl_sattler": {"min_rounds": 1, "max_clusters": 9}, "fedgroup": {"alpha": 3}}
PASSING = (
    *(
        "when they are scored",
        "has moved",
        "all clients",
        "of a round",
        "models but the first",
        "cold start",
        "distances",
        "angles",
    ),
)
"""Words for what is in no state: it is there for a part of a round, of an evaluation, or before the first round."""


def of_run(name, train=None):
    two = {"clusters": 2} if "clusters" in METHODS.entry(name).options.__dataclass_fields__ else {}
    method = {"name": name} | QUICK.get(name, {}) | two
    train, model = {"rounds": 3} | (train or {}), {"name": "mlp", "hidden": [17]}
    (run,) = read_spec({"data": DATA | {"clients": CLIENTS}, "model": model, "train": train, "method": [method]}).runs()
    parts = assemble(run, 1, this_machine())
    hyper = {key: np.float32(value) for key, value in hyper_of(run).items()}
    setup = {}
    if parts.method.setup is not None:
        setup = parts.method.setup(keys.root(0), parts.federation, hyper | {"participants": CLIENTS})
    state = jax.eval_shape(parts.method.init, keys.root(0), parts.federation, hyper, setup)
    said = held(run, size_of_run(run, parts.federation))
    kept = [number for words, number in said.items() if not any(each in words for each in PASSING)]
    leaves = [leaf.shape for leaf in jax.tree.leaves(state) if leaf.ndim > 1 and leaf.shape[0] == CLIENTS]
    return sum(kept), sum(int(np.prod(shape)) for shape in leaves)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_is_held_for_each_client_is_what_the_state_has(name):
    declared, there = of_run(name)
    assert declared == pytest.approx(there, rel=0.03)


@pytest.mark.parametrize("parts", [{"head": "client"}, {"body": "client"}, {"body": "all", "dense_1/bias": "client"}])
def test_own_parts_are_as_large_as_they_are(parts):
    declared, there = of_run("ifca", {"parts": parts})
    assert declared == there > 0


def test_what_is_frozen_or_shared_by_all_costs_nothing_per_client():
    assert of_run("ifca", {"freeze": "head", "parts": {"body": "all"}}) == (0, 0)


def test_fedrc_has_a_number_for_each_client_model_and_label():
    from cfljax.experiment.batching import Size

    (run,) = read_spec({"data": DATA, "method": [{"name": "fedrc", "clusters": 5}], "train": {"rounds": 1}}).runs()
    assert held(run, Size(1000, 100, 1000, classes=62))["numbers for each client and label"] == 1000 * 5 * 62
