"""The options of a method, and what the rest of the program asks of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cfljax.registry.options import Value

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.local.solver import Solver
    from cfljax.types import Method, Model


class TrainOptions(Protocol):
    """What a method may look at in a run's table `train`."""

    rounds: int
    participation: int | float
    momentum: float
    weight_decay: float
    dropout: float
    optimizer: str | dict[str, Value]

    @property
    def optimizer_pair(self) -> tuple[str, dict[str, Value]]:
        """The name of the optimiser in optax, and its arguments."""


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """The base of a method's options, which are fields made by `option(…)`. The answers below hold unless a method gives others."""

    clusters = 1
    """How many models a run keeps. Most methods have an option of this name."""
    similarity = ""
    """How updates are compared, for methods with an option of this name: "exact" or "sketch"."""

    @property
    def streams(self) -> bool:
        """Whether participants' updates come and go in blocks; False: they are held all at once."""
        return True

    @property
    def models_kept(self) -> int:
        """How many models a run keeps, for estimates of memory."""
        return self.clusters if isinstance(self.clusters, int) else 1

    def check(self, where: str) -> None:
        """Raises SpecError for options that do not go together; `where` is the table's name in messages."""

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Raises SpecError for options that do not go together with the rest of the run."""

    def held(self, clients: int, participants: int, d: int) -> dict[str, int]:
        """What is in memory at once besides the models of clusters: words → how many numbers of four bytes."""
        return {}

    def releases(self, rounds: int) -> tuple[int, int]:
        """How many noised sums `train.privacy` accounts for: (over the participants of a round, over all clients)."""
        return rounds, 0


class PersonalConfig(MethodConfig):
    """The base of options of methods that keep a model for each client."""

    @property
    def streams(self) -> bool:
        """Updates are held all at once."""
        return False

    def held(self, clients: int, participants: int, d: int) -> dict[str, int]:
        """The clients' models."""
        return {"a model for each client": clients * d}


Config = TypeVar("Config", bound=MethodConfig, contravariant=True)


class MakeMethod(Protocol[Config]):
    """Makes a method; what the registry holds."""

    def __call__(self, config: Config, model: Model, solver: Solver, /) -> Method[Any]:
        """The method for these options, this model and this solver. Lists show the first line of the docstring."""
