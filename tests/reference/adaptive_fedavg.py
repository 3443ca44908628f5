"""Adaptive-FedAvg, one client after another."""

import numpy as np

from tests.reference import plain


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
