"""The clusterings of recent methods, from their papers and beside their authors' programs, with
numpy and scikit-learn."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
from sklearn import cluster, decomposition, manifold, metrics, neighbors, preprocessing

from tests.reference import plain
from tests.reference.host_clusters import cosine, renamed


def zuziak(algorithm):
    """The rule of `host_clusters.rounds`: one clustering after the first round whose temperature
    has risen."""
    heats = []

    def between(t, models, labels, updates):
        if t == 0 or len(models) > 1 or (len(heats) > 1 and heats[-1] > heats[-2]):
            return models, labels
        n = len(updates)
        apart = np.array(
            [
                [0.0 if i == j else 1 - cosine(updates[i], updates[j]) for j in range(n)]
                for i in range(n)
            ]
        )
        heats.append(np.sqrt(sum(a**2 for row in apart for a in row) / (n * (n - 1) * 2**2)))
        if len(heats) > 1 and heats[-1] > heats[-2]:
            make = {
                "mean_shift": cluster.MeanShift,
                "hdbscan": lambda: cluster.HDBSCAN(3, metric="precomputed", copy=True),
            }
            labels = renamed(make[algorithm]().fit(apart).labels_)
            models = {k: models[0].copy() for k in range(labels.max() + 1)}
        return models, labels

    return between, heats


def cfl_gp(clusters, period, updates_of):
    """The rule; `updates_of(t, model)` f64[n, d] is what all clients make of a model before round
    t."""
    profile = None

    def between(t, models, labels, updates):
        nonlocal profile
        if t % period:
            return models, labels
        new, beta = updates_of(t, models[0]).T, 1 / (np.floor((t + 1) / (clusters * period)) + 1)
        profile = new if profile is None else (1 - beta) * profile + beta * new
        directions = np.linalg.svd(profile, full_matrices=False)[0][:, :clusters]
        found = renamed(
            cluster.KMeans(clusters, n_init=10, random_state=0)
            .fit((directions.T @ profile).T)
            .labels_
        )
        named = [np.array(names)[found] for names in permutations(range(clusters))]
        return models, max(named, key=lambda each: (each == labels).sum())

    return between


def adaptive_fedavg(net, clients, w, rounds, participants, lr, b1, b2, b3):
    """(The model, the factors of the learning rate) after all rounds, one client and one running
    mean at a time."""
    m = m_hat = v = r = 0.0
    factors = [1.0]
    for t in range(1, rounds + 1):
        key, updates = plain.round_key(0, t - 1), []
        for c in plain.cohort(0, t - 1, clients.uid, participants):
            local = plain.local_key(key, clients.uid[c])
            updates.append(
                (
                    plain.fit(net, w, clients.train[c], local, lr * factors[-1], batch=5)[0],
                    clients.size[c],
                )
            )
        w = plain.average(*zip(*updates, strict=True))
        v, v_hat_before = (
            b2 * v + (1 - b2) * np.mean((w - m_hat) ** 2),
            v / (1 - b2 ** (t - 1)) if t > 1 else None,
        )
        m = b1 * m + (1 - b1) * w
        m_hat = m / (1 - b1**t)
        r = b3 * r + (1 - b3) * (v / (1 - b2**t) / v_hat_before if t > 1 else 1)
        factors.append(min(1, r / (1 - b3**t) / t))
    return w, factors


def sr_fca(w0, local, fraction, min_size, every, refinements, luck, loss=None):
    """(The clusters to begin with, the rule) from local models f64[n, d]; `luck(t, m)`: m random
    numbers, the least goes first; `loss(w, i)`: of a model on the data of client i, where models
    are compared by their losses on each other's data."""

    def far(a, of_a, b, of_b):
        """The distance of two models, which are of these clients."""
        if loss is None:
            return np.linalg.norm(a - b)
        return (np.mean([loss(a, i) for i in of_b]) + np.mean([loss(b, i) for i in of_a])) / 2

    def united(models, of, near, numbers):
        groups, left = [], sorted(range(len(models)), key=lambda i: numbers[i])
        while left:
            first = left[0]
            groups.append(
                [
                    i
                    for i in left
                    if i == first or far(models[i], of[i], models[first], of[first]) <= near
                ]
            )
            left = [i for i in left if i not in groups[-1]]
        return groups

    alone = [[i] for i in range(len(local))]
    pairs = sorted(
        far(a, [i], b, [j]) for i, a in enumerate(local) for j, b in enumerate(local[:i])
    )
    near = pairs[int(np.ceil(fraction * len(pairs)))]
    groups = [g for g in united(local, alone, near, luck(0, len(local))) if len(g) >= min_size]

    def to_group(i, g):
        if loss is None:
            return far(local[i], [i], local[g].mean(axis=0), g)
        return np.mean([far(local[i], [i], local[j], [j]) for j in g])

    labels = np.array(
        [
            next(
                (k for k, g in enumerate(groups) if i in g),
                int(np.argmin([to_group(i, g) for g in groups])),
            )
            for i in range(len(local))
        ]
    )

    def between(t, models, labels, updates):
        if t == 0 or t % every or t > every * refinements:
            return models, labels
        of = {k: np.flatnonzero(labels == k) for k in sorted(models)}
        to = np.array([[far(models[k], of[k], x, [i]) for k in of] for i, x in enumerate(local)])
        sizes = np.bincount(to.argmin(axis=1), minlength=len(of))
        kept = [models[k] for k, size in zip(of, sizes, strict=True) if size >= min_size]
        own = to[:, sizes >= min_size].argmin(axis=1)
        members = [np.flatnonzero(own == m) for m in range(len(kept))]
        groups = united(kept, members, near, luck(t, len(kept)))
        new = {m: k for k, group in enumerate(groups) for m in group}
        labels = renamed([new[m] for m in own])
        return {k: w0.copy() for k in range(labels.max() + 1)}, labels

    return renamed(labels), between


