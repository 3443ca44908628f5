"""FedGroup as a plain loop: pre-training, one of three cold starts, newcomers by eq. 9 or at random, FedAvg inside the
groups, inter-group aggregation."""

import itertools

import jax
import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans

from cfljax import keys
from tests.reference import plain


def cosine(a, b):
    return a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-30)


def edc_labels(delta, m):
    directions = np.linalg.svd(delta.T, full_matrices=False)[0].T[:m]
    points = [[cosine(row, v) for v in directions] for row in delta]
    return KMeans(m, n_init=50, random_state=0).fit_predict(points)


def madc_labels(delta, m):
    n = len(delta)
    similar = np.array([[cosine(a, b) for b in delta] for a in delta])
    apart = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        apart[i, j] = np.mean([abs(similar[i, z] - similar[j, z]) for z in range(n) if z not in (i, j)])  # eq. 7
    return AgglomerativeClustering(m, metric="precomputed", linkage="complete").fit_predict(apart)


def random_group(key, uid, m):
    bits = jax.random.bits(jax.random.fold_in(keys.fold(key, "client"), int(uid)), (m,), np.uint32)
    return int(np.argmax(np.asarray(bits) >> 1))


def between(models, eta, how):
    """Inter-group aggregation (eq. 20 and the other readings)."""
    new = []
    for j, w in enumerate(models):
        others = [v for k, v in enumerate(models) if k != j]
        if how == "difference":
            new.append(w + eta * sum((v - w) / np.linalg.norm(v - w) for v in others))
        else:
            pull = w + eta * sum(v / np.linalg.norm(v) for v in others)
            new.append(pull / (1 + eta * sum(1 / np.linalg.norm(v) for v in others)) if how == "weighted" else pull)
    return new


def fedgroup(net, clients, w0, seed, rounds, participants, lr, batch, epochs, clusters, alpha, names, cold_start="edc",
             pretrain_steps=50, pretrain_epochs=None, newcomer="initial", assign="eq9", rac="once", newcomer_epochs="full",
             inter_group="difference", eta_g=0.0, mu=0.0, average="samples", group_start="mean"):  # fmt: skip
    """([(models, labels)] before and after each round, pre-trainings per round); names i32[C]: how the package numbers the
    groups of its founders (which is free)."""
    root, uid = keys.root(seed), clients.uid

    def before(key, i, w):
        key = plain.local_key(keys.fold(key, "pretrain"), uid[i])
        steps = None if pretrain_epochs else pretrain_steps
        return plain.fit(net, w, clients.train[i], key, lr, batch, pretrain_epochs, steps, mu=mu)[0] - w

    wanted = clusters if cold_start == "rcc" else alpha * clusters
    founders = np.argsort(np.asarray(keys.scores(root, "cold_start", uid)), kind="stable")[:wanted]
    delta = np.array([before(root, i, w0) for i in founders])
    if cold_start == "rcc":
        found = np.arange(clusters)
    else:
        found = {"edc": edc_labels, "madc": madc_labels}[cold_start](delta, clusters)
        called = {mine: names[i] for mine, i in zip(found, founders, strict=True)}
        assert len(set(called.values())) == clusters
        found = np.array([called[k] for k in found])
    labels = np.full(len(uid), -1)
    labels[founders] = found
    directions = [delta[found == k].mean(axis=0) for k in range(clusters)]
    models, start = [w0 + d if group_start == "mean" else w0 for d in directions], w0
    history, counts = [(np.array(models), labels.copy())], []
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, uid, participants)
        count, share = len(founders) if t == 0 else 0, np.full(len(uid), epochs)
        for i in present:
            if assign == "random":
                if labels[i] < 0 or (rac == "always" and i not in founders):
                    labels[i] = random_group(keys.fold(root if rac == "once" else key, "rac"), uid[i], clusters)
            elif labels[i] < 0:
                move = before(*((root, i, w0) if newcomer == "initial" else (key, i, start)))
                labels[i] = np.argmin([(1 - cosine(d, move)) / 2 for d in directions])  # eq. 9
                count, share[i] = count + 1, epochs - (newcomer_epochs == "rest")
        new = list(models)
        for k in range(clusters):
            members = [i for i in present if labels[i] == k]
            each = [(clients.train[i], plain.local_key(key, uid[i]), lr, batch, share[i]) for i in members]
            trained = [plain.fit(net, models[k], *args, mu=mu)[0] for args in each]
            if members:
                new[k] = plain.average(trained, clients.size[members] if average == "samples" else np.ones(len(members)))
        new = between(new, eta_g, inter_group)
        if newcomer == "latest":
            met = set(labels[present])
            directions = [new[k] - models[k] if k in met else directions[k] for k in range(clusters)]
            start = np.mean(new, axis=0)
        elif newcomer == "auxiliary":
            start = np.mean(new, axis=0)
            directions = [w - start for w in new]
        models = new
        history.append((np.array(models), labels.copy()))
        counts.append(count)
    return history, counts
