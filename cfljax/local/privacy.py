"""Differential privacy of clients (`train.privacy`): the options, what they exclude, and the link
that clips updates. The noise comes with the server's rule (`local.aggregation`), a private choice
of clusters with `Ask.least`."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.local.links import Link, Passage
from cfljax.registry.options import Table, check, option
from cfljax.types import Array, Hyper

INSTALL_COMMAND = 'pip install ".[privacy]" in the checkout'


@dataclasses.dataclass(frozen=True)
class ChoiceTable:
    """The table `train.privacy.choice`: participants choose their cluster by the exponential
    mechanism."""

    epsilon: float = option(help="ε of one choice", above=0, traced=True)
    clip: float = option(5.0, "a loss counts as no larger than this", above=0, traced=True)


@dataclasses.dataclass(frozen=True)
class Privacy:
    """The table `train.privacy`: differential privacy of clients, with a trusted server."""

    clip: float = option(help="no update is longer than this (l2 norm)", above=0, traced=True)
    noise: float = option(
        0.0, "deviation of the noise on a sum, over clip · its largest weight", low=0, traced=True
    )
    delta: float = option(1e-5, "ε is computed for this δ", above=0, high=0.5)
    choice: ChoiceTable | None = option(
        None,
        "make the choice of a cluster by loss private: { epsilon = 1.0, clip = 5.0 }",
        written=Table | None,
    )

    def __post_init__(self) -> None:
        if isinstance(self.choice, dict):
            object.__setattr__(
                self, "choice", check(ChoiceTable, self.choice, "train.privacy.choice")
            )

    def check(self, where: str) -> None:
        """Reject noise if the package that computes ε is not installed."""
        if self.noise > 0 and importlib.util.find_spec("dp_accounting") is None:
            raise SpecError(
                f"{where}.noise = {self.noise}: its ε is computed by dp-accounting, which is "
                f"not installed: {INSTALL_COMMAND}"
            )

    def check_train(self, where: str, train: Any) -> None:
        """Reject other options of the table `train`, named `where`, for which ε is not known.

        Args:
            where: The name of the table.
            train: Its options.
        """
        if train.clock and train.clock.trace and self.noise > 0:
            why = "ε is computed for draws from clients that are all available; leave out one"
            raise SpecError(f"{where}.clock.trace with {where}.privacy.noise = {self.noise}: {why}")
        if train.asynchronous and (self.noise > 0 or self.choice is not None):
            key = f"noise = {self.noise}" if self.noise > 0 else "choice"
            raise SpecError(
                f"{where}.asynchronous with {where}.privacy.{key}: ε is computed for rounds in "
                "which all clients can be drawn; here some are still training; leave out one"
            )


class Clip(Link):
    """Shortens updates to the norm `privacy.clip`, if there is one. It comes last: the server
    clips what has arrived, and no residual gets the clipped part."""

    def acts(self, hyper: Hyper) -> bool:
        """Return whether there is a largest norm."""
        return "privacy.clip" in hyper

    def encode(
        self, passage: Passage, row: Array, residual: Array | None
    ) -> tuple[Array, Array | None]:
        """Return the vector with at most this norm, in the scale of updates."""
        unit = passage.unit
        shorter = jnp.minimum(1.0, passage.hyper["privacy.clip"] / (jnp.linalg.norm(row) * unit))
        # With a unit of 0 the server adds no noise (`server_rule`), so that nothing may be sent
        return row * jnp.where(jnp.asarray(unit) > 0, shorter, 0.0), residual
