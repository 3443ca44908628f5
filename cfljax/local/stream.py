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

ON_CPU, ON_ACCELERATOR = 1 << 20, 1 << 22
"""The most numbers in the largest intermediate array of a block. On a CPU it should fit into the
cache (measured: scores of an MLP and a CNN then take four fifths of the time)."""
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
    x = jax.eval_shape(
        lambda: samples(
            federation, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
        )[0]
    )
    params = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    jaxpr = jax.make_jaxpr(lambda p, v: model.forward(p, v, None))(params, x).jaxpr
    widths = _find_widths(jaxpr, jaxpr.invars[: len(jax.tree.leaves(params))], on_cpu)
    widest = max([x.size, *(size * (copies if each else 1) for size, each in widths)])
    floats = ON_CPU if on_cpu else ON_ACCELERATOR
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
        inside, passed = list(equation.params.values()), inputs
        # Only one of the branches is compiled
        if (platforms := equation.params.get("branches_platforms")) is not None:
            branches = zip(equation.params["branches"], platforms, strict=True)
            inside, passed = (
                [branch for branch, names in branches if ("cpu" in (names or ())) == on_cpu],
                inputs[1:],
            )
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
    """Fold `visit` over the blocks, from `zero` before the first, and return the carry. The carry
    must be a sum that starts at zero, because devices share the blocks (or visit the samples that
    they hold) and their sums are added.

    Clients whose mask is False are left out of the sequence, so the time depends on the remaining
    clients' samples."""
    owner = None if split.shared or federation.owner is None else federation.owner[clients]
    counts = jnp.where(mask_own(owner, mask), split.count[clients], 0)
    ends = cumulative_counts(counts)
    begin = split.start[clients] - (ends - counts)

    def body(b: Array, carry: Carry) -> Carry:
        where = b * block + jnp.arange(block)
        index = jnp.minimum(insertion_points(ends, where, "right"), clients.shape[0] - 1)
        valid = where < ends[-1]
        rows = split.rows[jnp.where(valid, begin[index] + where, 0)]
        x, y = samples(federation, clients[index], rows, valid)
        return visit(carry, x, y, index, valid)

    blocks = -(-ends[-1] // block)

    def part(device: Array, devices: int) -> Carry:
        with jax.named_scope(BLOCKS_NAME):
            return part_named(device, devices)

    def part_named(device: Array, devices: int) -> Carry:
        # All these blocks are this device's
        if owner is not None:
            return jax.lax.fori_loop(0, blocks, body, zero)
        number = (blocks - device + devices - 1) // devices
        return jax.lax.fori_loop(
            0, number, lambda i, carry: body(device + i * devices, carry), zero
        )

    return sum_devices(part)


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
