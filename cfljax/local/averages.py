"""The weights by which a round's participants are averaged inside clusters: an option `average` of methods.

"samples" and "uniform" are weights of updates. "nova" (FedNova, Wang et al. 2020) weighs by samples what a client does in one step,
so that clients with more steps do not pull harder: the update of client i is divided by ‖a_i‖₁, the sum of the factors that its
gradients have in it (over the learning rate), and the mean is multiplied by the mean of these lengths. For plain SGD ‖a_i‖₁ is the
number of steps; with momentum and a proximal term it follows from their recursion (strong ones together make factors negative, and
the sum is then less than the norm). Weight decay counts as a part of the gradient.
Only the server's weights change; a client would send its length, one number, with its update, which is not counted."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cfljax.kernels.mix import normalised, weights_by
from cfljax.local.schedule import train_steps
from cfljax.local.solver import Solver
from cfljax.types import Array, Cohort, Federation, Hyper, Jobs, LocalStep

AVERAGES = ("samples", "uniform", "nova")
_BITS = 31


def averages(
    solver: Solver, federation: Federation, cohort: Cohort, which: Array, clusters: int, average: str, hyper: Hyper
) -> Array:
    """f32[K, S]: how the updates of participants in the clusters `which` i32[S] are averaged, if `solver` trains them."""
    size = federation.train.count[cohort.ids].astype(jnp.float32)
    mix = weights_by(which, cohort.mask, size, clusters, "uniform" if average == "uniform" else "samples")
    if average != "nova":
        return mix
    jobs = Jobs(cohort.ids, cohort.mask, cohort.work, jnp.zeros((1, 0)), which)
    return normalised(mix, lengths(train_steps(federation, jobs, solver.work), solver.step_of(hyper)))


def lengths(steps: Array, numbers: LocalStep) -> Array:
    """f32[S]: ‖a_i‖₁ of clients that do i32[S] steps: the distance y, over −lr, that constant gradients of 1 would lead to. A step
    is u ← momentum · u + 1 − mu · lr · y; y ← y + u, which is a matrix. Its powers are taken."""
    if numbers.momentum is None and numbers.mu is None:
        return steps.astype(jnp.float32)
    rho = jnp.asarray(0.0 if numbers.momentum is None else numbers.momentum, jnp.float32)
    alpha = jnp.asarray(0.0 if numbers.mu is None else numbers.mu * numbers.lr, jnp.float32)
    one, zero = jnp.float32(1), jnp.float32(0)
    step = jnp.stack([jnp.stack(row) for row in ((1 - alpha, rho, one), (-alpha, rho, one), (zero, zero, one))])

    def double(bit: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        power, here = at
        done = jnp.matmul(here, power.T, precision=jax.lax.Precision.HIGHEST)
        here = jnp.where(((steps >> bit) & 1)[:, None] == 1, done, here)
        return jnp.matmul(power, power, precision=jax.lax.Precision.HIGHEST), here

    begin = jnp.tile(jnp.array([0.0, 0.0, 1.0]), (steps.shape[0], 1))  # (y, u, 1)
    return jax.lax.fori_loop(0, _BITS, double, (step, begin))[1][:, 0]
