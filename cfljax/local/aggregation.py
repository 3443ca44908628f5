"""What the server makes of the updates that have arrived: a robust rule (`train.robust`) in place
of their weighted mean, and the noise of `train.privacy`. The step of `train.server` is a stage of
its own (`round.stages.server`)."""

from __future__ import annotations

import dataclasses
from typing import Any

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.mix import PLAIN, Rule
from cfljax.lazy import jnp
from cfljax.registry.options import NamedTable, option
from cfljax.types import Array, Hyper


@dataclasses.dataclass(frozen=True)
class Robust(NamedTable):
    """The table `train.robust`: a statistic of the members' updates instead of their weighted
    mean."""

    OWNERS = {"trim": (0.1, ("trimmed_mean",)), "liars": (0.2, ("krum",))}
    name: str = option(help="which", choices=("median", "trimmed_mean", "krum"))
    trim: float | None = option(
        None,
        "trimmed_mean: share of members removed at either end of each coordinate (0.1)",
        low=0,
        traced=True,
    )
    liars: float | None = option(
        None, "krum: the share of a cluster's members that may attack (0.2)", low=0, traced=True
    )

    def check(self, where: str) -> None:
        """Reject a share that leaves no member."""
        super().check(where)
        for name in ("trim", "liars"):
            if (value := getattr(self, name)) is not None and not value < 0.5:
                raise SpecError(f"{where}.{name} = {value}: must be less than 0.5")

    def check_train(self, where: str, train: Any) -> None:
        """Reject other options of the table `train`, named `where`: a rule needs all updates at
        once, and without noise.

        Args:
            where: The name of the table.
            train: Its options.
        """
        noise = train.privacy.noise if train.privacy else 0.0
        if noise > 0:
            raise SpecError(
                f"{where}.robust with {where}.privacy.noise = {noise}: noise is defined "
                "for weighted sums only; leave out one"
            )
        if stream := train.plan_options.stream:
            raise SpecError(
                f"{where}.plan.stream = {stream}: {where}.robust needs all updates at "
                "once; leave out one"
            )


def server_rule(robust: str, key: Array, hyper: Hyper, unit: Array | float | None = None) -> Rule:
    """Make the server's aggregation rule of a round.

    Args:
      robust: The name of the robust rule; "": the weighted mean.
      key: The random key of the round.
      hyper: The numbers of the run.
      unit: The factor from a vector to an update, for vectors that are not updates: their noise is
        another one. None: for updates.
    """
    rule = PLAIN
    if robust:
        number = hyper.get("robust.trim", hyper.get("robust.liars", 0.0))
        rule = rule._replace(statistic=robust, number=number)
    if "privacy.noise" in hyper:
        noise = hyper["privacy.noise"] * hyper["privacy.clip"]
        if unit is not None:
            # Vectors are clipped to clip / unit
            scale = jnp.asarray(unit)
            noise = jnp.where(scale > 0, noise / scale, 0.0)
        # Another key than the updates' noise, from which the same noise could be subtracted
        name = "noise" if unit is None else "noise beside"
        rule = rule._replace(noise=noise, key=keys.fold(key, name))
    return rule
