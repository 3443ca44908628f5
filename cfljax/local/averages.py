"""The weights by which a round's participants are averaged inside clusters: an option `average` of
methods.

"samples" and "uniform" are weights of updates. "nova" (FedNova, Wang et al. 2020) weighs by samples
what a client does in one step, so that clients with more steps do not pull harder: the update of
client i is divided by ‖a_i‖₁, the sum of the absolute factors that its gradients have in it (over
the learning rate), and the mean is multiplied by the mean of these lengths. For plain SGD ‖a_i‖₁ is
the number of steps; with momentum and a proximal term it follows from their recursion (strong ones
together make factors negative). Weight decay counts as a part of the gradient. Only the server's
weights change; a client sends its length, one number, with its update (`numbers_sent`).

Readings:
- Proximal terms. Paper: ‖a_i‖₁ for both factors; its authors' program takes plain steps, Σ p_i τ_i,
  for the mean length if mu is not 0. Here: ‖a_i‖₁ for both. Option: none."""

from __future__ import annotations

from cfljax.kernels.mix import fednova_weights, weights_by
from cfljax.lazy import jax, jnp
from cfljax.local.flight import select_arriving
from cfljax.local.parts import find_sent_statistics
from cfljax.local.schedule import train_steps
from cfljax.local.solver import Solver
from cfljax.types import Array, Cohort, Federation, Hyper, Jobs, LocalStep

AVERAGES = ("samples", "uniform", "nova")


def averages(
    solver: Solver,
    federation: Federation,
    cohort: Cohort,
    which: Array,
    clusters: int,
    average: str,
    hyper: Hyper,
) -> Array:
    """Return the mixing matrix f32[K, S] of a round, by an option `average` of a method. With
    updates in flight (`train.asynchronous`), the updates that arrive in this round are averaged.

    Args:
        solver: The solver that trains the participants.
        federation: The clients' data.
        cohort: The participants.
        which: i32[S] the cluster of each participant.
        clusters: K.
        average: "samples", "uniform" or "nova" (FedNova's weights).
        hyper: The numbers of the run.
    """
    arriving = select_arriving(cohort, which)
    if average == "uniform":
        size = jnp.ones(arriving.mask.shape)
    else:
        size = federation.train.count[arriving.ids].astype(jnp.float32)
    mix = weights_by(arriving.which, arriving.mask, size, clusters)
    if average == "nova":
        if find_sent_statistics(solver.model, solver.parts):
            solver.need_no_statistics('average = "nova", which scales updates,')
        # Jobs for the count of steps, which reads no model
        jobs = Jobs(arriving.ids, arriving.mask, arriving.work, jnp.zeros((1, 0)), arriving.which)
        steps = train_steps(federation, jobs, solver.work)
        mix = fednova_weights(mix, sum_factors(steps, solver.step_of(hyper)))
    return mix if arriving.discount is None else mix * arriving.discount


def numbers_sent(average: str) -> int:
    """Return how many numbers a participant sends with its update: with "nova" its length."""
    return 1 if average == "nova" else 0


def sum_factors(steps: Array, numbers: LocalStep) -> Array:
    """Compute ‖a_i‖₁ f32[S] of clients that do i32[S] steps."""
    if numbers.momentum is None and numbers.mu is None:
        return steps.astype(jnp.float32)
    rho = jnp.asarray(0.0 if numbers.momentum is None else numbers.momentum, jnp.float32)
    alpha = jnp.asarray(0.0 if numbers.mu is None else numbers.mu * numbers.lr, jnp.float32)

    # y is how far one gradient of 1 has moved a client, over −lr: the factor of a gradient whose
    # step was that long ago. ‖a_i‖₁ is the sum of |y| over the client's steps

    def follow(step: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        y, u, total = at
        total = total + jnp.where(step < steps, jnp.abs(y), 0.0)
        u = rho * u - alpha * y
        return y + u, u, total

    begin = (jnp.float32(1), jnp.float32(1), jnp.zeros(steps.shape))
    total: Array = jax.lax.fori_loop(0, jnp.max(steps), follow, begin)[2]
    return total
