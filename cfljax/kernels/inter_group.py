"""FedGroup across its groups: inter-group aggregation (eq. 20 and two other readings), and the
group of newcomers (eq. 9)."""

from __future__ import annotations

from cfljax.kernels.blocks import combine, invert, row_scale
from cfljax.kernels.choose import least_loss
from cfljax.kernels.cosine import cosine_matrix
from cfljax.lazy import chex, jax, jnp

READINGS = ("difference", "normalised", "weighted")


def inter_group(
    models: jax.Array,
    eta: jax.Array | float,
    how: str = "difference",
    active: jax.Array | None = None,
) -> jax.Array:
    """f32[K, d] models after inter-group aggregation with step eta, all groups at once, each from
    the others l ≠ j: `"difference"` w_j + η Σ (w_l − w_j)/‖w_l − w_j‖, `"normalised"` w_j + η Σ
    w_l/‖w_l‖ (eq. 20), `"weighted"` (w_j + η Σ w_l/‖w_l‖) / (1 + η Σ 1/‖w_l‖). Identical, zero,
    inactive (active bool[K]) and non-finite models contribute nothing; inactive ones stay as they
    are."""
    chex.assert_rank(models, 2)
    groups = models.shape[0]
    part = jnp.ones(groups, bool) if active is None else active
    chex.assert_shape(part, (groups,))
    if how not in READINGS:
        raise ValueError(f'inter_group "{how}": must be one of {", ".join(READINGS)}')
    if how == "difference":
        moved = models + eta * _pull(models, part)
    else:
        moved = _towards_others(models, eta, how, part)
    return jnp.where(part[:, None] & jnp.isfinite(models).all(axis=1)[:, None], moved, models)


def newcomer_group(
    directions: jax.Array, delta: jax.Array, active: jax.Array | None = None
) -> jax.Array:
    """i32[S] argmin_j (1 − cos(Δw_j, Δw_i))/2 (eq. 9) of the groups' directions f32[K, d] and the
    newcomers' updates f32[S, d]; ties to the lowest index. Inactive groups (active bool[K]) are
    chosen only if all are inactive."""
    distance = -cosine_matrix(directions, delta)  # orders as eq. 9 does
    return least_loss(distance if active is None else jnp.where(active[:, None], distance, jnp.nan))


def _pull(models: jax.Array, part: jax.Array) -> jax.Array:
    """f32[K, d]: the sum of the unit vectors from each model to the others; one at a time, which is
    exact for close models."""

    def add(total: jax.Array, line: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        other, takes_part = line
        apart = jnp.where(takes_part, other - models, 0.0)
        inverse = _inverse_norms(apart)
        return total + jnp.where(
            inverse[1][:, None] > 0, apart * inverse[0][:, None] * inverse[1][:, None], 0.0
        ), None

    return jax.lax.scan(add, jnp.zeros_like(models), (models, part))[0]


def _towards_others(
    models: jax.Array, eta: jax.Array | float, how: str, part: jax.Array
) -> jax.Array:
    scale, inverse = _inverse_norms(models)
    inverse = jnp.where(part, inverse, 0.0)
    others = ~jnp.eye(models.shape[0], dtype=bool)
    pull = combine(jnp.where(others, inverse[None, :], 0.0), models, scale)
    if how == "normalised":
        return models + eta * pull  # eq. 20
    closeness = jnp.where(others, (scale * inverse)[None, :], 0.0).sum(
        axis=1, keepdims=True
    )  # Σ 1/‖w_l‖
    return (models + eta * pull) / (1.0 + eta * closeness)


def _inverse_norms(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(s, 1/‖s·x‖) for row scales s, f32[n] each; both 0 for zero and non-finite rows. 1/‖x‖ is
    their product."""
    scale = row_scale(x)
    square = jnp.square(jnp.where(scale[:, None] > 0, x * scale[:, None], 0.0)).sum(axis=1)
    return scale, invert(jnp.sqrt(square))