def fedrod(net, clients_of, w, rounds, participants, lr, classes):
    """(The global model, the models that all clients are scored with); the gradients of the network
    are written out. `clients_of(t)`: the clients with the data that they have in round t."""
    clients = clients_of(0)
    at = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size
    heads = np.tile(w[at:], (len(clients.uid), 1))

    def gradients(w, head, x, y, added):
        """Of the body below this head, and of the head, with numbers that are added to the
        outputs."""
        (b, k), (b2, k2) = net.layers(np.append(w[:at], head))
        h = np.maximum(x @ k + b, 0)
        z = h @ k2 + b2 + added
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p = (p / p.sum(axis=1, keepdims=True) - np.eye(classes)[y]) / len(y)
        back = (p @ k2.T) * (h > 0)
        return np.concatenate([back.sum(axis=0), (x.T @ back).ravel()]), np.concatenate(
            [p.sum(axis=0), (h.T @ p).ravel()]
        )

    for t in range(rounds):
        key, trained, clients = plain.round_key(0, t), [], clients_of(t)
        for c in plain.cohort(0, t, clients.uid, participants):
            (x, y), mine = clients.train[c], w.copy()
            with np.errstate(divide="ignore"):
                log_n = np.log(np.bincount(y, minlength=classes))
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                _, by_p = gradients(mine, mine[at:] + heads[c], x[rows], y[rows], 0.0)
                mine = mine - lr * np.concatenate(
                    gradients(mine, mine[at:], x[rows], y[rows], log_n)
                )
                heads[c] -= lr * by_p
            trained.append((mine, clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    own = [np.append(w[:at], w[at:] + heads[c]) for c in range(len(heads))]
    return w, np.array(own)


def moon(net, clients, w, rounds, participants, lr, mu, tau):
    """The global model, from one sample's contrast after another."""
    last = np.tile(w, (len(clients.uid), 1))

    def slope(z, near, far):
        """The gradient by z of log(e^(cos(z, near)/tau) + e^(cos(z, far)/tau)) − cos(z,
        near)/tau."""
        size, cos = np.linalg.norm, lambda a, b: a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        of = lambda o: o / (size(z) * size(o)) - cos(z, o) * z / size(z) ** 2  # noqa: E731
        heavy = np.exp(cos(z, far) / tau) / (np.exp(cos(z, far) / tau) + np.exp(cos(z, near) / tau))
        return heavy * (of(far) - of(near)) / tau

    for t in range(rounds):
        key, trained = plain.round_key(0, t), []
        for c in plain.cohort(0, t, clients.uid, participants):
            (x, y), mine = clients.train[c], w
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                each = zip(
                    *(net.features(model, x[rows]) for model in (mine, w, last[c])), strict=True
                )
                mine = mine - lr * net.gradient(
                    mine, x[rows], y[rows], more=mu * np.array([slope(*three) for three in each])
                )
            last[c] = mine
            trained.append((mine, clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    return w


def fedala(net, clients, w, rounds, participants, lr, eta, share, first_epochs):
    """(The global model, the models that all clients are scored with, their weights)."""
    at, n = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size, len(clients.uid)
    own, weights, times = np.tile(w, (n, 1)), np.ones((n, w.size - at)), np.zeros(n, int)
    begin = lambda c: np.append(w[:at], own[c][at:] + (w - own[c])[at:] * weights[c])  # noqa: E731
    for t in range(rounds):
        key, trained = plain.round_key(0, t), []
        for c in plain.cohort(0, t, clients.uid, participants):
            x, y = clients.train[c]
            epochs = 0 if not times[c] else first_epochs if times[c] == 1 else 1
            steps = int(np.ceil(share * epochs * -(-len(y) // 5) - 1e-3))
            for rows in plain.batches(
                plain.local_key(plain.keys.fold(key, "weights"), clients.uid[c]),
                len(y),
                5,
                steps=steps,
            ):
                slope = net.gradient(begin(c), x[rows], y[rows])[at:] * (w - own[c])[at:]
                weights[c] = np.clip(weights[c] - eta * slope, 0, 1)
            own[c] = plain.fit(
                net, begin(c), (x, y), plain.local_key(key, clients.uid[c]), lr, batch=5
            )[0]
            times[c] += 1
            trained.append((own[c].copy(), clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    return w, np.array([begin(c) for c in range(n)]), weights


def fedproto(net, clients, w, rounds, participants, lr, lam):
    """(The clients' models, the global prototypes of the classes, the numbers sent down and up)."""
    own, protos, sent = np.tile(w, (len(clients.uid), 1)), {}, [0, 0]
    for t in range(rounds):
        key, theirs = plain.round_key(0, t), {}
        present = plain.cohort(0, t, clients.uid, participants)
        sent[0] += len(present) * sum(len(each) for each in protos.values())
        for c in present:
            x, y = clients.train[c]
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                z = net.features(own[c], x[rows])
                to = np.array(
                    [protos.get(label, here) for label, here in zip(y[rows], z, strict=True)]
                )
                own[c] = own[c] - lr * net.gradient(
                    own[c], x[rows], y[rows], more=lam * 2 * (z - to) / z.shape[1]
                )
            for label in set(y):
                theirs.setdefault(label, []).append(
                    net.features(own[c], x[y == label]).mean(axis=0)
                )
        sent[1] += sum(len(each) for group in theirs.values() for each in group)
        protos |= {label: np.mean(group, axis=0) for label, group in theirs.items()}
    return own, protos, sent


def fedpac(net, clients, w, rounds, participants, lr, lam, head_epochs, epochs):
    """(The models that clients are scored with, the numbers sent down and up besides models)."""
    at, n = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size, len(clients.uid)
    body, heads, centroids, sent, seen = w[:at], [w[at:]] * n, {}, [0, 0], set()
    for t in range(rounds):
        key, present = plain.round_key(0, t), plain.cohort(0, t, clients.uid, participants)
        width, trained, statistics, of_class = (
            net.features(w, clients.train[0][0]).shape[1],
            [],
            [],
            {},
        )
        sent[0] += len(present) * width * len(centroids)
        for c in present:
            (x, y), mine = clients.train[c], np.append(body, heads[c])
            z = net.features(mine, x)
            means = {label: z[y == label].sum(axis=0) / len(y) for label in set(y)}
            within = np.mean([a @ a for a in z]) - sum(m @ m for m in means.values())
            statistics.append((within / len(y), means))
            for i, rows in enumerate(
                plain.batches(
                    plain.local_key(key, clients.uid[c]), len(y), 5, epochs=head_epochs + epochs
                )
            ):
                z = net.features(mine, x[rows])
                to = np.array(
                    [centroids.get(label, here) for label, here in zip(y[rows], z, strict=True)]
                )
                slope = net.gradient(mine, x[rows], y[rows], more=lam * 2 * (z - to) / width)
                slope[slice(0, at) if i < head_epochs * -(-len(y) // 5) else slice(at, None)] = 0
                mine = mine - lr * slope
            trained.append(mine)
            for z, label in zip(net.features(mine, x), y, strict=True):
                of_class.setdefault(label, []).append(z)
            sent[1] += (2 * width + 1) * len(means) + 1
        body = plain.average(trained, clients.size[present])[:at]
        for c, (_, mine) in zip(present, statistics, strict=True):
            apart = [{k: mine.get(k, 0) - h.get(k, 0) for k in {*mine, *h}} for _, h in statistics]
            form = [[sum(a[k] @ b[k] for k in a.keys() & b.keys()) for b in apart] for a in apart]
            alpha = least_on_simplex(np.array(form) + np.diag([v for v, _ in statistics]))
            heads[c] = sum(a * model[at:] for a, model in zip(alpha, trained, strict=True))
        centroids |= {label: np.mean(each, axis=0) for label, each in of_class.items()}
        seen |= set(present)
    mean = plain.average([heads[c] for c in sorted(seen)], clients.size[sorted(seen)])
    return np.array([np.append(body, heads[c] if c in seen else mean) for c in range(n)]), sent


def least_on_simplex(form):
    """The p that makes pᵀ form p least, p ≥ 0 and Σp = 1: the best of those that are least where
    the others are 0."""
    best, n = (np.inf, None), len(form)
    for chosen in product([False, True], repeat=n):
        if any(chosen):
            own = np.flatnonzero(chosen)
            p = np.zeros(n)
            p[own] = np.linalg.lstsq(form[np.ix_(own, own)], np.ones(len(own)), rcond=None)[0]
            p /= p.sum()
            if (p >= 0).all() and p @ form @ p < best[0]:
                best = p @ form @ p, p
    return best[1]


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


def wecfl(net, clients, w, columns, clusters, rounds, participants, seed, by_samples):
    """(Models, labels) after all rounds: K-means counts a client by its samples, and clusters keep
    their names."""
    models, labels = {0: w}, np.zeros(len(clients.uid), int)
    for t in range(rounds):
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        starts = [
            (models[labels[i]], clients.train[i], plain.local_key(key, clients.uid[i])) for i in ids
        ]
        trained = np.array([plain.fit(net, *each, 0.3, batch=5)[0] for each in starts])
        weight = clients.size[ids] if by_samples else np.ones(len(ids))
        found = (
            cluster.KMeans(clusters, n_init=20, random_state=0)
            .fit(trained[:, columns], sample_weight=weight)
            .labels_
        )
        order, free, names = np.argsort(clients.uid[ids]), set(range(clusters)), {}
        found[order] = renamed(found[order])
        pairs = [
            (-sum((found == new) & (labels[ids] == old)), new, old)
            for new in range(clusters)
            for old in range(clusters)
        ]
        for _, new, old in sorted(pairs):
            if new not in names and old in free:
                names[new] = old
                free.remove(old)
        labels[ids] = [names[k] for k in found]
        for k in set(labels[ids]):
            own = labels[ids] == k
            models[k] = plain.average(trained[own], weight[own])
    return models, labels


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
