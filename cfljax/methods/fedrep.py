"""FedRep (Collins et al. 2021): a global body, the representation, and a head for each client,
trained in turns.

A participant first trains its head for some epochs with the body that it was sent, then the body
with that head. The body is averaged, the head stays.

A newcomer, which has never trained, is scored with the global body and the head that all clients
begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import UNIFORM_UNLIKE_PROGRAM, About, Reading
from cfljax.round.recipes import Clustered, Work, head_rate, option
from cfljax.types import Hyper, LocalStep

ABOUT = About(
    title="FedRep",
    family="personal",
    authors="Collins et al.",
    year=2021,
    paper="Exploiting shared representations for personalized federated learning",
    venue="ICML",
    link="https://arxiv.org/abs/2102.07078",
    models="the body down and up",
    communication="the body down, its update up",
)
READINGS = (
    Reading(
        "Epochs",
        paper="τ gradient steps of the head, one update of the body; in its experiments epochs, "
        "10 and 1 or 5",
        here="epochs; `train.epochs` is for the body",
        option="head_epochs",
    ),
    UNIFORM_UNLIKE_PROGRAM,
    Reading(
        "Scored models",
        paper="its program trains all heads for ten more epochs after the last round",
        here="the models after the last round",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedRep(Clustered):
    """FedRep: a global body, and a head for each client, trained in turns.

    A participant gets the body, trains its own head for `head_epochs` epochs at the rate `head_lr`
    with that body fixed, then the body for `train.epochs` epochs with the head fixed. The heads,
    f32[C, n] for n parameters each, stay with their clients, and the bodies are averaged by
    `average`.
    """

    parts, own = (("head", "client"),), True

    head_epochs: int = option(10, "epochs of the head, before the body's", low=1, search=(1, 5, 10))
    head_lr: float | None = head_rate()
    average: str = option("uniform", "weights of the participants", choices=("uniform", "samples"))

    def step(self, hyper: Hyper) -> LocalStep:
        """Move the head at `head_lr`, if it is given."""
        return LocalStep.with_head(hyper)

    @property
    def without(self) -> dict[str, str]:
        """Refuse `train.steps`: the turns of head and body are counted in epochs."""
        return super().without | {"steps": "it counts epochs"}

    def work(self, work: Work) -> Work:
        """Epochs of the head, then of the body."""
        return work._replace(epochs=(work.epochs or 0) + self.head_epochs, head=self.head_epochs)
