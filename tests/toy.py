"""Small federations and models for tests."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from cfljax import data, keys, models
from cfljax.contract.outputs import break_clients as broken  # noqa: F401 (of tests)
from cfljax.federation import PARTITIONS
from cfljax.federation.pack import pack
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.methods import METHODS
from cfljax.round.common import first_model, first_models
from cfljax.types import Drift, Federation, LocalStep, Plan, View


def federation(
    partition="quantity", seed=0, source=None, normalise="none", **options
) -> Federation:
    """Unequal clients on Gaussian blobs with 6 features and 4 classes, as arrays on the device."""
    source = source or data.load("blobs", {"samples": 400, "features": 6, "classes": 4}, seed=seed)
    options = {"clients": 8} | options
    checked = PARTITIONS.check(partition, options, "data")
    parts = PARTITIONS.entry(partition).make(checked, source, np.random.default_rng(seed))
    return jax.device_put(pack(parts, source, normalise))


@functools.cache
def model(hidden=None, features=6, classes=4):
    name, options = ("mclr", None) if hidden is None else ("mlp", {"hidden": [hidden]})
    return models.build(name, options, (features,), classes)


class Batched(linen.Module):
    """A dense layer with batch normalisation, and a head."""

    width: int
    classes: int

    @linen.compact
    def __call__(self, x, train=False):
        x = linen.BatchNorm(use_running_average=not train, momentum=0.8)(linen.Dense(self.width)(x))
        return linen.Dense(self.classes)(linen.relu(x))


@functools.cache
def batched_model(width=7, features=6, classes=4):
    return models.from_module(Batched(width, classes), (features,), classes, name="batched")


def named_model(method, usual=None):
    """The model of a spec: the usual one (without: linear, or with a layer where the method needs a
    body), or for FedBN one that has layers of normalisation."""
    if method == "fedbn":
        if "batched" not in models.MODELS:
            models.MODELS.add("batched", lambda options, sample_shape, classes: Batched(4, classes))
        return {"name": "batched"}
    deep = METHODS.entry(method).options.parts or method in (
        "moon",
        "fedproto",
        "fedpac",
        "fedccfa",
    )
    return usual or ({"name": "mlp", "hidden": [4]} if deep else {"name": "mclr"})


def solver(
    model,
    epochs=1,
    steps=None,
    batch=5,
    sequential=True,
    gram=0,
    stream=0,
    lanes=None,
    summed=False,
    quick=False,
    **more,
):
    work = Work(
        None if steps is not None else epochs,
        steps,
        None if batch == "full" else batch,
        summed=summed,
    )
    return Solver(
        model,
        work,
        plan=Plan(int(sequential) if lanes is None else lanes, gram, stream, quick=quick),
        **more,
    )


def pulled(hyper):
    return LocalStep.of(hyper)._replace(mu=hyper.get("mu"))


def pulling_solver(model, **more):
    """With a proximal term where the numbers of the run have "mu"."""
    return solver(model, **more).with_step(pulled)


@functools.cache
def fit_of(solver):
    """The solver's `fit`, which is compiled once for all equal solvers and shapes, and whose
    results are numpy arrays."""
    fit = jax.jit(solver.fit)
    return lambda *given: jax.tree.map(np.asarray, fit(*given))


def replace(federation, **fields):
    return dataclasses.replace(federation, **fields)


def start(seed=0):
    """f64[d]: the model that a run begins with."""
    return np.asarray(first_model(keys.root(seed), model()), np.float64)


def first_model_of(network, seed=0):
    """f64[d]: what a run of this network begins with."""
    return np.asarray(first_models(keys.root(seed), network, 1)[0], np.float64)


def without_samples(federation, client):
    """The same federation, in which this client has, or these have, nothing to train on."""
    count = np.array(federation.train.count)
    count[client] = 0
    return replace(federation, train=replace(federation.train, count=jax.device_put(count)))


def relabelled(federation, round):
    """The same federation, in which all labels change in this round: y becomes y + 1."""
    clients, classes = len(federation.uid), federation.classes
    labels = (np.arange(classes) + np.arange(2)[:, None]) % classes
    of = np.repeat([[0], [1]], clients, axis=1).astype(np.int32)
    drift = Drift(np.array([0, round], np.int32), np.tile(federation.group, (2, 1)), of)
    view = View(of[0], labels=labels.astype(np.int32))
    return jax.device_put(replace(federation, view=view, drift=drift))


def identical(federation, client=0):
    """The same federation, in which everybody has one client's training samples as that client sees
    them."""
    split, view = federation.train, federation.view
    start, count = (jnp.full_like(jnp.asarray(a), a[client]) for a in (split.start, split.count))
    view = (
        None
        if view is None
        else view._replace(of=jnp.full_like(jnp.asarray(view.of), view.of[client]))
    )
    return replace(federation, train=replace(split, start=start, count=count), view=view)
