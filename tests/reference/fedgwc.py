"""FedGWC, one client after another, beside its authors' program."""

import numpy as np
from sklearn import cluster, manifold, metrics

from tests.reference import plain


def fedgwc(net, clients, w0, rounds, drawn, lr, notes, gamma, eps, seed):
    """(Models, labels, W of each cluster) after all rounds: clusters are lists of clients, and W is
    a loop over their pairs."""
    groups, models, n = [list(range(len(clients.uid)))], [w0], len(clients.uid)
    ws, mse, calm = [np.full((n, n), 1 / n**2)], [1.0], [0]
    for t in range(rounds):
        key = plain.round_key(seed, t)
        luck = np.asarray(plain.keys.scores(key, "cohort", clients.uid)) >> 1
        for k, group in enumerate(list(groups)):
            ids, ends, losses = sorted(group, key=lambda i: -int(luck[i]))[:drawn], [], []
            for i in ids:
                (x, y), w, mine = clients.train[i], models[k], []
                for rows in plain.batches(
                    plain.local_key(key, clients.uid[i]), len(y), 5, epochs=1
                ):
                    mine.append(net.loss(w, x[rows], y[rows]))
                    w = w - lr * net.gradient(w, x[rows], y[rows])
                ends.append(w)
                losses.append(mine[:notes])
            sizes, losses = clients.size[ids], np.array(losses)
            models[k] = plain.average(ends, sizes)
            mu = (sizes[:, None] * losses).sum(0) / sizes.sum()
            var = (sizes[:, None] * (losses - mu) ** 2).sum(0) / sizes.sum() + 1e-16
            reward = np.exp(-0.5 * (losses - mu) ** 2 / var).mean(1)
            alpha, change = len(ids) / len(group), 0.0
            for a, i in enumerate(ids):
                for j in ids:
                    at = group.index(i), group.index(j)
                    new = (1 - alpha) * ws[k][at] + alpha * reward[a] / reward.sum()
                    change, ws[k][at] = change + (new - ws[k][at]) ** 2, new
            mse[k] = (1 - alpha) * mse[k] + alpha * change / len(ids) ** 2
            calm[k] = calm[k] + 1 if mse[k] < eps else 0
        if t == rounds - 1:
            break
        for k, group in enumerate(list(groups)):
            if len(group) > drawn and calm[k] >= round(len(group) / drawn):
                found = _parts(ws[k], gamma, min(int(len(group) / drawn) + 1, 5))
                parts = [np.flatnonzero(found == m) for m in range(found.max() + 1)]
                for m, part in enumerate(parts):
                    made = (
                        [group[i] for i in part],
                        models[k].copy(),
                        ws[k][np.ix_(part, part)],
                        1.0,
                        0,
                    )
                    if m == 0:
                        kept = made
                    else:
                        for each, new in zip((groups, models, ws, mse, calm), made, strict=True):
                            each.append(new)
                groups[k], models[k], ws[k], mse[k], calm[k] = kept
    return models, np.array([next(k for k, g in enumerate(groups) if i in g) for i in range(n)]), ws


def _parts(w, gamma, most):
    w, n = (w.T - w.min()) / max(w.max() - w.min(), 1e-8), len(w)
    affinity = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                others = [k for k in range(n) if k not in (i, j)]
                affinity[i, j] = np.exp(-gamma * sum((w[i, k] - w[j, k]) ** 2 for k in others))
    best, parts = 1.0, np.zeros(n, int)
    for m in range(2, most):
        embedded = manifold.SpectralEmbedding(
            m, affinity="precomputed", random_state=0
        ).fit_transform(affinity)
        how = {"affinity": "precomputed", "assign_labels": "cluster_qr", "random_state": 0}
        found = cluster.SpectralClustering(m, n_components=m, **how).fit_predict(affinity)
        if (score := metrics.davies_bouldin_score(embedded, found)) < best:
            best, parts = score, found
    return parts
