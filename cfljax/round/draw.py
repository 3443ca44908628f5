"""Who takes part in a round of `Clustered`: the run's participants, or what a method's paper says
instead. A draw owns all that follows from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cfljax.errors import SpecError, join_errors
from cfljax.lazy import jax, jnp
from cfljax.round.refused import tell

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.registry.options import Value
    from cfljax.round.config import TrainOptions
    from cfljax.round.state import State
    from cfljax.types import Array, Cohort, Federation, Hyper

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Draw:
    """The participants that the run has drawn (`train.participation`). A subclass draws others in
    `do_round`, with `draw_highest`, and a method has it as its attribute `draw`.

    Example:
        ```python
        class Largest(Draw):
            def do_round(self, train, key, state, federation, cohort, hyper):
                samples = federation.train.count.astype(jnp.float32)
                return train(draw_highest(key, federation, samples, cohort, hyper))
        ```
    """

    asynchronous_unsupported = ""
    """Why an asynchronous server cannot draw so, for the message; "": it can. A draw with a
    `do_round` of its own cannot, unless it says so."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "do_round" in vars(cls) and "asynchronous_unsupported" not in vars(cls):
            cls.asynchronous_unsupported = "it draws the participants of a round itself"

    def do_round(
        self,
        train: Callable[[Cohort], Result],
        key: Array,
        state: State,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
    ) -> Result:
        """Return what training the participants gives.

        Args:
            train: (the participants) -> the result of the round.
            key: The round's key.
            state: The state before the round.
            federation: The clients' data.
            cohort: What the run has drawn.
            hyper: The numbers of the run.
        """
        return train(cohort)

    def releases(self, sums: int, rounds: int) -> tuple[int, int]:
        """Return how many noised sums a run publishes: (over the participants of a round, over all
        clients). The sums of a `do_round` of one's own are over all clients, because only a uniform
        draw hides who takes part.

        Args:
            sums: How many sums a round publishes.
            rounds: How many rounds the run has.
        """
        draws_itself = type(self).do_round is not Draw.do_round
        return (0, sums * rounds) if draws_itself else (sums * rounds, 0)

    # The arguments are for subclasses
    def refuse(self, train: TrainOptions, data: Value) -> dict[str, str]:  # noqa: ARG002
        """Return what of the table `train` must stay at its default, by dotted name, and why.

        Args:
            train: The options of the table `train`.
            data: The options of the table `data`.
        """
        return {}

    def check(self, where: str, train: TrainOptions, data: Value) -> None:
        """Raise SpecError for options of the run that contradict the draw.

        Args:
            where: The name of the method's table, for the message.
            train: The options of the table `train`.
            data: The options of the table `data`.
        """
        if lines := tell(where, train, self.refuse(train, data)):
            raise join_errors(lines)

    # The arguments are for subclasses
    def warn(self, where: str, train: TrainOptions) -> list[str]:  # noqa: ARG002
        """Return lines on options of the run that the draw does not use.

        Args:
            where: The name of the method's table, for the message.
            train: The options of the table `train`.
        """
        return []


@dataclasses.dataclass(frozen=True)
class Everybody(Draw):
    """All clients, which the run must draw."""

    def refuse(self, train: TrainOptions, data: Value) -> dict[str, str]:
        """Refuse that some clients may be missing in a round. Arguments as for `Draw.refuse`."""
        clients = getattr(getattr(data, "parts", None), "clients", None)
        drawn = train.participation
        everybody = isinstance(drawn, int) and isinstance(clients, int) and drawn >= clients
        missing = ["dropout", "clock.deadline_s", "clock.trace"]
        if not everybody:
            missing.append("participation")
        return dict.fromkeys(missing, "all members of a cluster take part in each round")


@dataclasses.dataclass(frozen=True)
class PerCluster(Draw):
    """Clients of each cluster: `most` of them, or all of a smaller one."""

    most: int
    asynchronous_unsupported = "it draws the participants of each cluster itself"

    def do_round(
        self,
        train: Callable[[Cohort], Result],
        key: Array,
        state: State,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
    ) -> Result:
        """Train clients that are drawn again, inside of the clusters. Arguments as for
        `Draw.do_round`."""
        from cfljax.federation.cohort import draw_inside

        inside = draw_inside(
            key, federation, state.labels, state.clusters, self.most, cohort, hyper
        )
        return train(inside)

    def warn(self, where: str, train: TrainOptions) -> list[str]:
        """Say that `train.participation` is not used. Arguments as for
        `Draw.warn`."""
        if train.participation == 1.0:
            return []
        return [
            f"train.participation with {where}: is not used; {where}.clients_per_cluster = "
            f"{self.most} says how many clients of each cluster take part"
        ]


@dataclasses.dataclass(frozen=True)
class WarmUp(Draw):
    """All clients in the first `rounds`, then the run's participants."""

    rounds: int

    def do_round(
        self,
        train: Callable[[Cohort], Result],
        key: Array,
        state: State,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
    ) -> Result:
        """Train all clients or the run's participants, by the round. Arguments as for
        `Draw.do_round`."""
        from cfljax.federation.cohort import gather, present

        some = cohort.ids.shape[0] < federation.clients or "participants" in hyper
        if self.rounds == 0 or not some:
            return train(cohort)
        # All clients have other shapes than the participants, so they are a branch of their own
        everyone = jnp.arange(federation.clients, dtype=jnp.int32)
        here = present(federation, cohort.round)
        full = gather(key, federation, everyone, here, cohort.round, hyper, cohort.kept)
        is_warmup = cohort.round < self.rounds
        done: Result = jax.lax.cond(is_warmup, lambda: train(full), lambda: train(cohort))
        return done

    def releases(self, sums: int, rounds: int) -> tuple[int, int]:
        """Count the sums of the first rounds over all clients. Arguments as for
        `Draw.releases`."""
        return sums * (rounds - self.rounds), sums * self.rounds

    def check(self, where: str, train: TrainOptions, data: Value) -> None:
        """Raise SpecError if no round is left. Arguments as for
        `Draw.check`."""
        if 0 < self.rounds >= train.rounds:
            raise SpecError(
                f"{where}.warmup_rounds = {self.rounds}: must be less than "
                f"train.rounds = {train.rounds}"
            )
