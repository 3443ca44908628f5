"""A client's work in a round as one gradient on all of its data."""

from __future__ import annotations

from cfljax.lazy import jnp
from cfljax.local.meter import count_steps
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.types import Array, Federation, Hyper, Jobs, Updates


class OneGradient(Solver):
    """A solver whose local training is one step along the gradient on all local data."""

    def fit(self, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper) -> Updates:
        """Return the updates −lr · gradient."""
        with count_steps(federation, jobs, Work(None, 1, None)):
            gradient, loss = self.gradient(federation, jobs)
        gradient = self.send(key, federation, jobs, gradient, hyper, hyper["lr"])
        return Updates(-self.step_of(hyper).lr * gradient, loss, jnp.asarray(jobs.mask).astype(jnp.int32))
