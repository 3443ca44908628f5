"""When a client that comes late gets the cluster that `begin` or `regroup` has found for it
(`state.labels_if_joining`), and who has trained for that."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cfljax.lazy import jnp

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.round.state import State
    from cfljax.types import Array, Cohort, Federation


@dataclasses.dataclass(frozen=True)
class Joining:
    """A client that comes late gets its cluster when it first takes part."""

    trains: bool = True
    """Whether it has trained to be given that cluster, which is billed when it gets it."""

    def arrive(self, state: State, federation: Federation, round: Array) -> tuple[State, Array]:
        """Return the state in which clients that arrive in this round have what they get on their
        arrival, and i32[]: how many clients have trained for that.

        Args:
            state: The state before the round.
            federation: The clients' data.
            round: i32[] the number of the round.
        """
        return state, jnp.int32(0)

    def count_trained(self, arrived: Array, state: State, cohort: Cohort) -> Array:
        """Return i32[]: how many clients have trained for the cluster that they get in this round.

        Args:
            arrived: i32[] how many of them have got it on their arrival.
            state: The state after they have arrived.
            cohort: The participants.
        """
        if state.labels_if_joining is None or not self.trains:
            return arrived
        joins = cohort.mask & (state.labels[cohort.ids] < 0)
        return arrived + jnp.sum(joins, dtype=jnp.int32)


@dataclasses.dataclass(frozen=True)
class OnArrival(Joining):
    """A client that comes late gets its cluster when it comes."""

    def arrive(self, state: State, federation: Federation, round: Array) -> tuple[State, Array]:
        """Give their clusters to clients that have come. Arguments as for `Joining.arrive`."""
        if state.labels_if_joining is None:
            return state, jnp.int32(0)
        new = (state.labels < 0) & (federation.arrive <= round)
        trained = jnp.int32(0)
        if self.trains:
            joins = new & federation.trains & (state.labels_if_joining >= 0)
            trained = jnp.sum(joins, dtype=jnp.int32)
        labels = jnp.where(new, state.labels_if_joining, state.labels)
        return state._replace(labels=labels), trained

    def count_trained(self, arrived: Array, state: State, cohort: Cohort) -> Array:
        """Return how many have got it on their arrival. Arguments as for
        `Joining.count_trained`."""
        return arrived
