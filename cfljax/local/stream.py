"""Evaluates models on the samples of many clients, in blocks of equal size, without padding for any
client.

The samples of the listed clients form one sequence, client after client. Block b is samples b·B …
(b+1)·B − 1 of this sequence, and may hold samples of several clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, repeat
from typing import TypeVar

from cfljax.devices.spread import devices, mask_own, sum_devices
from cfljax.federation.gather import cumulative_counts, insertion_points, samples
from cfljax.lazy import core, jax, jnp
from cfljax.types import Array, Federation, Model, Split, Tree

# The most numbers in the largest intermediate array of a block. On a CPU it should fit into the
# cache (measured: scores of an MLP and a CNN then take four fifths of the time)
MAX_FLOATS_ON_CPU = 1 << 20
MAX_FLOATS_ON_ACCELERATOR = 1 << 22
# The name of the loop over the blocks in compiled programs
BLOCKS_NAME = "sample_blocks"
Carry = TypeVar("Carry")
Visit = Callable[[Carry, Array, Array, Array, Array], Carry]
"""(carry, x f32[B, ...], y i32[B], s i32[B], valid bool[B]) -> the carry after a block of samples.
s: the position of each sample's client in the list of clients. valid: False for padding of the last
block."""


def block_size(
    model: Model, federation: Federation, copies: int, most: int, on_cpu: bool = True
) -> int:
    """Choose the number of samples in a block, a multiple of 16. It keeps the samples and the
    activations of `copies` models small, and gives each device about the same number of blocks.
    `most`: an upper bound of the number of samples."""

    def one_sample() -> Array:
        position = jnp.zeros(1, jnp.int32)
        return samples(federation, position, position, jnp.ones(1, bool))[0]

    x = jax.eval_shape(one_sample)
    params = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    jaxpr = jax.make_jaxpr(lambda p, v: model.forward(p, v, None))(params, x).jaxpr
    widths = _find_widths(jaxpr, jaxpr.invars[: len(jax.tree.leaves(params))], on_cpu)
    widest = max([x.size, *(size * (copies if of_model else 1) for size, of_model in widths)])
    floats = MAX_FLOATS_ON_CPU if on_cpu else MAX_FLOATS_ON_ACCELERATOR
    limit = min(4096, max(16, floats // widest // 16 * 16))
    blocks = devices() * -(-max(most, 1) // (devices() * limit))
    return -(-max(most, 1) // (16 * blocks)) * 16


def _find_widths(
    jaxpr: Tree, of_model: Iterable[object], on_cpu: bool
) -> Iterator[tuple[int, bool]]:
    """Yield (size, whether it depends on the model) for the intermediate arrays of a pass with one
    sample whose size grows with the batch. `of_model`: the inputs that depend on the model."""
    known = set(of_model)
    for equation in jaxpr.eqns:
        inputs = [not isinstance(v, core.Literal) and v in known for v in equation.invars]
        if any(inputs):
            known.update(equation.outvars)
        yield from (
            (v.aval.size, any(inputs)) for v in equation.outvars if v.aval.shape[:1] == (1,)
        )
        inside = list(equation.params.values())
        passed = inputs
        # Of the branches for platforms only one is compiled; the first input is the platform
        if (platforms := equation.params.get("branches_platforms")) is not None:
            branches = zip(equation.params["branches"], platforms, strict=True)
            inside = [branch for branch, names in branches if ("cpu" in (names or ())) == on_cpu]
            passed = inputs[1:]
        for inner in inside:
            inner = getattr(inner, "jaxpr", inner)
            if inner is not None and hasattr(inner, "eqns"):
                alike = len(inner.invars) == len(passed)
                yield from _find_widths(
                    inner, compress(inner.invars, passed if alike else repeat(any(passed))), on_cpu
                )


def fold_blocks(
    federation: Federation,
    split: Split,
    clients: Array,
    mask: Array,
    block: int,
    visit: Visit[Carry],
    zero: Carry,
) -> Carry:
    """Fold `visit` over the blocks, from `zero` before the first, and return the carry.

    Args:
      federation: The clients' data.
      split: Which of their samples: training or test.
      clients: i32[S] the clients.
      mask: bool[S] which of them count. Other clients are left out of the sequence, so that the
        time depends on the samples of those that count.
      block: The samples of a block.
      visit: (carry, the samples of a block) -> carry.
      zero: The carry before the first block. It must be a sum that starts at zero, because devices
        share the blocks (or visit the samples that they hold) and their sums are added.
    """
    owner = None if split.shared or federation.owner is None else federation.owner[clients]
    counts = jnp.where(mask_own(owner, mask), split.count[clients], 0)
    ends = cumulative_counts(counts)
    # A client's first position in `split.rows`, minus that in the sequence
    offset = split.start[clients] - (ends - counts)

    def body(b: Array, carry: Carry) -> Carry:
        position = b * block + jnp.arange(block)
        index = jnp.minimum(insertion_points(ends, position, "right"), clients.shape[0] - 1)
        valid = position < ends[-1]
        rows = split.rows[jnp.where(valid, offset[index] + position, 0)]
        x, y = samples(federation, clients[index], rows, valid)
        return visit(carry, x, y, index, valid)

    blocks = -(-ends[-1] // block)

    def fold_own(device: Array, devices: int) -> Carry:
        with jax.named_scope(BLOCKS_NAME):
            # If devices hold their own clients' samples, all blocks are this device's
            if owner is not None:
                return jax.lax.fori_loop(0, blocks, body, zero)
            # Otherwise block b is computed by device b mod devices
            number = (blocks - device + devices - 1) // devices
            return jax.lax.fori_loop(
                0, number, lambda i, carry: body(device + i * devices, carry), zero
            )

    return sum_devices(fold_own)


def client_losses(
    model: Model,
    federation: Federation,
    split: Split,
    models: Array,
    clients: Array,
    mask: Array,
    on_cpu: bool = True,
) -> Array:
    """Compute the mean loss f32[K, S] of each model f32[K, d] on the samples that each client
    i32[S] has in the split; 0 for a client without samples, and if the mask bool[S] is False."""
    block = block_size(model, federation, models.shape[0], clients.shape[0] * split.longest, on_cpu)
    params = jax.vmap(model.unravel)(models)

    def visit(total: Array, x: Array, y: Array, index: Array, valid: Array) -> Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[:, index].add(jnp.where(valid, losses, 0.0))

    zero = jnp.zeros((models.shape[0], clients.shape[0]))
    total = fold_blocks(federation, split, clients, mask, block, visit, zero)
    return total / jnp.maximum(split.count[clients], 1)
