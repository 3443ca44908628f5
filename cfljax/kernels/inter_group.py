"""FedGroup across its groups: inter-group aggregation (eq. 20 and two other readings), and the
group of newcomers (eq. 9)."""

from __future__ import annotations

from cfljax.kernels.blocks import combine, invert, row_scale
from cfljax.kernels.choose import least_loss
from cfljax.kernels.cosine import cosine_matrix
from cfljax.lazy import chex, jax, jnp

FORMULAS = ("difference", "normalised", "weighted")


def inter_group(
    models: jax.Array,
    eta: jax.Array | float,
    how: str = "difference",
    active: jax.Array | None = None,
) -> jax.Array:
    """Move each group's model towards the models of the other groups l ≠ j, all groups at once.

    Args:
      models: f32[K, d] w.
      eta: The step η.
      how: `"difference"` w_j + η Σ (w_l − w_j)/‖w_l − w_j‖, `"normalised"` w_j + η Σ w_l/‖w_l‖
        (eq. 20), `"weighted"` (w_j + η Σ w_l/‖w_l‖) / (1 + η Σ 1/‖w_l‖).
      active: bool[K]; None: all.

    Returns:
      f32[K, d]. Identical, zero, inactive and non-finite models contribute nothing; inactive ones
      stay as they are.
    """
    chex.assert_rank(models, 2)
    groups = models.shape[0]
    part = jnp.ones(groups, bool) if active is None else active
    chex.assert_shape(part, (groups,))
    if how not in FORMULAS:
        raise ValueError(f'inter_group "{how}": must be one of {", ".join(FORMULAS)}')
    if how == "difference":
        moved = models + eta * _pull(models, part)
    else:
        moved = _towards_others(models, eta, how, part)
    return jnp.where(part[:, None] & jnp.isfinite(models).all(axis=1)[:, None], moved, models)


def newcomer_group(
    directions: jax.Array, delta: jax.Array, active: jax.Array | None = None
) -> jax.Array:
    """Return i32[S] argmin_j (1 − cos(Δw_j, Δw_i))/2 (eq. 9) of the groups' directions f32[K, d]
    and the newcomers' updates f32[S, d]; ties to the lowest index. Inactive groups (active bool[K])
    are chosen only if all are inactive."""
    # eq. 9; −cos has the same order as (1 − cos)/2
    distance = -cosine_matrix(directions, delta)
    return least_loss(distance if active is None else jnp.where(active[:, None], distance, jnp.nan))


def _pull(models: jax.Array, part: jax.Array) -> jax.Array:
    """Return f32[K, d]: the sum of the unit vectors from each model to the others."""

    # One model at a time from differences, as products lose the digits of close models
    def add(total: jax.Array, line: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        other, takes_part = line
        way = jnp.where(takes_part, other - models, 0.0)
        scale, inverse = _inverse_norms(way)
        exists = inverse[:, None] > 0
        unit = way * scale[:, None] * inverse[:, None]
        return total + jnp.where(exists, unit, 0.0), None

    return jax.lax.scan(add, jnp.zeros_like(models), (models, part))[0]


def _towards_others(
    models: jax.Array, eta: jax.Array | float, how: str, part: jax.Array
) -> jax.Array:
    """Return what `inter_group` makes of the models by the formulas with w_l/‖w_l‖, f32[K, d];
    groups outside of `part` bool[K] pull nobody."""
    scale, inverse = _inverse_norms(models)
    inverse = jnp.where(part, inverse, 0.0)
    others = ~jnp.eye(models.shape[0], dtype=bool)
    # Σ w_l/‖w_l‖ over l ≠ j
    pull = combine(jnp.where(others, inverse[None, :], 0.0), models, scale)
    if how == "normalised":
        # eq. 20
        return models + eta * pull
    # Σ 1/‖w_l‖
    closeness = jnp.where(others, (scale * inverse)[None, :], 0.0).sum(axis=1, keepdims=True)
    return (models + eta * pull) / (1.0 + eta * closeness)


def _inverse_norms(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return s f32[n] and 1/‖s·x‖ f32[n] for row scales s of x f32[n, d]; both 0 for zero and
    non-finite rows. 1/‖x‖ is their product, which alone could overflow."""
    scale = row_scale(x)
    square = jnp.square(jnp.where(scale[:, None] > 0, x * scale[:, None], 0.0)).sum(axis=1)
    return scale, invert(jnp.sqrt(square))
