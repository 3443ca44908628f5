"""Joint gradient and loss based clustering (Lin et al.): K models; each device joins s_i = argmax_k λ S_ik + (1 − λ)(−L_ik), S_ik
being the similarity of its gradient at model k with the last move Δw_k = w_k^t − w_k^{t−1} of that model.

Loss and gradient are those of one mini-batch Z_i of `batch` samples, with which the local step is then taken: `batch` and
`local_steps` are all there is to a device's round; `train.batch`, `train.epochs` and `train.steps` do not count. The local
solver computes the chosen model's gradient on Z_i once more (the same numbers), so that no K × S × d array is ever held.

Readings. No experiment in `experiments/` has been run with `"literal"` or `"sum"`:
- Similarity. Paper: cos(∇L, Δw), where Δw is called the average gradient. Here: cos(−∇L, Δw), as Δw points downhill and the
  printed one would send a device to the model that moves most against it; or −‖−lr ∇L − Δw‖. Option: `similarity = "literal"`,
  `"euclidean"`.
- Loss. Paper: the sum over the mini-batch (eq. 1). Here: its mean, so that λ and the step do not depend on the batch. The sum
  holds for the step, too, and adds a model's penalty once, which is no sample's. Option: `loss_reduction = "sum"`.
- First round. Paper: nothing. Here: there is no move yet, so S = 0 and the loss decides. Option: none.
- Model that nobody chose. Paper: eq. 2. Here: to the letter, Δw = 0. Option: none.
- Weights of the members. Paper: uniform (eq. 7). Here: the same. Option: `average`.
- Empty clusters. Paper: K random devices, one into each cluster, "per iteration". Here: in rounds in which a cluster is empty.
  Option: `reseed`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`methods/shared/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- Device without a cluster. Paper: all take part. Here: it is scored by the same rule, on a mini-batch that does not change from
  round to round. Option: none.

Communication per participant and round: K models down, and the K last moves where not everybody takes part in each round (else
devices know the broadcast before); one model up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.choose import (
    RESEED,
    SIMILARITIES,
    bounded,
    joint_choice,
    joint_cost,
    move_similarity,
    private_choice,
)
from cfljax.lazy import jax, jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, train_and_mix
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import CountedConfig, Number, allowed, count, extras_of, finder, setup_of, with_probe
from cfljax.methods.shared.choice import among, is_private, join, reseeded
from cfljax.methods.shared.common import first_models, traffic
from cfljax.methods.shared.config import TrainOptions
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Method, Model, Tree

PAPER = "Lin et al., “A joint gradient and loss based clustered federated learning design”"
BLOCK = 1 << 21, 1 << 26
"""Numbers of gradients that are held at a time on (a CPU, so that they stay in its cache; an accelerator, so that it is busy)."""


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of joint clustering."""

    averaged = ("models", "last")
    chooses_by_loss = True

    clusters: int | str = option(4, 'number of models, or "auto": found before the first round', low=1, choices=("auto",))
    similarity: str = option("descent", "of a gradient and a model's last move", choices=SIMILARITIES)
    loss_reduction: str = option("mean", "over the mini-batch; a sum makes the step larger, too", choices=("mean", "sum"))
    reseed: str = option("when_empty", "put random participants into the clusters", choices=RESEED)
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    local_steps: int = option(1, "mini-batch steps of a device per round (train.steps and train.epochs do not count)", low=1)
    batch: int = option(32, "samples of the mini-batch that a device chooses and steps on (train.batch does not count)", low=1)
    lam: float = option(0.2, "weight of the similarity; the loss has 1 − lam", low=0.0, high=1.0, traced=True)

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        if train.transit.choice is not None and self.similarity == "euclidean":
            why = "a distance has no bound that the choice could be private by; take a cosine"
            raise SpecError(f'train.privacy.choice with {where}.similarity = "euclidean": {why}')

    @property
    def repeats(self) -> float:
        """All K models go to each participant."""
        return float(self.models_kept)


