"""What a run comes to is its own: neither what the process has computed before, nor flags of JAX, make it another."""

import numpy as np

import cfljax

FEW = {"name": "blobs", "samples": 40, "classes": 1, "features": 2, "partition": "dirichlet", "clients": 8, "alpha": 0.3}


def test_data_of_one_shape_with_fewer_clients_that_train_have_a_program_of_their_own():
    """Seed 30 leaves five clients that train, seed 56 seven; all shapes are the same."""
    sent = {}
    for seed, drawn in ((30, 3), (56, 4)):
        data = FEW | {"min_samples": 0, "test": "global", "seed": seed}
        result = cfljax.run("fedavg", data, "mclr", rounds=1, participation=0.6)
        sent[drawn] = result.history["bytes_up"][-1]
    assert sent[4] / sent[3] == np.float32(4 / 3)
