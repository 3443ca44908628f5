"""The tables `train.privacy`, `compress`, `attack` and `robust`: from what a spec writes to checked
options. They say what happens to updates in transit from the participants into the clusters'
models, and mean the same for every method."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from typing import Any, ClassVar, NamedTuple

from cfljax.config.values import list_fields
from cfljax.errors import SpecError
from cfljax.registry.gone import check_gone
from cfljax.registry.options import Table, Value, check, option, show
from cfljax.round.config import MethodConfig

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
    choice: Table | ChoiceTable | None = option(
        None, "make the choice of a cluster by loss private: { epsilon = 1.0, clip = 5.0 }"
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


@dataclasses.dataclass(frozen=True)
class NamedTable:
    """A table with a name that decides which options it has; the options of other names are
    None."""

    # Name of an option → its default, and the names that have it
    OWNERS: ClassVar[dict[str, tuple[Value, tuple[str, ...]]]] = {}
    name: str

    def __post_init__(self) -> None:
        for name, (default, owners) in self.OWNERS.items():
            if getattr(self, name) is None and self.name in owners:
                object.__setattr__(self, name, default)

    def check(self, where: str) -> None:
        """Reject an option that belongs to another name."""
        for key, (_, owners) in self.OWNERS.items():
            if (value := getattr(self, key)) is not None and self.name not in owners:
                names = " or ".join(f'"{owner}"' for owner in owners)
                raise SpecError(f"{where}.{key} = {show(value)}: belongs to name = {names}")


@dataclasses.dataclass(frozen=True)
class Compress(NamedTable):
    """The table `train.compress`: the form in which an update is sent."""

    OWNERS = {"keep": (0.01, ("topk",)), "rounding": ("stochastic", ("int8",))}
    name: str = option(help="how", choices=("topk", "int8", "sign"))
    keep: float | None = option(
        None,
        "topk: the share of the numbers that is sent, the largest ones (0.01)",
        above=0,
        high=1,
    )
    rounding: str | None = option(
        None,
        "int8: to either side at random (default), or to the nearest",
        choices=("stochastic", "nearest"),
    )
    feedback: bool = option(
        False, "error feedback: a client adds what was dropped to its next update"
    )

    def bytes(self, d: int) -> int:
        """Count the bytes of a compressed vector of d numbers."""
        if self.name == "topk":
            # Each number is sent with its index, 4 bytes each
            return 8 * count_kept(self.keep, d)
        # The scale, a float32, and a byte or a bit for each number
        return 4 + (d if self.name == "int8" else -(-d // 8))


@dataclasses.dataclass(frozen=True)
class Attack(NamedTable):
    """The table `train.attack`: clients that send false updates."""

    OWNERS = {"factor": (1.0, ("sign_flip", "noise"))}
    name: str = option(help="what they do", choices=("sign_flip", "noise", "label_flip"))
    share: float = option(help="the share of the clients", low=0, high=1, traced=True)
    factor: float | None = option(
        None, "length of a false update, relative to the true one (1.0)", low=0, traced=True
    )
    seed: int = option(
        0,
        "seed that decides which clients attack, for all methods and seeds alike",
        low=0,
        high=2**31 - 1,
    )


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


class Transit(NamedTuple):
    """The four tables of a run; None where the spec leaves one out."""

    privacy: Privacy | None
    compress: Compress | None
    attack: Attack | None
    robust: Robust | None

    @property
    def choice(self) -> ChoiceTable | None:
        """How participants choose their cluster; None: as they would without privacy."""
        made = None if self.privacy is None else self.privacy.choice
        return made if isinstance(made, ChoiceTable) else None


# Words that mean the same as leaving the table out. A list of values needs them: it cannot leave
# one out.
NONE_WORDS = ("none", "mean")
TABLES: dict[str, type[Any]] = {
    "privacy": Privacy,
    "compress": Compress,
    "attack": Attack,
    "robust": Robust,
}


def read_table(value: Value, name: str, kind: type) -> Any:
    """Check `train.<name>`. A word stands for a table with only that name; "none" (for `robust`
    also "mean") for no table."""
    if value in (None, *NONE_WORDS):
        return None
    if isinstance(value, kind):
        return value
    table = {"name": value} if isinstance(value, str) else dict(value)
    where = f"train.{name}"
    fields = list_fields(kind)
    for key, each in table.items():
        check_gone(where, key, each, where, fields[key].meta if key in fields else None)
    return check(kind, table, where)


def uses_error_feedback(options: MethodConfig, transit: Transit) -> bool:
    """Return whether clients keep what compression drops of their updates."""
    return transit.compress is not None and transit.compress.feedback and options.sends


def count_kept(share: float | None, d: int) -> int:
    """Return how many of d numbers are sent for this share: at least one."""
    # Without the margin a product such as 0.07 · 100 = 7.000000000000001 would round up to 8
    return min(d, max(1, math.ceil((share or 0.0) * d - 1e-6)))
