"""`Soft`: the recipe of methods in which each client has a mixture of K models, all of which it
trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.local.averages import AVERAGES, averages, numbers_sent
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.local.stream import block_size, fold_blocks
from cfljax.registry.options import option
from cfljax.round.ask import Ask
from cfljax.round.common import first_models, need_clients
from cfljax.round.config import MethodConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Quantity, Tree

Of = Callable[[Array, Array, Array], Array]
"""(losses f32[K, B], labels i32[B], positions of the samples' clients in the list i32[B]) -> f32[K,
B], one for each sample."""


class MixtureState(NamedTuple):
    """The state of a method on `Soft` between two rounds: K models, and the clients' mixtures of
    them."""

    models: Array
    """f32[K, d]: the models."""
    mixture: Array
    """f32[C, K]: each row sums to one."""
    drawn: Array
    """bool[C]: has a mixture of its own."""
    memory: Tree = None
    """What else the method remembers."""


# E-steps for the mixture of a client that has not been drawn
NEWCOMER_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Soft(MethodConfig):
    """A mixture of K models for each client. Each participant finds the `share` of every model in
    each of its samples, and its mixture is their mean; then it trains every model, the losses of
    its samples multiplied by their shares. Each model becomes the mean of what the participants
    made of it. A client is scored by the mean of the models' probabilities, weighted by its
    mixture. A subclass is a method: its fields are the options, and it overrides the functions in
    which it differs.

    A client that has not been drawn yet gets its mixture by repeating this NEWCOMER_STEPS times on
    its training samples, from equal shares, with the models as they are.

    Shapes: C clients, S participants, K models, N samples of a client, M classes, d parameters.

    Example:
        ```python
        class Tempered(Soft):
            def share(self, log_mixture, losses, axis):
                return jax.nn.softmax((log_mixture - losses) / 2, axis=axis)
        ```
    """

    diagnostics = {
        "mixture": Quantity("share of each model in each client", "share"),
    }

    clusters: int = option(3, "number of models", low=1, search=(2, 3, 4, 6))
    average: str = option("samples", "weights of the participants", choices=AVERAGES)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.server_models = "models"
        cls.asynchronous_unsupported = "each participant sends updates of several models"
        cls.trains_once = False

    def share(self, log_mixture: Array, losses: Array, axis: int) -> Array:
        """Return the share of each model in each sample, in the shape of `losses`.

        Args:
            log_mixture: The logarithm of the client's mixture, which broadcasts with the losses.
            losses: The losses of the models on the samples, less what `of_label` adds.
            axis: The axis of models.
        """
        return jax.nn.softmax(log_mixture - losses, axis=axis)

    def of_label(self, state: MixtureState) -> Array | None:
        """Return f32[K, M]: what is added to the loss of a model on a sample with this label; None:
        nothing.

        Args:
            state: The state before the round.
        """
        return None

    def first_memory(self, federation: Federation) -> Tree:
        """Return what the method remembers before the first round.

        Args:
            federation: The clients' data.
        """
        return None

    def remember(
        self,
        state: MixtureState,
        solver: Solver,
        federation: Federation,
        cohort: Cohort,
        shares: Array,
    ) -> Tree:
        """Return what the method remembers after a round.

        Args:
            state: The state before the round.
            solver: The solver of the run.
            federation: The clients' data.
            cohort: The participants.
            shares: f32[S, K, N] the shares that they have found.
        """
        return state.memory

    def floats(self, classes: int) -> int:
        """Return how many numbers beside models each participant receives, and sends.

        Args:
            classes: M.
        """
        return 0

    def extras(self, state: MixtureState) -> dict[str, Array]:
        """Return arrays that are kept with the results, by name.

        Args:
            state: The state after the last round.
        """
        return {"mixture": state.mixture}

    @property
    def fixed_downloads(self) -> str:
        """Models may be changed on their way down."""
        return ""

    @property
    def no_feedback(self) -> str:
        """Say why `train.compress` cannot keep what it drops: residuals are of one model."""
        return "it sends an update of each model in a round"

    def releases(self, rounds: int) -> tuple[int, int]:
        """Return the numbers of noised sums of a run: one of each model in each round, as every
        participant is in the sums of all models.

        Args:
            rounds: How many rounds the run has.
        """
        return rounds * self.clusters, 0


def method_of(name: str, config: Soft, model: Model, solver: Solver) -> Method[MixtureState]:
    """Return the functions of the method of this name."""
    k = config.clusters

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        need_clients(federation, k, name)
        return {}

    def init(
        key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]
    ) -> MixtureState:
        return MixtureState(
            models=first_models(key, model, k),
            mixture=jnp.full((federation.clients, k), 1 / k),
            drawn=jnp.zeros(federation.clients, bool),
            memory=config.first_memory(federation),
        )

    def round(
        key: Array, state: MixtureState, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[MixtureState, Info]:
        ask = Ask(solver, key, federation, cohort, hyper)
        before = state.mixture[cohort.ids]
        losses = ask.sample_losses(state.models)
        more = config.of_label(state)
        if more is not None:
            of_samples = more[:, sample_labels(solver, federation, cohort)]
            losses = losses + jnp.swapaxes(of_samples, 0, 1)
        # f32[S, K, N], in the order of each client's samples
        q = config.share(jnp.log(before)[:, :, None], losses, 1)
        mixture = _mean_shares(federation, cohort, q, before)

        # A participant trains all K models: a job each, on its samples weighted by their shares
        each = cohort.repeat(k)
        which = jnp.tile(jnp.arange(k, dtype=jnp.int32), cohort.ids.shape[0])
        jobs = jobs_from(each, ask.download(state.models), which, weights=q.reshape(-1, q.shape[2]))
        mix = averages(solver, federation, each, which, k, config.average, hyper)
        trained = train_and_mix(solver, key, federation, jobs, hyper, Mixing(mix, state.models))

        numbers = config.floats(federation.classes)
        ask.download(numbers)
        ask.upload(each=k)
        ask.upload(numbers + numbers_sent(config.average))
        new = trained.mixed.new
        info = report_trained(federation, each, trained, which, new - state.models, ask.bill())
        after = MixtureState(
            models=new,
            mixture=cohort.write(state.mixture, mixture),
            drawn=cohort.write(state.drawn, True),
            memory=config.remember(state, solver, federation, cohort, q),
        )
        return after, info

    def mixture(state: MixtureState, federation: Federation, hyper: Hyper) -> Array:
        return _mixtures(config, solver, federation, state)

    def score(state: MixtureState, federation: Federation, hyper: Hyper) -> Array:
        return jnp.argmax(mixture(state, federation, hyper), axis=1).astype(jnp.int32)

    def models(state: MixtureState) -> tuple[Array, Array]:
        labels = jnp.where(state.drawn, jnp.argmax(state.mixture, axis=1), -1)
        return state.models, labels.astype(jnp.int32)

    return Method(
        init, round, models, setup=setup, score=score, mixture=mixture, extras=config.extras
    )


def _mean_shares(federation: Federation, cohort: Cohort, q: Array, before: Array) -> Array:
    """Return f32[S, K]: the participants' mixtures, the mean of the shares over their samples.

    Args:
      federation: The clients' data.
      cohort: The participants.
      q: f32[S, K, N] the shares of the models in each sample.
      before: f32[S, K] the mixtures so far, for participants whose shares are not finite.
    """
    count = federation.train.count[cohort.ids]
    total = jnp.where(in_lists(federation, cohort)[:, None, :], q, 0.0).sum(axis=2)
    mean = total / jnp.maximum(count, 1)[:, None]
    known = cohort.mask & (count > 0) & jnp.isfinite(mean).all(axis=1)
    return jnp.where(known[:, None], mean, before)


def _mixtures(config: Soft, solver: Solver, federation: Federation, state: MixtureState) -> Array:
    """Return f32[C, K]: the mixtures of all clients. Of clients that have not been drawn they are
    estimated, or without samples stay equal."""
    without = ~state.drawn & federation.trains
    more = config.of_label(state)
    equal = jnp.full_like(state.mixture, 1 / state.mixture.shape[1])

    def step(_: Array, now: Array) -> Array:
        prior = jnp.log(now).T

        def share(losses: Array, y: Array, owner: Array) -> Array:
            losses = losses if more is None else losses + more[:, y]
            return config.share(prior[:, owner], losses, 0)

        new = mean_over_samples(solver, federation, state.models, without, share)
        return jnp.where(jnp.isfinite(new).all(axis=1, keepdims=True), new, now)

    # Most evaluations find nobody without a mixture, and skip the steps
    steps = jnp.where(jnp.any(without), NEWCOMER_STEPS, 0)
    found = jax.lax.fori_loop(0, steps, step, equal)
    estimated = jnp.where(without[:, None], found, equal)
    return jnp.where(state.drawn[:, None], state.mixture, estimated)


def in_lists(federation: Federation, cohort: Cohort) -> Array:
    """Return bool[S, N]: which entries of arrays over the participants' samples are samples; N is
    the number of samples of the largest client."""
    return jnp.arange(federation.train.longest) < federation.train.count[cohort.ids][:, None]


def sample_labels(solver: Solver, federation: Federation, cohort: Cohort) -> Array:
    """Return i32[S, N]: the labels of the participants' samples as they see them, in the order of
    their samples; 0 beyond them."""
    # A job needs a model, but labels do not depend on it
    jobs = jobs_from(cohort, jnp.zeros((1, solver.model.size)), jnp.zeros_like(cohort.ids))
    return solver.of_samples(lambda batch, _: batch.y, federation, jobs)


def count_labels(solver: Solver, federation: Federation, cohort: Cohort | None = None) -> Array:
    """Count the training samples of each label that each participant has, f32[S, M], as it sees
    them now: a drift of labels changes that. Without a cohort all clients are counted, f32[C,
    M]."""
    if cohort is None:
        everyone = jnp.arange(federation.clients, dtype=jnp.int32)
        present = federation.train.count > 0
        cohort = Cohort(everyone, present, jnp.ones(federation.clients), jnp.int32(0))
    labels = sample_labels(solver, federation, cohort)
    number = cohort.ids.shape[0]
    counts = jnp.zeros((number, federation.classes))
    return counts.at[jnp.arange(number)[:, None], labels].add(in_lists(federation, cohort))


def mean_over_samples(
    solver: Solver, federation: Federation, models: Array, who: Array, of: Of
) -> Array:
    """Average values over the training samples of each client, f32[C, K]; 0 for clients that are
    left out. The time grows with their samples, and memory holds one block of samples.

    Args:
      solver: The model, and how it is computed on this machine.
      federation: The clients' data.
      models: f32[K, d] the models whose losses are computed.
      who: bool[C] the clients whose samples are seen.
      of: Computes the values from the losses.
    """
    split = federation.train
    model = solver.model
    clients = jnp.arange(federation.clients)
    most = federation.clients * split.longest
    block = block_size(model, federation, models.shape[0], most, solver.plan.on_cpu)
    params = jax.vmap(model.unravel)(models)

    def visit(total: Array, x: Array, y: Array, place: Array, valid: Array) -> Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[place].add(jnp.where(valid, of(losses, y, place), 0.0).T)

    nothing = jnp.zeros((federation.clients, models.shape[0]))
    total = fold_blocks(federation, split, clients, who, block, visit, nothing)
    return total / jnp.maximum(split.count, 1)[:, None]
