"""A convolution and its gradients for twenty clients, each with its own kernel: by XLA's own convolution and by products (`conv =
"windows"`), on the device that JAX finds. Shapes are those of layers of ResNet-20, and of LEAF's CNN at batch 10.

    python -m benchmarks.convolutions [--small]
"""

from __future__ import annotations

import argparse
import sys

import jax

from benchmarks.machine import best, describe
from benchmarks.markdown import markdown
from cfljax.models.layers import convolve

LAYERS = [  # images, side, inputs, outputs, side of the kernel, stride
    (50, 32, 16, 16, 3, 1), (50, 16, 32, 32, 3, 1), (50, 8, 64, 64, 3, 1), (50, 32, 16, 32, 3, 2), (10, 28, 1, 32, 5, 1),
    (10, 14, 32, 64, 5, 1),
]  # fmt: skip
FORMS = ("native", "windows")


def seconds(form: str, layer: tuple[int, ...], clients: int, repetitions: int) -> float:
    """Of one repetition: the outputs, and the gradients by images and kernels."""
    images, side, inputs, outputs, size, stride = layer
    key = jax.random.key(0)
    x = jax.random.normal(key, (clients, images, side, side, inputs))
    kernel = jax.random.normal(key, (clients, size, size, inputs, outputs)) / 10
    one = jax.vmap(lambda x, kernel: convolve(x, kernel, form, stride=stride))

    def once(_: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        y, back = jax.vjp(one, *at)
        return tuple(now + 1e-9 * change for now, change in zip(at, back(y), strict=True))  # so that each needs the last

    all_of_them = jax.jit(lambda x, kernel: jax.lax.fori_loop(0, repetitions, once, (x, kernel)))
    with jax.default_matmul_precision("highest"):
        return best(lambda: jax.block_until_ready(all_of_them(x, kernel)), repetitions / 20, 2) / repetitions


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two clients with two images, two repetitions: does it run?")
    given = parser.parse_args(arguments)
    layers = [(2, *layer[1:]) for layer in LAYERS] if given.small else LAYERS
    rows = []
    for layer in layers:
        taken = [seconds(form, layer, *((2, 2) if given.small else (20, 20))) for form in FORMS]
        rows.append([*layer, *(f"{1e6 * each:.0f}" for each in taken), f"{taken[0] / taken[1]:.2g}"])
    print(describe()["device"])
    print(markdown(("images", "side", "inputs", "outputs", "kernel", "stride", *(f"{form}, µs" for form in FORMS), "ratio"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
