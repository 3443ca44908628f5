"""FLUX's descriptions and its clustering of them, from the paper and beside its authors'
program."""

from fractions import Fraction

import numpy as np
from sklearn import cluster, decomposition, neighbors, preprocessing

from tests.reference.host_clusters import renamed


def flux(net, clients, w, classes, here):
    """(Clusters of the clients `here`, the nearest cluster of all clients by what needs no label)
    at the model w. The elbow is found in exact numbers: distances that are equal are ties."""
    latent = []
    for x, _ in clients.train:
        b, k = net.layers(w)[0]
        latent.append(np.maximum(x @ k + b, 0))
    top = 1.02 * max(latent[i].max() for i in here)
    pca = decomposition.PCA(classes, svd_solver="full").fit(
        np.random.RandomState(1).uniform(0, top, (200, latent[0].shape[1]))
    )
    rows = []
    for z, (_, y) in zip(latent, clients.train, strict=True):
        some = [pca.transform(z)] + [
            pca.transform(z[y == c]) if sum(y == c) > 1 else None for c in range(classes)
        ]
        moments = [
            [[-1.0] * classes if a is None else of(a, axis=0) for a in some]
            for of in (np.mean, np.std)
        ]
        rows.append(
            np.concatenate([moments[0][0], moments[1][0], *moments[0][1:], *moments[1][1:]])
        )
    rows = np.array(rows)
    for at in range(0, rows.shape[1], classes):
        scaler = preprocessing.MinMaxScaler().fit(rows[here, at : at + classes].reshape(-1, 1))
        rows[:, at : at + classes] = scaler.transform(
            rows[:, at : at + classes].reshape(-1, 1)
        ).reshape(-1, classes)
    near = np.sort(
        neighbors.NearestNeighbors(n_neighbors=2).fit(rows[here]).kneighbors(rows[here])[0][:, 1]
    )
    n, near = len(near), [Fraction(round(d, 7)) for d in near.tolist()]
    rises = [(near[-1] - near[n - 1 - i]) / (near[-1] - near[0]) for i in range(n)]
    curve = [rise - Fraction(i, n - 1) for i, rise in enumerate(rises)]
    knee, bound = 0, -9
    for i in range(n - 1):
        beside = curve[max(i - 1, 0) : i + 2]
        knee, bound = (
            (i, curve[i] - Fraction(1, n - 1)) if curve[i] == max(beside) else (knee, bound)
        )
        bound = 0 if curve[i] == min(beside) and bound > -9 else bound
        if curve[i + 1] < bound:
            break
    else:
        knee = 0
    found = (
        cluster.DBSCAN(eps=float(near[n - 1 - knee]) + 1e-6, min_samples=2).fit(rows[here]).labels_
    )
    alone = np.flatnonzero(found < 0)
    found[alone] = found.max() + 1 + np.arange(len(alone))
    found = renamed(found)
    centres = [rows[here][found == k, : 2 * classes].mean(axis=0) for k in range(found.max() + 1)]
    return found, np.array(
        [np.argmin([np.linalg.norm(row[: 2 * classes] - c) for c in centres]) for row in rows]
    )
