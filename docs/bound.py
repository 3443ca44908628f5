"""Two bounds of the papers in numbers, as the theory page shows them: `python docs/bound.py` (numpy
and scikit-learn, seconds).

FedGroup, lemma 2: a client's model w_e and the model v_e trained on its group's data together, both
from the same start with full batches, drift apart by at most delta / L ((eta L + 1)^e - 1).
CFL-MGD, lemma 1: with n samples to choose by, a client picks the wrong one of two models with a
probability of at most c / n.
"""

import numpy as np
from sklearn.datasets import load_digits

RATE, STEPS, CLIENTS = 0.02, 20, 10


def gradient(w, x, y):
    """Of the mean loss of logistic regression, f64[F, 10]."""
    scores = x @ w
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return x.T @ p / len(y)


def drift():
    """Rows (e, largest drift of a client, its bound, least bound / drift over the clients)."""
    rng = np.random.default_rng(0)
    digits = load_digits()
    x, y = np.c_[digits.data / 16, np.ones(len(digits.data))], digits.target
    owner = np.array(
        [rng.choice(CLIENTS, p=mix) for mix in rng.dirichlet(np.full(CLIENTS, 0.3), 10)[y]]
    )
    parts = [(x[owner == k], y[owner == k]) for k in range(CLIENTS)]
    smooth = np.array(
        [np.linalg.eigvalsh(a.T @ a / len(a))[-1] / 2 for a, _ in parts]
    )  # the Hessian of softmax is at most 1/2
    group = np.zeros((x.shape[1], 10))
    own = [group.copy() for _ in parts]
    delta = np.zeros(CLIENTS)
    for e in range(1, STEPS + 1):
        whole = gradient(group, x, y)
        delta = np.maximum(
            delta, [np.linalg.norm(gradient(group, *part) - whole) for part in parts]
        )
        own = [w - RATE * gradient(w, *part) for w, part in zip(own, parts, strict=True)]
        group = group - RATE * whole
        distance = np.array([np.linalg.norm(w - group) for w in own])
        bound = delta / smooth * ((RATE * smooth + 1) ** e - 1)
        far = distance.argmax()
        yield e, distance[far], bound[far], (bound / distance).min()


def wrong_choices(d=10, trials=20_000):
    """Rows (n, share of clients that choose the wrong model, that share times n)."""
    rng = np.random.default_rng(0)
    best = np.zeros((2, d))
    best[0, 0], best[1, 0] = 0.5, -0.5  # a distance of 1 between the two optima
    models = (
        best + 0.25 * np.eye(d)[1]
    )  # each within a quarter of that distance of its own (assumption 4)
    for n in (1, 2, 4, 8, 16, 32, 64):
        x = rng.normal(size=(trials, n, d))
        y = x @ best[0] + rng.normal(size=(trials, n))  # all of these clients belong to cluster 0
        losses = [((y - x @ w) ** 2).mean(axis=1) for w in models]
        wrong = (losses[1] < losses[0]).mean()
        yield n, wrong, wrong * n


def markdown():
    """Make the two tables of the theory page."""
    lines = [
        "| steps e | largest drift | its bound | least bound / drift |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {e} | {far:.3f} | {bound:.3f} | {slack:.2f} |"
        for e, far, bound, slack in drift()
        if e in (1, 2, 5, 10, 20)
    ]
    lines += ["", "| samples n | wrong choices | wrong choices · n |", "| --- | --- | --- |"]
    lines += [f"| {n} | {wrong:.4f} | {times:.3f} |" for n, wrong, times in wrong_choices()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
