"""FedBCD as a plain loop: a few local steps on each participant's own model, then z moves to the
mean of all."""

import numpy as np

from cfljax.methods.fedbcd import draw_steps
from tests.reference import plain


def run(
    net,
    federation,
    w,
    seed,
    rounds,
    participants,
    rho,
    lr_z,
    local_lr,
    local_momentum,
    local_weight_decay,
    lr_decay=1.0,
):
    """(z, personal models)."""
    clients = plain.Clients(federation)
    z, personal = w.copy(), [w.copy() for _ in clients.train]
    for t in range(rounds):
        key = plain.round_key(seed, t)
        for i in plain.cohort(seed, t, clients.uid, participants):
            steps = int(draw_steps(key, clients.uid[i : i + 1], 5)[0])
            personal[i], _ = plain.fit(
                net, personal[i], clients.train[i], plain.local_key(key, clients.uid[i]), local_lr * lr_decay**t, batch=4,
                steps=steps, mu=2 * rho, anchor=z, momentum=local_momentum, weight_decay=local_weight_decay,
            )  # fmt: skip
        z = z - lr_z * (z - np.mean(personal, axis=0))
    return z, np.array(personal)
