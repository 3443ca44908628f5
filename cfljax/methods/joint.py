"""Joint gradient and loss based clustering (Lin et al. 2023): K models; each device joins s_i =
argmax_k λ S_ik + (1 − λ)(−L_ik) (eq. 4). L_ik is its loss on model k (eq. 1), and S_ik the
similarity (eq. 3) of its gradient there with the last move Δw_k = w_k^t − w_k^{t−1} of that model
(eq. 2). It takes a step along this gradient (eq. 5), and each model becomes the mean of its
members' (eq. 7).

Loss and gradient are of one mini-batch Z_i of `batch` samples, with which the local step is then
taken: `batch` and `local_steps` are all there is to a device's round; `train.batch`, `train.epochs`
and `train.steps` do not count. The local solver computes the chosen model's gradient on Z_i once
more (the same numbers), so that no K × S × d array is ever held.

No experiment in `experiments/` has been run with `"literal"` or `"sum"`.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.choose import RESEED, SIMILARITIES, joint_cost, move_similarity
from cfljax.lazy import jax, jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import AVERAGES, Ask, ByScore, Clustered, State, Work, option
from cfljax.types import Array, Hyper

ABOUT = About(
    title="Joint",
    family="clustered",
    authors="Lin et al.",
    year=2023,
    paper="A joint gradient and loss based clustered federated learning design",
    venue="arXiv",
    link="https://arxiv.org/abs/2311.13665",
    models="K down (2K if not all take part), 1 up",
    communication="K models down, one model up. If not all clients take part in each round, also "
    "the K last moves down",
)
READINGS = (
    Reading(
        "Similarity",
        paper="cos(∇L, Δw) (eq. 3), where Δw is called the average gradient, or −‖∇L − Δw‖",
        here="cos(−∇L, Δw), because Δw points downhill; or −‖−lr ∇L − Δw‖",
        option=('similarity = "literal"', 'similarity = "euclidean"'),
    ),
    Reading(
        "Loss",
        paper="the sum over the mini-batch (eq. 1)",
        here="its mean, so that λ and the step do not depend on the batch size",
        option='loss_reduction = "sum"',
    ),
    Reading(
        "First round",
        paper="nothing",
        here="no model has moved yet, so S = 0 and the loss decides",
    ),
    Reading(
        "Model without members",
        paper="eq. 2",
        here="the same, Δw = 0",
    ),
    Reading(
        "Weights of the members",
        paper="uniform (eq. 7)",
        option="average",
    ),
    Reading(
        "Empty clusters",
        paper='K random devices, one into each cluster, "per FL training iteration"',
        here="only in rounds with an empty cluster",
        option="reseed",
    ),
    Reading(
        "Device without a cluster",
        paper="all take part",
        here="scored by the same rule, on a fixed mini-batch",
    ),
)

BLOCK = 1 << 21, 1 << 26
"""Numbers of gradients that are held at a time on (a CPU, so that they stay in its cache; an
accelerator, so that it is busy)."""


@dataclasses.dataclass(frozen=True)
class Joint(Clustered):
    """Joint: each client joins a model by its loss and by the direction of its gradient.

    A participant gets the `clusters` models w_k f32[K, d] and draws a mini-batch of `batch`
    samples. On it, it computes the loss L_ik (eq. 1, reduced by `loss_reduction`) and the
    `similarity` S_ik of its gradient with Δw_k f32[K, d], the models' last moves (eq. 2 and 3). It
    joins s_i = argmax_k λ S_ik + (1 − λ)(−L_ik) (eq. 4), where `lam` is λ, and takes `local_steps`
    steps from w_{s_i} (eq. 5). The model becomes its members' mean (eq. 7) by `average`, and
    `reseed` says when random participants are put into clusters.
    """

    clusters: int = option(4, "number of models", low=1, search=(2, 3, 4, 6))
    similarity: str = option(
        "descent", "how a gradient is compared with a model's last move", choices=SIMILARITIES
    )
    loss_reduction: str = option(
        "mean", "loss of a mini-batch; a sum makes the step larger, too", choices=("mean", "sum")
    )
    reseed: str = option("when_empty", "put random participants into the clusters", choices=RESEED)
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    local_steps: int = option(
        1,
        "mini-batch steps of a device per round (train.steps and train.epochs are not used)",
        low=1,
    )
    batch: int = option(
        32,
        "samples of the mini-batch that a device chooses and steps on (train.batch is not used)",
        low=1,
    )
    # Worth trying: the values of the paper
    lam: float = option(
        0.2,
        "weight of the similarity; the loss has 1 − lam",
        low=0.0,
        high=1.0,
        traced=True,
        search=(0.1, 0.2, 0.5),
    )

    @property
    def choice(self) -> ByScore:
        """Choose by eq. 4, and put participants into clusters by `reseed`."""
        return ByScore(self.reseed)

    @property
    def averaged(self) -> tuple[str, ...]:
        """The memory has a row for each model, too."""
        fields = super().averaged
        return (*fields, "memory") if fields else ()

    def work(self, work: Work) -> Work:
        """Return `local_steps` steps on mini-batches of `batch` samples."""
        return Work(None, self.local_steps, self.batch, summed=self.loss_reduction == "sum")

    def first(self, ask: Ask, state: State) -> State:
        """Remember Δw_k, the last move of each model, f32[K, d]: 0 at first."""
        return state._replace(memory=jnp.zeros_like(state.models))

    def remember_after_server_step(self, before: State, after: State) -> Array:
        """Return f32[K, d]: the move of each model, Δw_k (eq. 2)."""
        return after.models - before.models

    def score(self, ask: Ask, state: State) -> Array:
        """Return f32[K, S]: −λ S_ik + (1 − λ) L_ik (eq. 4) on the mini-batch with which the local
        step is then taken."""
        last = state.memory
        lam = ask.hyper["lam"]
        summed = self.loss_reduction == "sum"
        moved = jnp.any(last != 0)
        models = ask.download_all(state.models)

        def score_block(clients: Array, mask: Array) -> Array:
            def judge(of_model: tuple[Array, Array]) -> tuple[Array, Array]:
                model, move = of_model
                gradient, loss = ask.batch_gradient(model, self.batch, summed, clients, mask)
                # eq. 3; before the first round no model has moved, and losses decide alone
                alike = move_similarity(gradient, move, self.similarity, ask.hyper["lr"])
                return loss, jnp.where(moved, alike, 0.0)

            loss, alike = jax.lax.map(judge, (models, last))
            if ask.private:
                # Rounding can take a cosine out of the bounds of a private choice
                alike = jnp.clip(alike, -1.0, 1.0)
            return joint_cost(ask.bound(loss), alike, lam)

        # The models' moves, which those who took part in the last round can compute
        ask.download(last, each=state.in_use, who=ask.missed_last_round)
        size = ask.solver.model.size
        return ask.by_blocks(score_block, max(1, BLOCK[not ask.solver.sequential] // size))

    def score_range(self, hyper: Hyper) -> Array:
        """Return how far apart two scores of bounded losses and cosines can be."""
        return 2 * hyper["lam"] + (1 - hyper["lam"]) * hyper["privacy.choice.clip"]

    @property
    def without(self) -> dict[str, str]:
        """Refuse a private choice by distances, which have no bound."""
        why = 'with similarity = "euclidean" costs are unbounded, so a choice cannot be private'
        return super().without | ({"privacy.choice": why} if self.similarity == "euclidean" else {})
