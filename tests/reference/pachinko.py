"""Reddi et al.'s Pachinko allocation, line by line as in their appendix: sets, and weights that are
scaled up by hand."""


def multinomial(weights, u):
    """The key that u in [0, 1) falls to, where keys in ascending order have intervals of the length
    of their weights."""
    at = 0.0
    for key in sorted(weights):
        at += weights[key]
        if u < at:
            return key
    return max(weights)


def renormalise(weights, without):
    """The weights without one key, scaled to sum to 1."""
    total = sum(weight for key, weight in weights.items() if key != without)
    return {key: weight / total for key, weight in weights.items() if key != without}


def allocate(labels, coarse_of, clients, samples, alpha, beta, rng):
    """The samples of each client; `coarse_of`: the coarse label of each fine label."""
    remaining = {}
    for sample, fine in enumerate(labels):
        remaining.setdefault(int(fine), []).append(sample)
    tree = {}
    for fine in remaining:
        tree.setdefault(int(coarse_of[fine]), set()).add(fine)
    held = []
    for _ in range(clients):
        theta = dict(zip(sorted(tree), rng.dirichlet([alpha] * len(tree)), strict=True))
        thetas = {
            c: dict(zip(sorted(tree[c]), rng.dirichlet([beta] * len(tree[c])), strict=True))
            for c in sorted(tree)
        }
        mine = []
        for _ in range(samples):
            draws = [rng.random() for _ in range(3)]
            coarse = multinomial(theta, draws[0])
            fine = multinomial(thetas[coarse], draws[1])
            sample = remaining[fine][int(draws[2] * len(remaining[fine]))]
            mine.append(sample)
            remaining[fine].remove(sample)
            if not remaining[fine]:
                tree[coarse].remove(fine)
                if tree[coarse]:
                    thetas[coarse] = renormalise(thetas[coarse], fine)
                else:
                    del tree[coarse]
                    if tree:
                        theta = renormalise(theta, coarse)
        held.append(mine)
    return held
