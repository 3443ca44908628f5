"""FedGroup's lemma 2 and eq. 18, checked numerically: how far clients drift from their group's
centralised model.

    CFLJAX_DATA=FOLDER python experiments/lemma2.py --out results/lemma2 [--seeds 3]

FedGroup runs a few rounds on MNIST-MCLR; then, from each group's model, every member k takes E
full-batch steps on its own data (w_e) and a virtual model takes as many on the data of all members
(v_e). With delta_k = max_e |grad F_k(v_e) - grad F_g(v_e)| and L_k = max_e |grad F_k(w_e) - grad
F_k(v_e)| / |w_e - v_e|, both over the points that were visited, the lemma says

    |w_e - v_e| <= delta_k / L_k ((lr L_k + 1)^e - 1).

The history of a run has, per step e, the least over all members of bound / distance (`slack`: the
lemma holds while it is 1 or more), the same for eq. 18 (`slack_mean`: the members' weighted mean
model), and the mean distance and bound.
"""

from __future__ import annotations

import argparse

import numpy as np

import cfljax
from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation
from cfljax.store import Store

NAME = "FedGroup lemma 2"
STEPS, RATE = 20, 0.03
SPEC = {
    "name": NAME,
    "data": {"name": "mnist", "partition": "fedprox", "normalise": "pixel_all"},
    "model": {"name": "mclr"},
    "train": {"rounds": 3, "participation": 20, "steps": STEPS, "batch": "full", "lr": RATE},
    "method": [{"name": "fedgroup", "clusters": 3}],
}


def gradient(w, x, y):
    """f64[F + 1, M] of the mean loss of logistic regression; the last row of w is the bias."""
    scores = x @ w[:-1] + w[-1]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return np.vstack([x.T @ p, p.sum(axis=0)]) / len(y)


def path(w, x, y):
    """Compute the points w_0 … w_E of gradient descent."""
    points = [w]
    for _ in range(STEPS):
        points.append(points[-1] - RATE * gradient(points[-1], x, y))
    return np.array(points)


def bound_of(w, v, grad_v, x, y):
    """(distance, bound) f64[E + 1] of one member, and its delta and L."""
    distance = np.linalg.norm((w - v).reshape(STEPS + 1, -1), axis=1)
    own = np.array([gradient(point, x, y) for point in v])
    apart = np.array([gradient(point, x, y) for point in w]) - own
    delta = np.linalg.norm((own - grad_v).reshape(STEPS + 1, -1), axis=1).max()
    smooth = (np.linalg.norm(apart.reshape(STEPS + 1, -1), axis=1)[1:] / distance[1:]).max()
    bound = delta / smooth * ((RATE * smooth + 1) ** np.arange(STEPS + 1) - 1)
    return distance, bound


def check(seed):
    """Check the lemma over all members of all groups; return the arrays of a run."""
    result = cfljax.run(
        method={"name": "fedgroup", "clusters": 3},
        data=SPEC["data"],
        model="mclr",
        seed=seed,
        train=SPEC["train"],
    )
    federation = host_federation(read_spec({**SPEC, "seeds": [seed]}).runs()[0])
    pool, split = federation.pool, federation.train
    held = [split.rows[s : s + n] for s, n in zip(split.start, split.count, strict=True)]

    def samples(rows):
        x = (pool.x[rows].astype(np.float64) - pool.mean) * pool.scale
        return x.reshape(len(rows), -1), pool.y[rows]

    distances, bounds, means = [], [], []
    for group in np.unique(result.labels[result.labels >= 0]):
        members = np.flatnonzero(result.labels == group)
        flat = result.models[group].astype(np.float64)
        w0 = np.vstack([flat[10:].reshape(784, 10), flat[:10]])  # flax's order: bias, kernel
        x, y = samples(np.concatenate([held[k] for k in members]))
        v = path(w0, x, y)
        grad_v = np.array([gradient(point, x, y) for point in v])
        share = np.array([len(held[k]) for k in members]) / len(y)
        mean, mean_bound = np.zeros_like(v), np.zeros(STEPS + 1)
        for k, p in zip(members, share, strict=True):
            own = samples(held[k])
            w = path(w0, *own)
            distance, bound = bound_of(w, v, grad_v, *own)
            distances.append(distance)
            bounds.append(bound)
            mean, mean_bound = mean + p * w, mean_bound + p * bound
        means.append(mean_bound[1:] / np.linalg.norm((mean - v).reshape(STEPS + 1, -1), axis=1)[1:])
    distance, bound = np.array(distances)[:, 1:], np.array(bounds)[:, 1:]
    history = {
        "round": np.arange(1, STEPS + 1),
        "slack": (bound / distance).min(axis=0),
        "slack_median": np.median(bound / distance, axis=0),
        "slack_mean": np.array(means).min(axis=0),
        "distance": distance.mean(axis=0),
        "bound": bound.mean(axis=0),
    }
    arrays = {
        f"history/{key}": value.astype(np.int32 if key == "round" else np.float32)
        for key, value in history.items()
    }
    return result.record, arrays | {"labels": result.labels}


def main():
    """Write a results folder with a unit per seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    flags = parser.parse_args()
    store, names = Store(flags.out), []
    for seed in range(flags.seeds):
        record, arrays = check(seed)
        names.append(f"lemma2-{seed}")
        kept = {
            key: value for key, value in record.items() if key not in ("schema", "arrays", "sha256")
        }
        store.write(names[-1], {**kept, "id": names[-1], "label": "lemma 2"}, arrays)
        slack = arrays["history/slack"]
        print(
            f"seed {seed}: bound / distance at least {slack.min():.3f}, at the end {slack[-1]:.3f}"
        )
    store.write_plan({"name": NAME, "units": names})


if __name__ == "__main__":
    main()
