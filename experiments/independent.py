"""Single cells of three tables by a plain numpy program that shares no line with cfljax:
partitions, networks, training, methods.

    python experiments/independent.py {ocfl_table2, femnist, rfedavg} --data FOLDER [--seeds 2]
    [--rounds 100]

One line per cell and seed: the best of all rounds and the mean of the last ten evaluations, in per
cent. FOLDER has `mnist.npz` and `emnist.npz`. What it finds is quoted on the pages in
`docs/evidence`; it is here so that anybody can find it again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans


def network(rng, *widths):
    """[W, b, W, b …]: weights with standard deviation 1 / sqrt(inputs), biases zero."""
    pairs = zip(widths[:-1], widths[1:], strict=True)
    return [
        a
        for m, n in pairs
        for a in (rng.normal(0, m**-0.5, (m, n)).astype(np.float32), np.zeros(n, np.float32))
    ]


def scores(net, x):
    """Return the inputs of every layer, and the scores."""
    inputs = [x]
    for k in range(0, len(net), 2):
        z = inputs[-1] @ net[k] + net[k + 1]
        inputs.append(np.maximum(z, 0) if k + 2 < len(net) else z)
    return inputs[:-1], inputs[-1]


def loss_and_gradient(net, x, y):
    """Compute the mean cross-entropy, and its gradient in the order of the net."""
    inputs, z = scores(net, x)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(p[np.arange(len(y)), y], 1e-30)).mean()
    p[np.arange(len(y)), y] -= 1
    back, out = p / len(y), [None] * len(net)
    for k in range(len(net) - 2, -1, -2):
        out[k], out[k + 1] = inputs[k // 2].T @ back, back.sum(axis=0)
        back = (back @ net[k].T) * (inputs[k // 2] > 0)
    return loss, out


def train(net, x, y, rng, lr, batch, epochs=None, steps=None):
    """Plain SGD from a copy of net, in a new order each epoch."""
    net, done = [a.copy() for a in net], 0
    while done < steps if steps else epochs > 0:
        order = rng.permutation(len(x))
        for i in range(0, len(x), batch):
            rows = order[i : i + batch]
            for a, g in zip(net, loss_and_gradient(net, x[rows], y[rows])[1], strict=True):
                a -= lr * g
            done += 1
            if done == steps:
                return net
        epochs = epochs - 1 if epochs else epochs
    return net


def mean(nets, weights):
    """Average networks with these weights."""
    shares = np.asarray(weights) / np.sum(weights)
    return [
        sum(s * a for s, a in zip(shares, same, strict=True)) for same in zip(*nets, strict=True)
    ]


def flat(net):
    """One vector."""
    return np.concatenate([a.ravel() for a in net])


def right(net, x, y):
    """How many samples it gets right."""
    return int((scores(net, x)[1].argmax(axis=1) == y).sum())


def report(name, seed, accuracy):
    """Print the best and the last ten."""
    print(
        f"{name}, seed {seed}: maximum {100 * max(accuracy):.1f}, last ten "
        f"{100 * np.mean(accuracy[-10:]):.1f}",
        flush=True,
    )


def ocfl_table2(data, seed, rounds):
    """OCFL's Table 2: MNIST, an MLP of 200, 100 clients of an even cut or of one or two shards;
    FedAvg with ten of them."""
    x, y = images(data, "mnist", "train")
    for name, shards in (("IID", 0), ("two shards", 2), ("one shard", 1)):
        rng = np.random.default_rng(seed)
        if shards:
            pieces = np.array_split(np.argsort(y, kind="stable"), 100 * shards)
            deal = rng.permutation(100 * shards).reshape(100, shards)
            parts = [np.concatenate([pieces[j] for j in mine]) for mine in deal]
        else:
            parts = np.array_split(rng.permutation(len(x)), 100)
        parts = [rng.permutation(rows) for rows in parts]
        edge = [int(0.8 * len(rows)) for rows in parts]
        test = np.concatenate([rows[e:] for rows, e in zip(parts, edge, strict=True)])
        parts = [rows[:e] for rows, e in zip(parts, edge, strict=True)]
        net, accuracy = network(rng, 784, 200, 10), []
        for t in range(rounds):
            present = [parts[i] for i in rng.choice(100, 10, replace=False)]
            net = mean(
                [train(net, x[rows], y[rows], rng, 0.01, 10, epochs=1) for rows in present],
                [len(r) for r in present],
            )
            if t % 2:
                accuracy.append(right(net, x[test], y[test]) / len(test))
        report(name, seed, accuracy)


def femnist(data, seed, rounds):
    """FedGroup's FEMNIST: logistic regression, 20 of 200 clients; FedAvg, IFCA and FedGroup with
    EDC."""
    x, y = images(data, "emnist", "train", "test")
    for leak in (True, False):
        parts, test = letters(y, leak, np.random.default_rng(seed))
        clients = [
            (1 - x[a], y[a] - 36, 1 - x[b], y[b] - 36) for a, b in zip(parts, test, strict=True)
        ]
        for name, method in (("FedAvg", in_one), ("IFCA", by_loss), ("FG-EDC", by_direction)):
            report(
                f"{name}, leak {leak}".lower(),
                seed,
                list(method(clients, np.random.default_rng(seed + 1), rounds)),
            )


def letters(y, leak, rng):
    """Training and test rows: client u has letters u, u + 1 and u + 2 of ten, nine tenths of them
    to train."""
    rows = [rng.permutation(np.flatnonzero(y == 36 + c))[:4000] for c in range(10)]
    own = [[r] if leak else np.split(r, [int(0.9 * len(r))]) for r in rows]
    parts, test, at = [], [], np.zeros((10, 2), int)
    for u in range(200):
        size = max(int((rng.lognormal(4, 1) + 5) / 3), 2)
        mine = ([], [])
        for c in ((u + j) % 10 for j in range(3)):
            if leak:  # the published recipe: back to the first image for nearly every client
                mine[0].append(own[c][0][:size])
                continue
            for side, wanted in enumerate((round(0.9 * size), size - round(0.9 * size))):
                turn = np.arange(at[c, side], at[c, side] + wanted) % len(own[c][side])
                mine[side].append(own[c][side][turn])
                at[c, side] += wanted
        both = [rng.permutation(np.concatenate(side)) if side else None for side in mine]
        edge = int(0.9 * len(both[0]))
        parts.append(both[0][:edge] if leak else both[0])
        test.append(both[0][edge:] if leak else both[1])
    return parts, test


def accuracy_of(clients, nets, labels):
    """Over all test samples."""
    hits = sum(right(nets[k], tx, ty) for (_, _, tx, ty), k in zip(clients, labels, strict=True))
    return hits / sum(len(c[3]) for c in clients)


def local(net, client, rng):
    """Twenty epochs on its own data."""
    return train(net, client[0], client[1], rng, 0.003, 10, epochs=20)


def in_one(clients, rng, rounds):
    """FedAvg."""
    net = network(rng, 784, 26)
    for _ in range(rounds):
        present = [clients[i] for i in rng.choice(len(clients), 20, replace=False)]
        net = mean([local(net, c, rng) for c in present], [len(c[1]) for c in present])
        yield accuracy_of(clients, [net], [0] * len(clients))


def by_loss(clients, rng, rounds):
    """IFCA with five models."""
    nets = [network(rng, 784, 26) for _ in range(5)]
    closest = lambda c: int(np.argmin([loss_and_gradient(net, c[0], c[1])[0] for net in nets]))  # noqa: E731
    for _ in range(rounds):
        present = [clients[i] for i in rng.choice(len(clients), 20, replace=False)]
        labels = [closest(c) for c in present]
        moved = [local(nets[k], c, rng) for c, k in zip(present, labels, strict=True)]
        for k in set(labels):
            members = [m for m, label in zip(moved, labels, strict=True) if label == k]
            nets[k] = mean(members, [1] * len(members))
        yield accuracy_of(clients, nets, [closest(c) for c in clients])


def by_direction(clients, rng, rounds):
    """FedGroup with EDC: everybody joins the group whose first updates point where its own does."""
    start, groups = network(rng, 784, 26), 5
    before = [
        flat(train(start, c[0], c[1], rng, 0.003, 10, steps=50)) - flat(start) for c in clients
    ]
    unit = np.array([d / np.linalg.norm(d) for d in before])
    founders = rng.choice(len(clients), 20 * groups, replace=False)
    moves = np.array(before)[founders]
    main = np.linalg.svd(moves, full_matrices=False)[2][:groups]
    found = KMeans(groups, n_init=10, random_state=0).fit_predict(unit[founders] @ main.T)
    centres = np.array([moves[found == k].mean(axis=0) for k in range(groups)])
    labels = (unit @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)).T).argmax(axis=1)
    labels[founders] = found
    shapes = [a.shape for a in start]
    edges = np.cumsum([a.size for a in start])[:-1]
    nets = [
        [p.reshape(s) for p, s in zip(np.split(flat(start) + c, edges), shapes, strict=True)]
        for c in centres
    ]
    for _ in range(rounds):
        present = rng.choice(len(clients), 20, replace=False)
        moved = {i: local(nets[labels[i]], clients[i], rng) for i in present}
        for k in set(labels[present]):
            members = [i for i in present if labels[i] == k]
            nets[k] = mean([moved[i] for i in members], [len(clients[i][1]) for i in members])
        yield accuracy_of(clients, nets, labels)


def rfedavg(data, seed, rounds):
    """RFedAvg's Fig. 2 at B = 1: MNIST, an MLP of 64, 30 of 100 devices, one full-batch gradient
    each; FedAvg and RFedAvg."""
    (x, y), (tx, ty) = images(data, "mnist", "train"), images(data, "mnist", "test")
    for reweigh in (False, True):
        rng = np.random.default_rng(seed)
        majority = np.clip(np.round(rng.normal(5, 10**0.5, 100)), 1, 10).astype(int) - 1
        parts = [
            rng.choice(np.flatnonzero(y == m), max(rng.integers(0, 101), 1), replace=False)
            for m in majority
        ]
        counts = np.array([np.bincount(y[rows], minlength=10) for rows in parts])
        level = np.abs(counts.sum() / 10 - counts).sum(axis=1)
        net, accuracy, first = network(rng, 784, 64, 10), [], None
        for t in range(rounds):
            present = rng.choice(100, 30, replace=False)
            each = [loss_and_gradient(net, x[parts[i]], y[parts[i]]) for i in present]
            loss, gradients = np.array([a for a, _ in each]), np.array([flat(g) for _, g in each])
            size = counts[present].sum(axis=1)
            now = (loss * size).sum() / size.sum()
            first = now if first is None else first
            share = np.clip((first - now) / (first - 0.05), 0, 1)
            labels = (
                cover(gradients, np.cos(0.1 + (np.pi / 2 - 0.1) * share))
                if reweigh
                else np.zeros(30, int)
            )
            p, step = [], []
            for k in range(labels.max() + 1):
                members = np.flatnonzero(labels == k)
                lead = members[level[present[members]].argmax()]
                p.append(1 / max(level[present[lead]] - size[members].sum() + size[lead], 1))
                step.append(size[members] @ gradients[members] / size[members].sum())
            at = np.split(
                0.1 * (np.array(p) / sum(p)) @ np.array(step), np.cumsum([a.size for a in net])[:-1]
            )
            net = [a - d.reshape(a.shape).astype(np.float32) for a, d in zip(net, at, strict=True)]
            if t % 5 == 4:
                accuracy.append(right(net, tx, ty) / len(ty))
        report("RFedAvg" if reweigh else "FedAvg", seed, accuracy)


def cover(vectors, least):
    """Algorithm 1: whoever has the most neighbours that are left founds the next cluster with
    them."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = unit @ unit.T >= least
    np.fill_diagonal(near, True)
    labels, number = np.full(len(vectors), -1), 0
    while (left := labels < 0).any():
        founder = np.where(left, (near & left).sum(axis=1), -1).argmax()
        labels[near[founder] & left] = number
        number += 1
    return labels


def images(data, name, *splits):
    """Pixels in [0, 1] and labels."""
    file = np.load(Path(data) / f"{name}.npz", allow_pickle=False)
    x = np.concatenate([file[f"x_{split}"] for split in splits])
    return x.reshape(len(x), -1).astype(np.float32) / 255, np.concatenate(
        [file[f"y_{split}"] for split in splits]
    ).astype(int)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=["ocfl_table2", "femnist", "rfedavg"])
    parser.add_argument("--data", required=True, help="folder with mnist.npz and emnist.npz")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    for number in range(chosen.seeds):
        {"ocfl_table2": ocfl_table2, "femnist": femnist, "rfedavg": rfedavg}[chosen.table](
            chosen.data, number, chosen.rounds
        )
