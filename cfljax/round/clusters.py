"""The round of all methods of the recipe `Clustered`."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from cfljax import keys
from cfljax.kernels.mix import Rule
from cfljax.lazy import jnp
from cfljax.local.averages import averages, numbers_sent
from cfljax.local.rates import at_round
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, Trained, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.models.flat import columns_of_statistics
from cfljax.round.ask import Ask, ask_all
from cfljax.round.before import Before, trainers
from cfljax.round.clustered import Clustered
from cfljax.round.common import join, need_groups
from cfljax.round.recluster import hand_on_models
from cfljax.round.similarity import train_and_compare
from cfljax.round.state import RoundResult, State
from cfljax.types import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    Method,
    Model,
    PreRound,
    Traffic,
    Tree,
)


class ClusteredMethod:
    """The functions of one method, from its options, a model and a solver."""

    def __init__(self, name: str, config: Clustered, model: Model, solver: Solver):
        self.name = name
        self.config = config
        self.model = model
        stepped = solver if type(config).step is Clustered.step else solver.with_step(config.step)
        if config.own_steps:
            stepped = stepped.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
        self.solver = stepped
        self.train_before = trainers(stepped)
        self.trainer = config.local.make_trainer(stepped, config.work(solver.work), config.step)
        self.weights = config.average

    def method(self) -> Method[State]:
        """Return the functions that the engine calls."""
        config = self.config
        kind = type(config)
        regroups = self.regroups
        adapts = kind.adapt is not Clustered.adapt
        remember = kind.remember_after_server_step
        follows_server = remember is not Clustered.remember_after_server_step
        return Method(
            self.init,
            self.round,
            models=self.models_of_each if adapts else self.models,
            setup=self.setup,
            regroup=self.regroup if regroups else None,
            regroup_after=self.regroup_after if regroups else None,
            score=None if config.has_fixed_labels else self.score,
            extras=self.extras,
            also=self.also if adapts or config.local.keeps_global_model else None,
            adapt=self.adapt if adapts else None,
            chooses=not (config.needs_groups or adapts),
            follow=self.follow if config.needs_groups else None,
            after_server_step=self.after_server_step if follows_server else None,
            newcomers_choose=config.choice.newcomers_choose,
        )

    @property
    def regroups(self) -> bool:
        """Return whether other clusters are made between rounds."""
        return self.config.again is not None or type(self.config).regroup is not Clustered.regroup

    def setup(self, key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        """HOST. Return what is made before the rounds: models and clusters of methods that begin
        with some."""
        config = self.config
        if config.needs_groups:
            need_groups(f'method "{self.name}"', federation)
        if config.begins:
            return self._begin(self._before(key, federation, hyper))
        config.choice.check_clients(self.name, federation, config.clusters)
        return {}

    def _before(
        self, key: Array, federation: Federation, hyper: Hyper, client_params: Array | None = None
    ) -> Before:
        return Before(
            self.name,
            self.config,
            self.model,
            self.solver,
            self.train_before,
            key,
            federation,
            hyper,
            client_params,
        )

    def _begin(self, ask: Before) -> dict[str, Tree]:
        """HOST. Return the fields of the state that `begin` makes, and what it has asked for."""
        begun = self.config.begin(ask)
        made = {name: each for name, each in begun._asdict().items() if each is not None}
        floats = begun.floats + (ask.compared or 0)
        return made | {"floats": np.array(floats, np.int32)} | ask.setup()

    def init(
        self, key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]
    ) -> State:
        """Return the state before the first round."""
        config = self.config
        if config.begins:
            return config.local.start(State(**setup))
        state = config.first_clusters.make(
            config.choice, config.models_kept, key, self.model, federation
        )
        # Clients that train for a later clustering are counted from 0
        count = jnp.int32(0) if self.regroups else None
        state = state._replace(pretrained_count=count)
        ask = ask_all(self.solver, key, federation, federation.trains, hyper, state.active)
        state = config.first(ask, config.local.start(state))
        trained = ask.pretrained_count
        if trained is None:
            return state
        return state._replace(pretrained_count=trained + (0 if count is None else count))

    def round(
        self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        """Do one round: let clients join that arrive, find who takes part, then train them."""
        config = self.config
        state, arrived = config.joining.arrive(state, federation, cohort.round)
        train = functools.partial(self._train, key, state, federation, hyper=hyper, arrived=arrived)
        return config.draw.do_round(train, key, state, federation, cohort, hyper)

    def _train(
        self,
        key: Array,
        state: State,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
        arrived: Array,
    ) -> tuple[State, Info]:
        """Do a round with this cohort.

        The method's functions follow each other, and each sees what those before it have made:
        `prepare`, the choice, the training, the merging, `after`, `remember`,
        `remember_after_server_step`, `compute_diagnostics`, then the bill, and last the parts of
        models that are shared.

        Args:
          key: The round's key.
          state: The state before the round.
          federation: The clients' data.
          cohort: The participants.
          hyper: The numbers of the run.
          arrived: i32[] how many clients have trained for the cluster that they got on their
            arrival in this round.
        """
        config = self.config
        hyper = config.numbers(hyper, state)
        ask = Ask(self.solver, key, federation, cohort, hyper, state.active)
        state = config.prepare(ask, state)
        which, done = config.choice.train(config, self, ask, state)
        which, done = config.merging.merge(self, ask, state, which, done)

        trained = done.trained
        models = self._after(trained.mixed.new, hyper, state)
        labels = state.labels if config.has_fixed_labels else join(state.labels, cohort, which)
        after = done.state._replace(models=models, labels=labels)

        kept = trained.kept
        result = RoundResult(
            which, kept.moves, kept.norm, kept.finite, done.moved, kept.loss, kept.home
        )
        after = after._replace(memory=config.remember(ask, state, after, result))
        # What depends on the models alone comes last, as it is asked for again after a server's
        # step
        after = after._replace(memory=config.remember_after_server_step(state, after))
        # `remember` and `compute_diagnostics` may have counted in the ask what was sent, so the
        # bill comes after them
        shown = ask.shown | config.compute_diagnostics(ask, state, after, result)
        sent, before = self._bill(ask, state, arrived)
        change = models - state.models
        trained = trained._replace(steps=trained.steps + ask.total("steps"))
        info = report_trained(federation, cohort, trained, which, change, sent, **shown)
        info = info._replace(before=before)
        # Billed by now
        after = after._replace(
            pretrained_count=_reset(state.pretrained_count),
            floats=_reset(state.floats),
            compared=_reset(state.compared),
        )
        return self.share(state, after, federation, cohort, result), info

    def _after(self, models: Array, hyper: Hyper, state: State) -> Array:
        """Return f32[K, d]: the models after the method's own `after`, from the average models.
        Running statistics of batches stay as they are averaged: they are no parameters that it
        could move, and in their place it sees zeros, so that they count in no distance."""
        config, model = self.config, self.model
        if type(config).after is Clustered.after or not model.statistics:
            return config.after(models, hyper, state)
        statistics = columns_of_statistics(model)
        return jnp.where(
            statistics, models, config.after(jnp.where(statistics, 0.0, models), hyper, state)
        )

    def share(
        self, before: State, after: State, federation: Federation, cohort: Cohort, done: RoundResult
    ) -> State:
        """Return the state after a round, in which models may be shared in part."""
        return after

    def average(self, solver: Solver, ask: Ask, which: Array, clusters: int) -> Array:
        """As `TrainingMethod.average`."""
        by = self.weights
        return averages(solver, ask.federation, ask.cohort, which, clusters, by, ask.hyper)

    def train(
        self,
        ask: Ask,
        state: State,
        which: Array,
        mix: Array,
        members: Array | None = None,
        rule: Rule | None = None,
        **start: Array,
    ) -> Trained:
        """As `TrainingMethod.train`."""
        config = self.config
        jobs = jobs_from(ask.cohort, ask.download(state.models), which, **start)
        mixing = Mixing(mix, state.models, members, state.velocity)
        if not (config.compares or config.merging.compares):
            return train_and_mix(
                self.trainer, ask.key, ask.federation, jobs, ask.hyper, mixing, rule=rule
            )
        how = config.similarity or "exact"
        trained, moves = train_and_compare(
            how, self.trainer, ask.key, ask.federation, jobs, ask.hyper, mixing, rule
        )
        # All devices have all of these updates
        return trained._replace(kept=trained.kept._replace(moves=moves), dealt=None)

    def _bill(self, ask: Ask, state: State, arrived: Array) -> tuple[Traffic, PreRound | None]:
        """Return the traffic of the round, and what of it was sent for the clustering since the
        last one; None: nothing. `arrived` as for `_train`."""
        config = self.config
        ask.upload(numbers_sent(config.average))
        sent = ask.bill()
        trained = config.joining.count_trained(arrived, state, ask.cohort)
        if state.pretrained_count is not None:
            trained = trained + state.pretrained_count
        if state.labels_if_joining is None and state.pretrained_count is None:
            return sent, None
        floats = jnp.int32(0) if state.floats is None else state.floats
        compared = jnp.int32(0) if state.compared is None else state.compared
        senders = trained
        if state.floats is not None:
            more = jnp.where(floats > 0, jnp.sum(ask.federation.trains, dtype=jnp.int32), 0)
            if state.compared is not None and state.pretrained_count is not None:
                # Those that have trained are counted already, and send the losses, too
                more = jnp.where(state.pretrained_count > 0, 0, more)
            senders = senders + more
        updates = trained
        if state.pretrained_numbers is not None:
            updates, floats = jnp.int32(0), floats + trained * state.pretrained_numbers
        before = Traffic(trained + compared, updates, jnp.int32(0), floats)
        return Traffic(*map(jnp.add, sent, before)), PreRound(before, senders)

    def regroup(
        self, key: Array, state: State, federation: Federation, hyper: Hyper, round: int
    ) -> State:
        """HOST. Make clusters again, by the method's own rule or as before round 0, with the
        clients that are there by now."""
        arrived = jnp.where(jnp.asarray(federation.arrive) <= round, 0, federation.arrive)
        now = dataclasses.replace(federation, arrive=arrived)
        numbers = at_round(hyper, jnp.int32(round))
        ask = self._before(key, now, numbers, state.client_params)
        if self.config.again is None:
            new = self.config.regroup(ask, state, round)
            if ask.numbers_sent is not None:
                raise ValueError(
                    f'method "{self.name}": regroup asks for a part of the updates; only begin can'
                )
            if ask.compared is not None:
                asked = jnp.int32(ask.compared)
                new = new._replace(compared=asked, floats=asked)
            return new._replace(pretrained_count=jnp.int32(ask.count_pretrained()))
        # Whole models, also of a subclass whose models are shared in part
        fresh = ClusteredMethod.init(self, key, now, numbers, self._begin(ask))
        before, after = (
            np.where(np.asarray(each.labels) >= 0, each.labels, np.asarray(each.labels_if_joining))
            for each in (state, fresh)
        )
        models = hand_on_models(np.asarray(state.models), before, np.asarray(fresh.models), after)
        return fresh._replace(models=jnp.asarray(models), global_model=state.global_model)

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the numbers of rounds after which `regroup` is called, in a run of `rounds`
        rounds."""
        every = self.config.again
        if every is None:
            return self.config.regroup_after(rounds)
        return tuple(range(every, rounds, every))

    def score(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """Return i32[C]: the cluster of each client, or the one that it would join."""
        choice = self.config.choice
        without = (state.labels < 0) & federation.real
        key = choice.scoring_key()
        ask = ask_all(
            self.solver, key, federation, without, hyper, state.active, state.client_params
        )
        return choice.label_all(self.config, ask, state)

    def models(self, state: State) -> tuple[Array, Array]:
        """Return the clusters' models, then the global one if there is one; and the labels."""
        if state.global_model is None:
            return state.models, state.labels
        return jnp.concatenate([state.models, state.global_model]), state.labels

    def models_of_each(self, state: State) -> tuple[Array, Array]:
        """Return the global model once for each client, and the clients."""
        clients = state.labels.shape[0]
        return jnp.tile(state.models, (clients, 1)), jnp.arange(clients, dtype=jnp.int32)

    def also(self, state: State) -> dict[str, tuple[Array, Array]]:
        """Return the global model, as another one that every client is scored by."""
        models = state.models if state.global_model is None else state.global_model
        return {"global": (models, jnp.zeros_like(state.labels))}

    def adapt(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """Return f32[C, d]: the model that each client is scored with."""
        has_samples = federation.train.count > 0
        ask = ask_all(self.solver, keys.root(0), federation, has_samples, hyper, None)
        return self.config.adapt(ask, state)

    def follow(self, state: State, federation: Federation) -> State:
        """Return the state whose clusters are the true groups of this round."""
        return state._replace(labels=jnp.asarray(federation.group))

    def after_server_step(
        self, before: State, after: State, federation: Federation, hyper: Hyper
    ) -> State:
        """Return what depends on the models, after a server's step."""
        return after._replace(memory=self.config.remember_after_server_step(before, after))

    def extras(self, state: State) -> dict[str, Array]:
        """Return what is kept with the results."""
        return self.config.extras(state)


def _reset(number: Array | None) -> Array | None:
    """Return 0 for a number that has been billed; None for None."""
    return None if number is None else jnp.zeros_like(number)
