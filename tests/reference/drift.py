"""FedAvg, inside true groups that change, where each client sees its own images turned as its group
of the round says. By hand: a list of changes, `np.rot90` and loops."""

import numpy as np

from tests.reference import plain


def groups_of(first, changes, t):
    """The group of each client in round t; `changes`: (round, client, group) in any order."""
    group = list(first)
    for begin, client, to in sorted(changes):
        if begin <= t:
            group[client] = to
    return np.array(group)


class Turning:
    """Clients whose images, as lines of numbers, are turned by a quarter counter-clockwise for each
    step of their group."""

    def __init__(self, images, labels, rows, test_rows, first, changes, quarters):
        self.data, self.rows, self.test_rows = (images, labels), rows, test_rows
        self.first, self.changes, self.quarters = first, changes, quarters

    def group(self, t):
        return groups_of(self.first, self.changes, t)

    def own(self, rows, c, t):
        """(x, y) of these rows as client c sees them in round t."""
        images, labels = self.data
        turned = np.rot90(images[rows], self.quarters[self.group(t)[c]], axes=(1, 2))
        return turned.reshape(len(rows), -1), labels[rows]

    def fedavg(self, net, w0, rounds, lr, seed, batch, grouped):
        """Models [f64[d] for each group, or one] before and after each round."""
        sizes = np.array([len(rows) for rows in self.rows], float)
        history = [[w0.copy() for _ in self.quarters] if grouped else [w0.copy()]]
        for t in range(rounds):
            which = self.group(t) if grouped else np.zeros(len(self.rows), int)
            models, key, updates = [w.copy() for w in history[-1]], plain.round_key(seed, t), {}
            for c, rows in enumerate(self.rows):
                w, _ = plain.fit(
                    net,
                    models[which[c]],
                    self.own(rows, c, t),
                    plain.local_key(key, c),
                    lr,
                    batch=batch,
                )
                updates.setdefault(which[c], []).append((w, sizes[c]))
            for k, members in updates.items():
                models[k] = plain.average(*zip(*members, strict=True))
            history.append(models)
        return history

    def accuracy(self, net, models, t, grouped):
        """The share of right answers after t rounds, on test samples as round t shows them."""
        right = total = 0
        for c, rows in enumerate(self.test_rows):
            x, y = self.own(rows, c, t)
            w = models[self.group(t)[c] if grouped else 0]
            right, total = right + (net.logits(w, x).argmax(axis=1) == y).sum(), total + len(y)
        return right / total
