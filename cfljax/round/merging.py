"""How the clusters' models of a method on `Clustered` are made of what participants have
trained."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from cfljax.kernels.mix import mix_updates
from cfljax.round.local import AfterTraining

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.round.ask import Ask
    from cfljax.round.local import TrainingMethod
    from cfljax.round.state import State
    from cfljax.types import Array


@dataclasses.dataclass(frozen=True)
class Merging:
    """A cluster's model becomes the mean of the models of those who have trained for it. A subclass
    does otherwise, and a method has it as its attribute `merging`."""

    compares: ClassVar[bool] = False
    """As `Clustered.compares`."""
    keeps_models: ClassVar[bool] = True
    """Whether a cluster's model stays the same one through all rounds, as the mean of those who
    have trained from it."""
    fixed_downloads: ClassVar[str] = ""
    """As `MethodConfig.fixed_downloads`."""
    asynchronous_unsupported: ClassVar[str] = ""
    """Why an asynchronous server cannot have it, for the message; "": it can."""

    @property
    def without(self) -> dict[str, str]:
        """The train options that cannot be combined with it, and why."""
        return {}

    def merge(
        self, training: TrainingMethod, ask: Ask, state: State, which: Array, after: AfterTraining
    ) -> tuple[Array, AfterTraining]:
        """Return (i32[S] the clusters of whose models the participants are a part, the clusters'
        models after the round).

        Args:
            training: What can be used of the method.
            ask: What participants can be asked.
            state: The state before the round.
            which: i32[S] the clusters from whose models they have trained.
            after: What training has returned.
        """
        return which, after


@dataclasses.dataclass(frozen=True)
class Reassigned(Merging):
    """The server puts the participants into clusters by their trained models, and averages them
    there. A subclass says how, in `reassign`.

    Example:
        ```python
        class BySign(Reassigned):
            def reassign(self, ask, state, trained, which):
                return (trained[:, 0] > 0).astype(int)
        ```
    """

    compares = True
    keeps_models = False
    fixed_downloads = (
        "its server needs the models that participants have trained, from their start on"
    )
    asynchronous_unsupported = "its round needs the updates of all participants at once"

    @property
    def without(self) -> dict[str, str]:
        """Refuse noise, which needs a bound."""
        return {"privacy.noise": "a model's distance from another cluster's has no bound"}

    def reassign(self, ask: Ask, state: State, trained: Array, which: Array) -> Array:
        """Return i32[S]: the clusters whose models become the means of the participants' trained
        models.

        Args:
            ask: What participants can be asked.
            state: The state before the round.
            trained: f32[S, d] the trained models.
            which: i32[S] the clusters from whose models they have trained.
        """
        raise NotImplementedError

    def merge(
        self, training: TrainingMethod, ask: Ask, state: State, which: Array, after: AfterTraining
    ) -> tuple[Array, AfterTraining]:
        """Average in the new clusters. Arguments as for `Merging.merge`."""
        trainer = training.trainer
        trained = after.trained
        models = state.models[which] + trained.kept.moves
        which = self.reassign(ask, state, models, which)
        mix = training.average(trainer, ask, which, state.clusters)
        moves = models - state.models[which]
        mixed = mix_updates(mix, moves, state.models, trainer.rule(ask.key, ask.hyper))
        trained = trained._replace(mixed=mixed, kept=trained.kept._replace(moves=moves))
        after = after._replace(mix=mix, trained=trained)
        # An unused cluster that participants were put into is in use from now on
        active = state.active_mask | after.moved
        return which, after._replace(state=after.state._replace(active=active))
