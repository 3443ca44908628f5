"""A few images, or one model, at a time, so that what is computed of them stays in the cache of a
CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfljax.lazy import custom_vmap, jax, jnp
from cfljax.types import Tree


def count_tiles(batch: int, most: int) -> tuple[int, int]:
    """Return the number of tiles, and the images per tile: about `most`, so that the last tile has
    little padding."""
    fewest = -(-batch // max(1, most))
    # The least padding
    number = min(range(fewest, 3 * fewest), key=lambda n: -(-batch // n) * n)
    return number, -(-batch // number)


def split_images(x: jax.Array, number: int) -> jax.Array:
    """Split [B, ...] into tiles [number, m, ...]; zeros fill up the last one."""
    together = -(-len(x) // number)
    x = jnp.pad(x, ((0, number * together - len(x)), *[(0, 0)] * (x.ndim - 1)))
    return x.reshape(number, together, *x.shape[1:])


def join_images(tiles: jax.Array, batch: int) -> jax.Array:
    """Join tiles [number, m, ...] to [B, ...], without the padding of the last one."""
    return tiles.reshape(-1, *tiles.shape[2:])[:batch]


def one_by_one(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Compute a function of arrays as it is, but under `vmap` one entry after another. Side by side
    the entries' arrays would leave the cache."""
    alone: Callable[..., Tree] = custom_vmap()(function)

    def compute_several(_: int, mapped: list[bool], *given: jax.Array) -> tuple[Tree, Tree]:
        if not any(mapped):
            # JAX asks this of a derivative if its direction alone is mapped, and maps it itself
            found = function(*given)
            return found, jax.tree.map(lambda _: False, found)

        def compute_one(own: list[jax.Array]) -> Tree:
            entries: Iterator[jax.Array] = iter(own)
            # Itself, for a `vmap` around this one
            return alone(
                *(
                    next(entries) if is_mapped else shared
                    for shared, is_mapped in zip(given, mapped, strict=True)
                )
            )

        several = [each for each, is_mapped in zip(given, mapped, strict=True) if is_mapped]
        found = jax.lax.map(compute_one, several)
        return found, jax.tree.map(lambda _: True, found)

    alone.def_vmap(compute_several)  # type: ignore[attr-defined]
    return alone
