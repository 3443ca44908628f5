"""What a run comes to is its own: neither what the process has computed before, nor flags of JAX, make it another."""

import os
import subprocess
import sys

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


FLAGS = {
    "JAX_THREEFRY_PARTITIONABLE": "0", "JAX_ENABLE_X64": "1", "JAX_RANDOM_SEED_OFFSET": "7", "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict", "JAX_NUMPY_RANK_PROMOTION": "raise",
}  # fmt: skip


def noised():
    data = {"name": "blobs", "samples": 60, "clients": 4}
    result = cfljax.run("fedavg", data, "mclr", rounds=1, train={"privacy": {"clip": 1.0, "noise": 0.5}, "compress": "int8"})
    return f"{result.record['id']} {result.history['loss'].tobytes().hex()}"


def test_flags_of_jax_in_the_environment_change_no_number():
    """They are those of another process, and none is set in this one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | FLAGS
    code = "from tests.launch.test_alone import noised; print(noised())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == noised().split()
