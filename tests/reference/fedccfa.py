"""FedCCFA, one client after another."""

import numpy as np
from sklearn import cluster

from tests.reference import plain
from tests.reference.host_clusters import cosine


def fedccfa(
    net,
    clients,
    w0,
    rounds,
    participants,
    lr,
    head_lr,
    eps,
    gamma,
    tau,
    momentum,
    align_after,
    balanced_steps,
    balanced_samples,
):
    """(The clients' models, the numbers sent down and up, the clusters of each round and class). A
    row of the head is a class's weights and its bias."""
    (_, k), (_, k2) = net.layers(w0)
    (width, classes), at = k2.shape, k.size + len(k.T)
    row = lambda w, c: np.append(w[at + classes :].reshape(width, classes)[:, c], w[at + c])  # noqa: E731
    own, protos, sent, clusters = (
        np.tile(w0, (len(clients.uid), 1)),
        [{} for _ in clients.uid],
        [0, 0],
        [],
    )
    body, seen = w0[:at], set()

    def fit_head(w, batches, x, y):
        u = 0.0
        for rows in batches:
            u = momentum * u + net.gradient(w, x[rows], y[rows])[at:]
            w = np.append(w[:at], w[at:] - head_lr * u)
        return w

    def pull(z, label, known, weight):
        """The gradient by the features z of the weighted cross-entropy of their cosines with the
        prototypes."""
        if label not in known:
            return 0 * z
        cos = {c: cosine(z, of) for c, of in known.items()}
        total = sum(np.exp(value / tau) for value in cos.values())
        by = {c: np.exp(value / tau) / total - (c == label) for c, value in cos.items()}
        size, norm = np.linalg.norm(z), np.linalg.norm
        return (
            weight
            / tau
            * sum(
                by[c] * (of / (size * norm(of)) - cos[c] * z / size**2) for c, of in known.items()
            )
        )

    for t in range(rounds):
        key, present = plain.round_key(0, t), plain.cohort(0, t, clients.uid, participants)
        bodies, heads, means, even = {}, {}, {}, {}
        for i in present:
            (x, y), w, local = (
                clients.train[i],
                np.append(body, own[i][at:]),
                plain.local_key(key, clients.uid[i]),
            )
            luck = np.asarray(
                plain.keys.uniform(plain.keys.fold(key, "balanced", int(clients.uid[i])), len(y))
            )
            most = min(balanced_samples, *np.unique(y, return_counts=True)[1])
            some = np.concatenate(
                [[j for j in np.argsort(luck) if y[j] == c][:most] for c in set(y)]
            )
            even[i] = fit_head(np.append(body, w0[at:]), [some] * balanced_steps, x, y)
            of_head = plain.local_key(plain.keys.fold(key, "head"), clients.uid[i])
            if i not in seen:
                w = even[i]
            seen.add(i)
            w = fit_head(w, plain.batches(of_head, len(y), 5, epochs=1), x, y)
            p = np.unique(y, return_counts=True)[1] / len(y)
            weight = -sum(p * np.log(p)) / gamma if t >= align_after else 0.0
            u = 0.0
            for rows in plain.batches(local, len(y), 5, epochs=1):
                z = net.features(w, x[rows])
                more = np.array(
                    [pull(*each, protos[i], weight) for each in zip(z, y[rows], strict=True)]
                )
                u = momentum * u + net.gradient(w, x[rows], y[rows], more=more)[:at]
                w = np.append(w[:at] - lr * u, w[at:])
            sent[0] += width * len(protos[i])
            bodies[i], heads[i] = w[:at], w.copy()
            means[i] = {c: net.features(w, x[y == c]).mean(axis=0) for c in set(y)}
            sent[1] += classes * (width + 1) + width * len(means[i])
        body = plain.average([bodies[i] for i in present], clients.size[present])
        for i in present:
            own[i] = np.append(body, heads[i][at:])
        for c in range(classes):
            here = [i for i in present if c in means[i]]
            cos = {(i, j): cosine(row(even[i], c), row(even[j], c)) for i in here for j in here}
            apart = np.zeros((len(here), len(here)))
            for a, i in enumerate(here):
                for b, j in enumerate(here):
                    others = [z for z in here if z not in (i, j)]
                    if a != b and others:
                        apart[a, b] = np.mean([abs(cos[i, z] - cos[j, z]) for z in others])
            found = (
                cluster.DBSCAN(eps, min_samples=1, metric="precomputed").fit(apart).labels_
                if here
                else np.zeros(0, int)
            )
            clusters.append(found)
            for label in set(found):
                group = [i for i, other in zip(here, found, strict=True) if other == label]
                mean, proto = (
                    np.mean([row(heads[i], c) for i in group], axis=0),
                    np.mean([means[i][c] for i in group], axis=0),
                )
                for i in group:
                    own[i][at + c], protos[i][c] = mean[-1], proto
                    own[i][at + classes :].reshape(width, classes)[:, c] = mean[:-1]
    return own, sent, clusters
