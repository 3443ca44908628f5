"""FedGroup (Duan et al. 2021): some clients are grouped by the directions of their first updates,
and FedAvg runs inside the groups. A client that takes part later (a newcomer) joins the group whose
direction is closest to its first update's. With `mu` the method is FedGrouProx: FedProx inside the
groups.

The cold start (Algorithm 3) lets some clients pre-train from w_0. EDC (eq. 8) is the distance of
the cosines between their updates and the leading singular directions of all these updates, and
K-means++ by EDC makes the groups; MADC (eq. 7) compares each pair by its cosines with all others. A
newcomer takes the group with the least (1 − cosine) / 2 (eq. 9). A round (Algorithm 2) is FedAvg
inside each group, then inter-group aggregation (line 19), then the mean of the groups' models,
which is the auxiliary global model.

Ablations: `cold_start = "rcc"` (random clients are the centres), `assign = "random"` (RAC:
newcomers join at random, without pre-training, once or at each selection). A group without
participants keeps its latest update; inter-group aggregation moves its model, too. A group that the
cold start left without a member is never chosen. A client whose pre-training is not finite is a
zero vector to eq. 9.

The published text and the authors' program differ; the defaults follow the program, with which
Table 3 was made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices.compiled import quick_jit
from cfljax.errors import SpecError
from cfljax.kernels.choose import pick_random_cluster
from cfljax.kernels.inter_group import FORMULAS, inter_group, newcomer_group
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.cold_start import COLD_STARTS, first_groups
from cfljax.round.recipes import (
    Ask,
    Before,
    Choice,
    ChoosingMethod,
    InitialClusters,
    Joining,
    RoundResult,
    State,
    every,
    option,
    similarity,
)
from cfljax.types import Array, Hyper, LocalStep, Quantity, on_host

ABOUT = About(
    title="FedGroup",
    family="clustered",
    authors="Duan et al.",
    year=2021,
    paper="FedGroup: efficient clustered federated learning via decomposed data-driven measure",
    venue="arXiv (ISPA under another title)",
    link="https://arxiv.org/abs/2010.06870",
    communication="one model down, one update up, and the same for each pre-training: of the "
    "cold start in round 0, of a newcomer when it first takes part",
)
READINGS = (
    Reading(
        "Length of a pre-training",
        paper="E epochs (Algorithm 3)",
        here="50 mini-batch steps, with the proximal term (the program)",
        option="pretrain_epochs",
    ),
    Reading(
        "Start of a group",
        paper="w_0 (Algorithm 2, line 2); the mean of the members' updates (Algorithm 3)",
        here="the mean of their pre-trained weights (the program), which gives the same directions",
    ),
    Reading(
        "K-means of the cold start",
        paper="K-means++",
        here="ten restarts, at most 20 iterations (the program)",
    ),
    Reading(
        "Newcomer",
        paper="starts from the auxiliary global model, and is compared with the groups' latest "
        "updates",
        here="starts from w_0, and is compared with the cold-start directions (the program): by "
        "latest updates, which depend on who took part, newcomers on MNIST join almost at "
        'random. `"auxiliary"` compares with the groups\' models as seen from the auxiliary '
        "model",
        option='newcomer = "latest"',
    ),
    Reading(
        "When newcomers are assigned",
        paper="when they arrive",
        here='with "initial" before the first round: their group does not depend on the round',
    ),
    Reading(
        "First round of a newcomer",
        paper="E − 1 epochs after pre-training",
        here="all (the program)",
    ),
    BY_SAMPLES,
    Reading(
        "Inter-group aggregation",
        paper="a pull towards the others (Algorithm 2, line 19), or eq. 20",
        here='the former; `"weighted"` is the program\'s',
        option='inter_group = "normalised"',
    ),
    Reading(
        "Re-clustering",
        paper="none",
        here="none, or a new cold start every few rounds (`round/recluster.py`)",
        option="every",
    ),
    Reading(
        "Random group",
        paper="drawn once",
        here="the same; the program draws at each selection",
        option='rac = "always"',
    ),
)

NEWCOMER = ("initial", "latest", "auxiliary")


class AssignmentMemory(NamedTuple):
    """What the assignment of newcomers needs: the model f32[d] that they train from, w_0 or the
    auxiliary global one; what their updates are compared with, f32[K, d], the mean update of each
    group in the cold start, its latest update, or its model minus `start`; the groups that have
    members from the cold start and that had members in the last round, bool[K]; and who has trained
    for the cold start, bool[C]."""

    start: Array
    directions: Array
    active: Array
    moved: Array
    founder: Array


@dataclasses.dataclass(frozen=True)
class RandomGroup(Choice):
    """Each participant but the founders gets a random group, a new one in each round."""

    def choose(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return i32[S]: the group of each participant, also of newcomers."""
        ids = ask.cohort.ids
        own = state.labels[ids]
        drawn = pick_random_cluster(
            keys.fold(ask.key, "rac"), ask.federation.uid[ids], state.memory.active
        )
        return jnp.where(state.memory.founder[ids] & (own >= 0), own, drawn)


