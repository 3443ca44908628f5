"""FedGroup as a plain loop: pre-training, one of three cold starts, newcomers by eq. 9 or at
random, FedAvg inside the groups, inter-group aggregation."""

import itertools
from typing import NamedTuple

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
        apart[i, j] = np.mean(
            [abs(similar[i, z] - similar[j, z]) for z in range(n) if z not in (i, j)]
        )  # eq. 7
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
            new.append(
                pull / (1 + eta * sum(1 / np.linalg.norm(v) for v in others))
                if how == "weighted"
                else pull
            )
    return new


class Options(NamedTuple):
    """The options of the package's FedGroup, by their names."""

    clusters: int
    alpha: int
    cold_start: str = "edc"
    pretrain_steps: int = 50
    pretrain_epochs: int | None = None
    newcomer: str = "initial"
    assign: str = "eq9"
    rac: str = "once"
    inter_group: str = "difference"
    eta_g: float = 0.0
    mu: float = 0.0
    average: str = "samples"


class Work(NamedTuple):
    """Local training."""

    lr: float
    batch: int
    epochs: int


def cold_start(delta, founders, names, options):
    """i64[founders]: their groups by the updates f64[founders, d], numbered as the package does
    it."""
    if options.cold_start == "rcc":
        return np.arange(options.clusters)
    groups = {"edc": edc_labels, "madc": madc_labels}[options.cold_start](delta, options.clusters)
    called = {group: names[i] for group, i in zip(groups, founders, strict=True)}
    assert len(set(called.values())) == options.clusters
    return np.array([called[k] for k in groups])


def fedgroup(net, clients, w0, names, seed, rounds, participants, work, options):
    """([(models, labels)] before and after each round, pre-trainings per round); names i32[C]: how
    the package numbers the groups of its founders (which is free)."""
    root, uid, o = keys.root(seed), clients.uid, options

    def before(key, i, w):
        key = plain.local_key(keys.fold(key, "pretrain"), uid[i])
        steps = None if o.pretrain_epochs else o.pretrain_steps
        return (
            plain.fit(
                net,
                w,
                clients.train[i],
                key,
                work.lr,
                work.batch,
                o.pretrain_epochs,
                steps,
                mu=o.mu,
            )[0]
            - w
        )

    wanted = o.clusters if o.cold_start == "rcc" else o.alpha * o.clusters
    founders = np.argsort(np.asarray(keys.scores(root, "cold_start", uid)), kind="stable")[:wanted]
    delta = np.array([before(root, i, w0) for i in founders])
    labels = np.full(len(uid), -1)
    labels[founders] = found = cold_start(delta, founders, names, o)
    directions = [delta[found == k].mean(axis=0) for k in range(o.clusters)]
    models, start = [w0 + d for d in directions], w0
    history, counts = [(np.array(models), labels.copy())], []
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, uid, participants)
        count = len(founders) if t == 0 else 0
        for i in present:
            if o.assign == "random":
                if labels[i] < 0 or (o.rac == "always" and i not in founders):
                    labels[i] = random_group(
                        keys.fold(root if o.rac == "once" else key, "rac"), uid[i], o.clusters
                    )
            elif labels[i] < 0:
                move = before(*((root, i, w0) if o.newcomer == "initial" else (key, i, start)))
                labels[i] = np.argmin([(1 - cosine(d, move)) / 2 for d in directions])  # eq. 9
                count += 1
        new = list(models)
        for k in range(o.clusters):
            members = [i for i in present if labels[i] == k]
            each = [
                (clients.train[i], plain.local_key(key, uid[i]), work.lr, work.batch, work.epochs)
                for i in members
            ]
            trained = [plain.fit(net, models[k], *args, mu=o.mu)[0] for args in each]
            if members:
                new[k] = plain.average(
                    trained,
                    clients.size[members] if o.average == "samples" else np.ones(len(members)),
                )
        new = between(new, o.eta_g, o.inter_group)
        if o.newcomer == "latest":
            met = set(labels[present])
            directions = [
                new[k] - models[k] if k in met else directions[k] for k in range(o.clusters)
            ]
            start = np.mean(new, axis=0)
        elif o.newcomer == "auxiliary":
            start = np.mean(new, axis=0)
            directions = [w - start for w in new]
        models = new
        history.append((np.array(models), labels.copy()))
        counts.append(count)
    return history, counts
