"""How a whole run is scored after some rounds, and the run itself from start to end."""

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from cfljax import keys
from tests.reference.whole import World
from tests.reference.whole_rounds import METHODS, Told


def run(config, federation, init):
    """The arrays that a run's record vouches for, as far as this program makes them."""
    world = World(config, federation, init)
    rounds, rows, told, down, up = METHODS[world.method["name"]](world), [], Told(), 0, 0
    client_accuracy = np.full(len(world.uid), np.nan)
    for t in range(world.train["rounds"] + 1):
        if t == 0 or t == world.train["rounds"] or t % world.train["eval_every"] == 0:
            row, accuracy, ids = scored(world, rounds, t)
            row |= {
                "round": t,
                "train_loss": told.train_loss,
                "bytes_down": 4 * world.d * down,
                "bytes_up": up * world.vector_bytes(),
            }
            row["discrepancy"] = told.after if world.train["discrepancy"] == "after" else told.start
            client_accuracy[ids] = accuracy
            rows.append(row)
        if t < world.train["rounds"]:
            told = rounds.round(t)
            down, up = down + told.down, up + told.up
    names = [name for name in rows[0] if name not in ("labels", "accuracy_clusters")]
    arrays = {f"history/{name}": np.array([row[name] for row in rows], float) for name in names}
    arrays |= {"labels": np.array([row["labels"] for row in rows]), "models": rounds.state()[0], "client_accuracy": client_accuracy}
    return arrays | {f"diag/{world.method['name']}/accuracy_clusters": np.array([row["accuracy_clusters"] for row in rows])}


def scored(world, rounds, t):
    """(a row of the history, accuracy of the clients that are scored, who they are)."""
    models, labels = rounds.state()
    labels, train = labels.copy(), world.train
    ids = np.arange(len(world.uid))
    if train["eval_clients"] is not None and train["eval_clients"] < len(ids):
        drawn = (np.asarray(keys.scores(keys.root(0), "eval_clients", world.uid)) >> 1).astype(np.int64)
        ids = np.sort(np.argsort(-drawn, kind="stable")[: train["eval_clients"]])
    in_use = sorted(set(labels[labels >= 0])) or list(range(len(models)))
    correct, loss, samples, by = (np.zeros(len(ids)) for _ in range(4))
    for at, i in enumerate(ids):
        x, y = world.clients.test[i]
        k = model_of(world, rounds, models, labels, i)
        if not world.able[i]:
            seen = x, y
            if train["test_clients_choose"] == "holdout":
                half = -(-len(y) // 2)
                seen, (x, y) = (x[:half], y[:half]), (x[half:], y[half:])
            if rounds.chooses and len(models) > 1:
                k = in_use[np.argmin([world.net.losses(models[k], *seen).sum() for k in in_use])] if len(seen[1]) else in_use[0]
        by[at] = k
        out = world.arrive[i] > t or (train["score"] == "assigned" and labels[i] < 0) or world.liars[i]
        if not out and len(y):
            correct[at] = (world.net.logits(models[k], x).argmax(axis=1) == y).sum()
            loss[at], samples[at] = world.net.losses(models[k], x, y).sum(), len(y)
    row = measured(correct, loss, samples, world.arrive[ids] > 0, world.able[ids])
    row |= agreement(labels, world.clients.group, world.groups)
    row["accuracy_clusters"] = [ratio(correct[by == k].sum(), samples[by == k].sum()) for k in range(len(models))]
    row |= {"labels": labels, "clusters": len(set(labels[labels >= 0])), "scored": (samples > 0).sum(), "nonfinite": 0}
    return row, np.array([ratio(c, n) for c, n in zip(correct, samples, strict=True)]), ids


def model_of(world, rounds, models, labels, i):
    """The model that scores client i: its cluster's, else the one that its training data speak for."""
    if labels[i] >= 0 or rounds.scores == "own" or world.train["score"] == "assigned":
        return max(labels[i], 0)
    if rounds.scores == "distance":
        return rounds.nearest([i])[0]
    return np.argmin([world.net.losses(w, *world.data[i]).sum() for w in models])


def measured(correct, loss, samples, late, able):
    """Accuracies and the loss, from sums over each client's samples."""
    there = samples > 0
    each = np.sort(correct[there] / samples[there])
    some = lambda of, values: float(of(values)) if len(values) else np.nan  # noqa: E731
    return {
        "accuracy": ratio(correct.sum(), samples.sum()),
        "accuracy_client_mean": some(np.mean, each),
        "accuracy_worst10": some(np.mean, each[: -(-len(each) // 10)]),
        "accuracy_client_std": some(np.std, each),
        "accuracy_newcomers": ratio(correct[late].sum(), samples[late].sum()),
        "accuracy_train_clients": ratio(correct[able].sum(), samples[able].sum()),
        "accuracy_test_clients": ratio(correct[~able].sum(), samples[~able].sum()),
        "loss": ratio(loss.sum(), samples.sum()),
    }


def agreement(labels, truth, groups):
    """Found clusters against true groups, over the clients that have both."""
    both = (labels >= 0) & (truth >= 0)
    if groups == 0 or not both.any():
        return dict.fromkeys(("purity", "ari", "nmi"), np.nan)
    found, true = labels[both], truth[both]
    pure = sum(np.bincount(true[found == k]).max() for k in set(found)) / len(found)
    return {"purity": pure, "ari": adjusted_rand_score(true, found), "nmi": normalized_mutual_info_score(true, found)}


def ratio(part, whole):
    return part / whole if whole > 0 else np.nan
