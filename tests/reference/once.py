"""OCFL and one-shot K-means as plain loops: local training, one clustering, FedAvg inside the
clusters."""

import numpy as np
from sklearn.cluster import OPTICS, KMeans

from cfljax import keys
from tests.reference import plain
from tests.reference.fedgroup import cosine


def trained(net, clients, w0, seed, lr, batch, epochs):
    """f64[C, d]: everybody's weights after local training."""
    key = keys.fold(keys.root(seed), "pretrain")
    pairs = zip(clients.train, clients.uid, strict=True)
    return np.array(
        [
            plain.fit(net, w0, data, plain.local_key(key, u), lr, batch, epochs)[0]
            for data, u in pairs
        ]
    )


def means(weights, labels):
    return {k: weights[labels == k].mean(axis=0) for k in sorted(set(labels) - {-1})}


def optics_labels(weights, min_samples, xi, metric, noise, merge_to, start=0.0):
    """(labels by OPTICS, after noise, after merging by the weights' differences from `start`)."""
    raw = OPTICS(min_samples=min_samples, xi=xi, metric=metric).fit(weights).labels_
    labels, centres = raw.copy(), means(weights, raw)
    for i in np.flatnonzero(raw < 0):
        if noise == "nearest":
            labels[i] = max(centres, key=lambda k: cosine(weights[i], centres[k]))
        elif noise == "isolate":
            labels[i] = labels.max() + 1
    settled = labels.copy()
    while merge_to and len(set(labels) - {-1}) > merge_to:
        centres = means(weights - start, labels)
        pairs = [(a, b) for a in centres for b in centres if a < b]
        a, b = max(pairs, key=lambda pair: cosine(centres[pair[0]], centres[pair[1]]))
        labels[labels == b] = a
    return raw, settled, labels


def kmeans_labels(weights, clusters):
    return KMeans(clusters, n_init=50, random_state=0).fit_predict(weights)


def renamed(labels):
    """Numbered by first appearance."""
    order = list(dict.fromkeys(k for k in labels if k >= 0))
    return np.array([order.index(k) if k >= 0 else -1 for k in labels])


def inside(net, clients, models, labels, seed, rounds, lr, batch, epochs, draw, average="samples"):
    """[models] after 0, 1, … rounds of FedAvg among draw(t)."""
    models, history = dict(models), []
    history.append(dict(models))
    for t in range(rounds):
        key, present = plain.round_key(seed, t), draw(t)
        for k, start in models.copy().items():
            members = [i for i in present if labels[i] == k]
            if members:
                jobs = [
                    (clients.train[i], plain.local_key(key, clients.uid[i]), lr, batch, epochs)
                    for i in members
                ]
                each = [plain.fit(net, start, *job)[0] for job in jobs]
                models[k] = plain.average(
                    each, clients.size[members] if average == "samples" else np.ones(len(members))
                )
        history.append(dict(models))
    return history


def per_cluster(seed, t, uid, labels, most):
    """OCFL's participants: the clients of each cluster with the highest scores."""
    score = np.asarray(keys.scores(plain.round_key(seed, t), "cohort", uid)) >> 1
    chosen = []
    for k in sorted(set(labels) - {-1}):
        members = np.flatnonzero(labels == k)
        chosen += list(members[np.argsort(-score[members].astype(np.int64), kind="stable")][:most])
    return chosen