class State(NamedTuple):
    """Models, their last moves, and who belongs to which."""

    models: Array
    """f32[K, d]."""
    last: Array
    """f32[K, d]: Δw_k."""
    labels: Array
    """i32[C]."""
    number: Number | None = None
    """The number of clusters, if it was found."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Joint: each client joins by the loss and by how its gradient points."""
    k, find = config.models_kept, finder(config, model, solver, "joint")
    trainer = solver.with_work(Work(None, config.local_steps, config.batch, summed=config.loss_reduction == "sum"))
    choose = chooser(config, model, solver)

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        return setup_of(find(key, federation, hyper))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        models = first_models(key, model, k)
        return State(models, jnp.zeros_like(models), jnp.full(federation.clients, -1, jnp.int32), setup.get("number"))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        number = count(state.number, k)
        participants, there = jnp.asarray(cohort.ids), jnp.asarray(cohort.mask)
        which = choose(key, state, federation, participants, there, hyper, is_private(hyper))
        which = reseeded(key, which, federation, cohort, k, config.reseed, number)
        mix = averages(trainer, federation, cohort, which, k, config.average, hyper)
        jobs = jobs_from(cohort, state.models, which)
        trained = train_and_mix(trainer, key, federation, jobs, hyper, Mixing(mix, state.models))  # eq. 5, 6
        last = trained.mixed.new - state.models  # eq. 2
        sent = with_probe(traffic(cohort, vectors_down=number), state.number, cohort)
        sent = sent._replace(vectors_down=sent.vectors_down + number * jnp.sum(missed(federation, cohort, hyper), dtype=jnp.int32))
        sent = with_lengths(sent, cohort, config.average)
        info = report_trained(federation, cohort, trained, which, last, sent)
        return State(trained.mixed.new, last, join(state.labels, cohort, which), state.number), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        without = (state.labels < 0) & federation.trains
        everyone = jnp.arange(federation.clients, dtype=jnp.int32)
        chosen = choose(keys.fold(keys.root(0), "score"), state, federation, everyone, without, hyper)
        return jnp.where(without, chosen, state.labels)

    def settle(before: State, after: State, federation: Federation, hyper: Hyper) -> State:
        return after._replace(last=after.models - before.models)

    models = lambda state: (state.models, state.labels)  # noqa: E731
    return Method(init, round, models, setup, score=score, extras=lambda state: extras_of(state.number), settle=settle)


class Choose(Protocol):
    """A function that says which cluster each client joins."""

    def __call__(
        self, key: Array, state: State, federation: Federation, clients: Array, mask: Array, hyper: Hyper, private: bool = False
    ) -> Array:
        """i32[S]: the cluster of each of these clients, block by block. `private`: by the exponential mechanism."""


def chooser(config: Config, model: Model, solver: Solver) -> Choose:
    """The choice by the loss and by how the gradient on one mini-batch points."""
    k, summed = config.models_kept, config.loss_reduction == "sum"

    def choose(
        key: Array, state: State, federation: Federation, clients: Array, mask: Array, hyper: Hyper, private: bool = False
    ) -> Array:
        moved, may = jnp.any(state.last != 0), allowed(state.number, k)

        def of_model(ids: Array, there: Array, start: Array, last: Array) -> tuple[Array, Array]:
            jobs = Jobs(ids, there, jnp.ones(ids.shape), start[None], jnp.zeros_like(ids))
            gradient, loss = solver.batch_gradient(key, federation, jobs, config.batch, summed)
            if summed:  # eq. 1
                loss *= jnp.minimum(jnp.asarray(federation.train.count)[ids], config.batch).astype(jnp.float32)
            similarity = move_similarity(gradient, last, config.similarity, hyper["lr"])  # eq. 3
            return loss, jnp.where(moved, similarity, 0.0)

        def block(part: tuple[Array, Array]) -> Array:
            judge = lambda pair: of_model(*part, *pair)  # noqa: E731
            losses, similarity = jax.lax.map(judge, (state.models, state.last))
            if private:
                return _drawn(key, losses, similarity, jnp.asarray(federation.uid)[part[0]], may, hyper)
            return joint_choice(among(may, losses), similarity, hyper["lam"])  # eq. 4

        return _by_blocks(block, clients, mask, max(1, BLOCK[not solver.sequential] // model.size))

    return choose


def _drawn(key: Array, losses: Array, similarity: Array, uid: Array, may: Array | None, hyper: Hyper) -> Array:
    """i32[n]: the choices by the exponential mechanism, of clients with the identities `uid` i32[n], among the models that `may` be
    chosen. `losses`, `similarity` f32[K, n]."""
    lam, clip = hyper["lam"], hyper["privacy.choice.clip"]
    costs = joint_cost(bounded(losses, clip), jnp.clip(similarity, -1.0, 1.0), lam)
    width = 2 * lam + (1 - lam) * clip
    return private_choice(key, among(may, costs), uid, hyper["privacy.choice.epsilon"], width)


def missed(federation: Federation, cohort: Cohort, hyper: Hyper) -> Array:
    """bool[S]: participants that do not know the last broadcast: all of them where not everybody takes part in each round, else
    those that come late, in their first."""
    drawn = cohort.ids.shape[0] < jnp.sum(federation.real)
    comes = (federation.arrive[cohort.ids] == cohort.round) & (cohort.round > 0)
    away = federation.devices is not None and federation.devices.there is not None
    return cohort.mask & (comes | drawn | ("dropout" in hyper) | ("clock.deadline_s" in hyper) | away)


def _by_blocks(block: Callable[[tuple[Array, Array]], Array], clients: Array, mask: Array, most: int) -> Array:
    """i32[S]: `block((clients, mask))` over blocks of at most `most` clients; one in which nobody is there costs nothing."""

    def some(part: tuple[Array, Array]) -> Array:
        return jax.lax.cond(jnp.any(part[1]), block, lambda part: jnp.zeros_like(part[0]), part)

    size = -(-clients.shape[0] // -(-clients.shape[0] // most))
    padding = -clients.shape[0] % size
    parts = (jnp.pad(clients, (0, padding)).reshape(-1, size), jnp.pad(mask, (0, padding)).reshape(-1, size))
    return jax.lax.map(some, parts).reshape(-1)[: clients.shape[0]]


joint = Entry(Config, make)
