"""How the contract tests run a method: a small federation with two true groups, one program per variant."""

import functools

import jax
import numpy as np

from cfljax import data
from cfljax.engine.assembled import Assembled
from cfljax.engine.program import Settings
from cfljax.engine.simulate import simulate
from cfljax.federation import PARTITIONS
from cfljax.federation.pack import pack
from cfljax.methods import METHODS
from cfljax.registry.options import static, traced
from tests import toy

ROUNDS = 4
OPTIONS = {
    "ccs_rfedavg": {"theta": 0.3},
    "fedgroup": {"clusters": 2, "alpha": 3, "pretrain_steps": 4},
    "ocfl": {"clients_per_cluster": 5},
    "cfl_sattler": {"min_rounds": 1, "eps1": 10.0, "eps2": 0.0, "split_every": 2, "max_clusters": 4},
    "fl_hc": {"warmup_rounds": 1},
    "one_shot": {"clusters": 2},
}
"""What a method needs to do something interesting in four rounds on nine clients; a method that is not listed runs with
its defaults, and two clusters where it has that option."""


def options(name, **more):
    kind = METHODS.entry(name).options
    table = dict(OPTIONS.get(name, {}))
    if "clusters" in kind.__dataclass_fields__:
        table.setdefault("clusters", 2)
    return METHODS.check(name, table | more, "method")


@functools.cache
def host_federation():
    source = data.load("blobs", {"samples": 300, "features": 6, "classes": 4}, seed=3)
    entry = PARTITIONS.entry("label_permutation")
    checked = PARTITIONS.check("label_permutation", {"clients": 9, "groups": 2}, "data")
    return pack(entry.make(checked, source, np.random.default_rng(5)), source, "none")


@functools.cache
def model():
    return toy.model()


def full_participation(name):
    return name in ("cfl_sattler",)


def run(name, hypers=({},), seeds=None, federation=None, sequential=True, chunk_rounds=None, mesh=None, plan=None, **more):
    """Outputs of a batch; hypers are laid over lr = 0.1 and the method's own numbers; plan: gram, stream, lanes."""
    federation = host_federation() if federation is None else federation
    config = options(name, **more)
    solver = toy.solver(model(), epochs=1, batch=5, sequential=sequential, **plan or {})
    method = METHODS.entry(name).make(static(config), model(), solver)
    real = int((np.asarray(federation.uid) >= 0).sum())
    settings = Settings(ROUNDS, real if full_participation(name) else 5, evaluations=ROUNDS + 1, sequential=sequential)
    numbers = [{"lr": 0.1} | traced(config) | _own_rate(config, h) for h in hypers]
    key = (name, static(config), solver.plan, sequential)
    seeds = list(range(len(numbers))) if seeds is None else seeds
    parts = Assembled(method, model(), jax.device_put(federation), settings, mesh=mesh, program_key=key)
    return simulate(parts, seeds, numbers, chunk_rounds=chunk_rounds)


def _own_rate(config, hyper):
    """A method whose local training has its own learning rate gets the case's there."""
    return hyper | ({"local_lr": hyper["lr"]} if hasattr(config, "local_lr") and "lr" in hyper else {})


def same_bits(a, b):
    """Whether two outputs are the same bytes, timings aside."""
    left, right = a._asdict(), b._asdict()
    for name in ("seconds_setup", "seconds_compile", "seconds_train", "seconds_eval"):
        left.pop(name), right.pop(name)
    leaves, structure = jax.tree.flatten(left)
    others, other_structure = jax.tree.flatten(right)
    assert structure == other_structure
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(leaves, others, strict=True))