@dataclasses.dataclass(frozen=True)
class FedGroup(FedAvg):
    """FedGroup: clusters from the directions of first updates; FedGrouProx with mu.

    Cold start, once before the first round (Algorithm 3): `alpha` · `clusters` clients pre-train
    from w_0 for `pretrain_steps` or `pretrain_epochs`. Their updates f32[n, d] are clustered by EDC
    (eq. 8), by MADC (eq. 7), or around random clients, as `cold_start` says. The mean update of a
    group is its direction, a row of f32[K, d], and its model starts at w_0 plus this direction.

    A round (Algorithm 2): a newcomer pre-trains and joins the group with the most similar direction
    (eq. 9; `assign`, `newcomer` and `rac` have the other ways). FedAvg runs inside each group
    (FedProx, if `mu` is above 0) with weights by `average`. Then every model f32[d] moves towards
    the others' with the step `eta_g` (line 19; `inter_group` has the other formulas).

    `every` repeats the cold start every so many rounds, `similarity = "sketch"` compares sketches
    of updates, and `snapshots` keeps the matrices of EDC and MADC with the results.
    """

    diagnostics = {
        "members": Quantity("clients of each group so far"),
        "newcomers": Quantity("clients that join a group in the round"),
        "edc": Quantity("distances of first updates by eq. 8"),
        "madc": Quantity("distances of first updates by eq. 7"),
    }

    clusters: int = option(3, "number of groups", low=1, search=(2, 3, 4, 6))
    cold_start: str = option(
        "edc",
        "group by decomposed cosines, by MADC, or by random clients as centres",
        choices=COLD_STARTS,
    )
    alpha: int = option(20, "clients that pre-train for the cold start, per group", low=1)
    pretrain_steps: int = option(50, "mini-batch steps of a pre-training", low=1)
    pretrain_epochs: int | None = option(
        None, "epochs of a pre-training, instead of pretrain_steps", low=1
    )
    newcomer: str = option(
        "initial", "where a newcomer starts, and what it is compared with", choices=NEWCOMER
    )
    assign: str = option(
        "eq9",
        "a newcomer joins the closest group, or a random one (RAC)",
        choices=("eq9", "random"),
    )
    rac: str = option(
        "once",
        "a random group for good, or a new one at each selection",
        choices=("once", "always"),
    )
    eta_g: float = option(0.0, "step of the inter-group aggregation", low=0.0, traced=True)
    inter_group: str = option(
        "difference", "formula of the inter-group aggregation", choices=FORMULAS
    )
    mu: float = option(0.0, "strength of the proximal term (FedGrouProx)", low=0.0, traced=True)
    every: int | None = every()
    similarity: str = similarity()
    snapshots: bool = option(False, "keep the EDC and MADC matrices of the last cold start")

    @property
    def pretrains_newcomers(self) -> bool:
        """Whether newcomers train first, and join the closest group."""
        return self.assign == "eq9"

    @property
    def moving(self) -> bool:
        """Whether what newcomers are compared with changes from round to round."""
        return self.pretrains_newcomers and self.newcomer != "initial"

    @property
    def length(self) -> dict[str, int | None]:
        """How long a pre-training is: epochs and steps, one of them None."""
        steps = None if self.pretrain_epochs else self.pretrain_steps
        return {"epochs": self.pretrain_epochs, "steps": steps}

    def releases(self, rounds: int) -> tuple[int, int]:
        """Count the noised sums of a run: one a round, and one over all clients for each cold
        start."""
        return rounds, 1 if self.every is None else 1 + (rounds - 1) // self.every

    def check(self, where: str) -> None:
        """Raise SpecError for options that contradict each other."""
        if self.pretrain_epochs is not None and self.pretrain_steps != 50:
            raise SpecError(
                f"{where}.pretrain_epochs = {self.pretrain_epochs}: give pretrain_steps or "
                "pretrain_epochs, not both"
            )

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a step of SGD, with FedGrouProx's pull `mu` to the start."""
        return LocalStep.of(hyper)._replace(mu=hyper["mu"])

    @property
    def joining(self) -> Joining:
        """Bill the training of newcomers when they first take part."""
        return Joining(trains=self.pretrains_newcomers)

    @property
    def choice(self) -> Choice:
        """Let participants keep their group, or, with `rac = "always"`, have a new one in each
        round."""
        is_random = not self.pretrains_newcomers and self.rac == "always"
        return RandomGroup() if is_random else Choice()

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. Make the groups by the cold start (Algorithm 3), and put all others
        into groups if these do not depend on the round."""
        start = ask.first_model()
        number = self.clusters
        founders = number if self.cold_start == "rcc" else self.alpha * number
        ids = ask.draw_clients(founders, "cold_start")
        moves = ask.updates(
            start, ids, self.length["epochs"], self.length["steps"], self.similarity
        )
        uid = ask.uid[ids]
        found, snapshot = first_groups(
            ask.fold("cold_start"), moves, uid, number, self.cold_start, self.snapshots
        )
        labels = ask.labels_from_pairs((ids, found))
        parts: Iterable[tuple[np.ndarray, np.ndarray]] = [(ids, moves)]
        if self.similarity != "exact":
            # Only sketches were kept: the clients train once more
            parts = ask.updates_in_parts(start, ids, **self.length)
        directions = ask.means(parts, found, number)
        active = np.isin(np.arange(number), found)
        # If no update is finite, all clients join group 0
        active[0] |= not active.any()
        others = np.flatnonzero(np.asarray(ask.federation.holds) & (labels < 0))
        joining = labels.copy()
        # eq. 9
        closest = quick_jit(newcomer_group)
        if not self.pretrains_newcomers:
            random = quick_jit(pick_random_cluster)(ask.fold("rac"), ask.uid, active)
            joining[others] = np.asarray(random)[others]
        elif not self.moving:
            joining[others] = ask.joining(
                start, others, lambda moves: closest(directions, moves, active), **self.length
            )
        memory = AssignmentMemory(
            *map(on_host, (start, directions, active, active, ask.has_pretrained))
        )
        return InitialClusters(start + directions, labels, joining, memory=memory, extras=snapshot)

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[S]: the group of newcomers (eq. 9)."""
        if not self.moving:
            return super().join(ask, state)

        def closest(moves: Array) -> Array:
            return newcomer_group(state.memory.directions, moves, state.memory.active)

        return ask.pretrained(state.memory.start, closest, **self.length)

    def after(self, models: Array, hyper: Hyper, state: State) -> Array:
        """Move each group's model towards the others' (Algorithm 2, line 19)."""
        return inter_group(models, hyper["eta_g"], self.inter_group, state.memory.active)

    def remember(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> AssignmentMemory:
        """Return the memory, with who has moved if newcomers are compared with latest updates."""
        return before.memory._replace(moved=done.moved) if self.moving else before.memory

    def remember_after_server_step(self, before: State, after: State) -> AssignmentMemory:
        """Return what newcomers are compared with from now on: from the auxiliary model, the
        groups' latest updates (a group that has not moved keeps its last), or where the groups'
        models lie."""
        memory = after.memory._replace(directions=before.memory.directions)
        if not self.moving:
            return memory
        seen = memory.active & jnp.isfinite(after.models).all(axis=1)
        start = jnp.where(seen[:, None], after.models, 0.0).sum(axis=0) / jnp.maximum(seen.sum(), 1)
        latest = jnp.where(memory.moved[:, None], after.models - before.models, memory.directions)
        from_start = jnp.where(memory.active[:, None], after.models - start, 0.0)
        return memory._replace(
            start=start, directions=latest if self.newcomer == "latest" else from_start
        )

    def compute_diagnostics(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> dict[str, Array]:
        """Return the newcomers of the round, and how many clients each group has had so far."""
        groups = jnp.where(after.labels >= 0, after.labels, after.clusters)
        members = jnp.zeros(after.clusters, jnp.int32).at[groups].add(1, mode="drop")
        return {
            "newcomers": jnp.sum(
                ask.cohort.mask & (before.labels[ask.cohort.ids] < 0), dtype=jnp.int32
            ),
            "members": members,
        }
