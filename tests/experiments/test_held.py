"""What methods say that they hold in memory for each client, against the arrays of their states."""

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.experiment.assemble import assemble
from cfljax.experiment.batching import count_client_state, list_hyper
from cfljax.experiment.model_size import count_run_size
from cfljax.methods import METHODS

CLIENTS, MODEL = 13, 6 * 17 + 17 + 17 * 4 + 4
DATA = {
    "name": "blobs",
    "samples": 400,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "groups": 2,
}
IN_PASSING = ("per_fedavg", "pfedgraph", "pacfl", "ocfl", "one_shot", "fl_hc")
IN_PASSING += ("cfl_sattler", "ccs_rfedavg", "ocfl_zuziak", "sr_fca", "fedbn", "flux", "fedccfa")
IN_PASSING += ("fedclust",)
"""Methods that have models, updates or comparisons of all clients in a part of a round, or that
keep counts of labels or prototypes, or that need another model."""


def of_run(name, train=None):
    """Return (numbers that a run says it holds for all clients, those of vectors of the model's
    size in its state)."""
    two = {"clusters": 2} if "clusters" in METHODS.entry(name).options.__dataclass_fields__ else {}
    train, model = {"rounds": 3} | (train or {}), {"name": "mlp", "hidden": [17]}
    (run,) = read_spec(
        {
            "data": DATA | {"clients": CLIENTS},
            "model": model,
            "train": train,
            "method": [{"name": name} | two],
        }
    ).runs()
    parts = assemble(run, 1, describe_machine())
    hyper = {key: np.float32(value) for key, value in list_hyper(run).items()}
    setup = {}
    if parts.method.setup is not None:
        setup = parts.method.setup(
            keys.root(0), parts.federation, hyper | {"participants": CLIENTS}
        )
    state = jax.eval_shape(parts.method.init, keys.root(0), parts.federation, hyper, setup)
    leaves = [
        leaf.shape
        for leaf in jax.tree.leaves(state)
        if leaf.ndim == 2 and leaf.shape[0] == CLIENTS and leaf.shape[1] > 3
    ]
    return count_client_state(run, count_run_size(run, parts.federation)) // 4, sum(
        int(np.prod(shape)) for shape in leaves
    )


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(IN_PASSING)))
def test_what_is_held_for_each_client_is_what_the_state_has(name):
    declared, there = of_run(name)
    if any(kind == "client" for _, kind in METHODS.entry(name).options.parts):
        assert there < CLIENTS * MODEL and declared == CLIENTS * MODEL
    elif name == "fesem":  # which keeps a part of each model
        assert there < declared == CLIENTS * MODEL
    else:
        assert declared == pytest.approx(there, rel=0.03)


def test_own_parts_are_counted_as_models_which_clients_have_when_they_are_scored():
    declared, there = of_run("ifca", {"parts": {"head": "client"}})
    assert there < CLIENTS * MODEL and declared == CLIENTS * MODEL


def test_what_is_frozen_or_shared_by_all_costs_nothing_per_client():
    assert of_run("ifca", {"freeze": "head", "parts": {"body": "all"}}) == (0, 0)
