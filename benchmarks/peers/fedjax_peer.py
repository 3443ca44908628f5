"""FedJAX: its own federated averaging and its own HypCluster (which is IFCA), with its client data
sets and batching."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from protocol import Stage

if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree.map  # all that keeps the release from running on a jax of today

import fedjax
from fedjax.algorithms import fed_avg, hyp_cluster


def forward(params: dict[str, Any], x: jax.Array) -> jax.Array:
    """The workload's network from the parameters' names: convolutions with pooling and ReLU, then
    dense layers."""
    for layer in sorted(name for name in params if name.startswith("conv")):
        x = x if x.ndim == 4 else x[..., None]
        p = params[layer]
        x = (
            jax.lax.conv_general_dilated(
                x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            + p["bias"]
        )
        x = jax.nn.relu(
            jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        )
    x = x.reshape(x.shape[0], -1)
    dense = params.get("head", params)
    names = sorted(name for name in dense if name.startswith("dense"))
    for number, layer in enumerate(names):
        x = (jax.nn.relu(x) if number else x) @ dense[layer]["kernel"] + dense[layer]["bias"]
    return x


def per_example_loss(params: dict[str, Any], batch: dict[str, jax.Array], rng: Any) -> jax.Array:
    del rng
    logits = forward(params, batch["x"])
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], 1)[:, 0]


def nested(init: dict[str, np.ndarray], k: int) -> dict[str, Any]:
    """Model k as nested dicts."""
    params: dict[str, Any] = {}
    for name, value in init.items():
        *above, last = name.split("/")
        inner = params
        for word in above:
            inner = inner.setdefault(word, {})
        inner[last] = jnp.asarray(value[k])
    return params


def flat(params: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, value in params.items():
        found |= (
            flat(value, f"{prefix}{name}/")
            if isinstance(value, dict)
            else {prefix + name: np.asarray(value)}
        )
    return found


def algorithm(stage: Stage, clusters: int) -> Any:
    """FedJAX's algorithm for the workload."""
    settings, optimiser = stage.settings, fedjax.optimizers
    client, server = optimiser.sgd(settings["lr"]), optimiser.sgd(1.0)
    if settings["batch"] == "full":
        batches = fedjax.ShuffleRepeatBatchHParams(
            batch_size=int(stage.count.max()), num_epochs=settings["steps"]
        )
    else:
        batches = fedjax.ShuffleRepeatBatchHParams(
            batch_size=settings["batch"], num_epochs=settings["epochs"]
        )
    if clusters == 1:
        gradient = fedjax.grad(per_example_loss)
        return fed_avg.federated_averaging(gradient, client, server, batches)
    padded = fedjax.PaddedBatchHParams(batch_size=int(stage.count.max()))
    return hyp_cluster.hyp_cluster(per_example_loss, client, server, padded, batches)


def main() -> None:
    stage = Stage()
    x, y = stage.samples()
    clients = {
        c: fedjax.ClientDataset({"x": x[stage.of(c)], "y": y[stage.of(c)]})
        for c in range(len(stage.count))
    }
    number = len(next(iter(stage.init.values())))
    models = [nested(stage.init, k) for k in range(number)]
    made = algorithm(stage, number)

    def train(state: Any, t: int) -> Any:
        ids = stage.schedule[t]
        keys = jax.random.split(jax.random.PRNGKey(t), len(ids))
        state, _ = made.apply(
            state, [(int(c), clients[int(c)], keys[i]) for i, c in enumerate(ids)]
        )
        return jax.block_until_ready(state)

    start = made.init(models[0] if number == 1 else models)
    spent = []
    for _ in range(
        2
    ):  # the first compiles: FedJAX fills every batch up, so all rounds have the shapes of this one
        begin = time.perf_counter()
        train(start, 0)
        spent.append(time.perf_counter() - begin)
    try:
        release = f"{version('fedjax')} (release)"
    except PackageNotFoundError:
        release = "(source)"
    stage.ready(
        version=f"fedjax {release}, jax {jax.__version__}", compile_s=max(0.0, spent[0] - spent[1])
    )
    state = start
    for t, _ in enumerate(stage.rounds()):
        state = train(state, t)
    ends = [state.params] if number == 1 else state.cluster_params
    named = [flat(params) for params in ends]
    stage.finish({name: np.stack([each[name] for each in named]) for name in named[0]})


if __name__ == "__main__":
    main()
