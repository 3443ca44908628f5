"""The round of all methods of the recipe `Clustered`."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from cfljax import keys
from cfljax.federation import cohort as cohorts
from cfljax.kernels.choose import reseed_empty
from cfljax.kernels.mix import weights_by
from cfljax.lazy import jnp
from cfljax.local.averages import averages, numbers_sent
from cfljax.local.optimiser import decay_rate
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, Trained, choose_and_train, jobs_from, sizes, train_and_mix
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.models.flat import columns_of_statistics
from cfljax.round.ask import Ask, ask_all
from cfljax.round.before import Before, trainers
from cfljax.round.choice import is_private, join, need_clients, shares_of_all
from cfljax.round.clustered import Clustered
from cfljax.round.common import first_model, first_models, need_groups
from cfljax.round.recluster import average_in_new_clusters, hand_on_models
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
        work = config.work(solver.work)
        if config.aggregate == "gradient":
            # One step, on the first mini-batch or on all samples
            batch = work.batch if config.estimate == "batch" else None
            work = Work(epochs=None, steps=1, batch=batch, one_vector=True)
        self.solver = stepped
        self.train_before = trainers(stepped)
        self.trainer = stepped if work == solver.work else stepped.with_work(work)
        if config.trains_twice:
            self.trainer = self.trainer.with_step(
                lambda hyper: config.step(hyper)._replace(mu=config.pull(hyper))
            )

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
            also=self.also if adapts or config.trains_twice else None,
            adapt=self.adapt if adapts else None,
            chooses=not (config.true_groups or adapts),
            follow=self.follow if config.true_groups else None,
            after_server_step=self.after_server_step if follows_server else None,
            newcomers_choose=config.chooses and config.scores_on_server,
        )

    @property
    def regroups(self) -> bool:
        """Return whether other clusters are made between rounds."""
        return self.config.again is not None or type(self.config).regroup is not Clustered.regroup

    def setup(self, key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        """HOST. Return what is made before the rounds: models and clusters of methods that begin
        with some."""
        config = self.config
        if config.true_groups:
            need_groups(f'method "{self.name}"', federation)
        if config.begins:
            return self._begin(self._before(key, federation, hyper))
        if config.chooses:
            need_clients(federation, config.clusters, self.name)
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
            return State(**setup)
        clients = federation.clients
        active = None
        if config.true_groups:
            models = jnp.tile(first_model(key, self.model), (federation.groups, 1))
            labels = jnp.asarray(federation.group)
        elif config.splits or config.makes_models:
            # One cluster is in use; a method that splits has all clients in it that are there
            models = jnp.tile(first_model(key, self.model), (config.models_kept, 1))
            active = jnp.arange(config.models_kept) == 0
            is_in_first = config.splits & cohorts.present(federation, jnp.int32(0))
            labels = jnp.where(is_in_first, 0, -1).astype(jnp.int32)
        else:
            models = first_models(key, self.model, config.models_kept)
            labels = jnp.full(clients, -1 if config.chooses else 0, jnp.int32)
        # Clients that train for a later clustering are counted from 0
        count = jnp.int32(0) if self.regroups else None
        global_model = models[:1] if config.trains_twice else None
        ask = ask_all(self.solver, key, federation, federation.trains, hyper, active)
        state = State(
            models, labels, active=active, pretrained_count=count, global_model=global_model
        )
        state = config.first(ask, state)
        trained = ask.pretrained_count
        if trained is None:
            return state
        return state._replace(pretrained_count=trained + (0 if count is None else count))

    def round(
        self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        """Do one round: find who takes part, then train them."""
        config = self.config
        arrived = jnp.int32(0)
        if config.joins_on_arrival and state.labels_if_joining is not None:
            new = (state.labels < 0) & (federation.arrive <= cohort.round)
            if config.begins and config.newcomers_train:
                # They have trained for the cluster that they join, which is billed now
                arrived = jnp.sum(
                    new & federation.trains & (state.labels_if_joining >= 0), dtype=jnp.int32
                )
            state = state._replace(labels=jnp.where(new, state.labels_if_joining, state.labels))
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
        `prepare`, the training, `reassign`, `after`, `remember`, `remember_after_server_step`,
        `compute_diagnostics`, then the bill, and last the parts of models that are shared.

        Args:
          key: The round's key.
          state: The state before the round.
          federation: The clients' data.
          cohort: The participants.
          hyper: The numbers of the run.
          arrived: i32[] how many clients joined on their arrival in this round.
        """
        config = self.config
        hyper = config.numbers(hyper, state)
        ask = Ask(self.solver, key, federation, cohort, hyper, state.active)
        state = config.prepare(ask, state)
        # Both trainings begin with the global model as it was before the round
        global_model = whole = None
        if state.global_model is not None:
            global_model = ask.download(state.global_model)
            whole = self._train_global(ask, state.global_model, global_model)
        which, mix, trained = self._train_clusters(ask, state, global_model)
        if config.reassigns:
            which, mix, trained = average_in_new_clusters(
                config, self.trainer, ask, state, which, trained
            )

        models = self._after(trained.mixed.new, hyper, state)
        labels = state.labels if config.has_fixed_labels else join(state.labels, cohort, which)
        # Buffers are averaged as models are; `remember` may replace them
        memory = trained.velocity if config.buffers else state.memory
        after = state._replace(models=models, labels=labels, memory=memory)
        if whole is not None:
            # A participant with two updates is counted once
            broken = cohort.mask & ~(trained.kept.finite & whole.kept.finite)
            nonfinite = jnp.sum(broken, dtype=jnp.int32)
            trained = trained._replace(
                mixed=trained.mixed._replace(nonfinite=nonfinite),
                steps=trained.steps + whole.steps,
            )
            after = after._replace(global_model=whole.mixed.new)
        moved = (mix > 0).any(axis=1) & ~trained.mixed.lost
        if config.reassigns:
            # An unused cluster that participants were put into is in use from now on
            after = after._replace(active=state.active_mask | moved)

        kept = trained.kept
        done = RoundResult(which, kept.moves, kept.norm, kept.finite, moved, kept.loss, kept.home)
        after = after._replace(memory=config.remember(ask, state, after, done))
        # What depends on the models alone comes last, as it is asked for again after a server's
        # step
        after = after._replace(memory=config.remember_after_server_step(state, after))
        # `remember` and `compute_diagnostics` may have counted in the ask what was sent, so the
        # bill comes after them
        shown = ask.shown | config.compute_diagnostics(ask, state, after, done)
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
        return self.share(state, after, federation, cohort, done), info

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

    def _train_clusters(
        self, ask: Ask, state: State, global_model: Array | None
    ) -> tuple[Array, Array, Trained]:
        """Let the participants choose their clusters, and train them. Return the clusters i32[S],
        the mixing matrix f32[K, S], and the result. `global_model` f32[1, d]: as it has arrived;
        None: there is none."""
        config = self.config
        key = ask.key
        federation = ask.federation
        cohort = ask.cohort
        hyper = ask.hyper
        k = state.clusters

        def mix_of(which: Array) -> Array:
            if config.aggregate == "gradient":
                return shares_of_all(which, federation, cohort, k, config.average)
            return averages(self.trainer, federation, cohort, which, k, config.average, hyper)

        if self._at_once(ask):
            # The participants choose while they train: they receive all models, and compute the
            # losses there
            ask.download_all(state.models)
            jobs = jobs_from(cohort, ask.download(state.models), None)
            trained, which = choose_and_train(
                self.trainer, key, federation, jobs, hyper, mix_of, state.models
            )
            return which, mix_of(which), trained
        which = config.choose(ask, state)
        if config.chooses:
            uid = federation.uid[cohort.ids]
            which = reseed_empty(key, which, cohort.mask, k, uid, config.reseed, state.in_use)
        mix = mix_of(which)
        arrived = ask.download(state.models)
        jobs = jobs_from(cohort, arrived, which, **self._start_with(ask, state, global_model))
        mixing = Mixing(mix, state.models)
        if config.buffers:
            # Buffers are means over the members, whatever the weights of gradients are
            members = weights_by(which, cohort.mask, sizes(federation, cohort), k, config.average)
            mixing = Mixing(mix, state.models, members, state.memory)
        if config.compares:
            how = config.similarity or "exact"
            trained, moves = train_and_compare(
                how, self.trainer, key, federation, jobs, hyper, mixing
            )
            kept = trained.kept._replace(moves=moves)
            # All devices have all of these updates
            return which, mix, trained._replace(kept=kept, dealt=None)
        # The second of two trainings has the key of the first, the global model's, but its sum
        # needs noise of its own. A rule that is given a unit has it, and with 1 it is as strong
        rule = self.trainer.rule(key, hyper, 1.0) if config.trains_twice else None
        trained = train_and_mix(self.trainer, key, federation, jobs, hyper, mixing, rule=rule)
        return which, mix, trained

    def _start_with(self, ask: Ask, state: State, global_model: Array | None) -> dict[str, Array]:
        """Return what participants begin with besides their cluster's model, as fields of `Jobs`:
        the global model that theirs is pulled to, empty notes, or momentum buffers."""
        config, ids = self.config, ask.cohort.ids
        if global_model is not None:
            return {"anchor": global_model, "anchor_of": jnp.zeros_like(ids)}
        if config.notes:
            return {"home": jnp.full((ids.shape[0], config.notes), jnp.nan)}
        return {"velocity": ask.download(state.memory)} if config.buffers else {}

    def _train_global(self, ask: Ask, model: Array, arrived: Array) -> Trained:
        """Train the global model f32[1, d] with all participants, as if they were one cluster.
        `arrived` f32[1, d]: the model as they have received it."""
        federation = ask.federation
        cohort = ask.cohort
        hyper = ask.hyper
        everyone = jnp.zeros_like(cohort.ids)
        mix = averages(self.solver, federation, cohort, everyone, 1, self.config.average, hyper)
        jobs = jobs_from(cohort, arrived, everyone)
        mixing = Mixing(mix, model)
        return train_and_mix(self.solver, ask.key, federation, jobs, hyper, mixing)

    def _at_once(self, ask: Ask) -> bool:
        """Return whether participants choose by their losses while they train, which is faster (see
        `Solver.chooses`). Only plain losses, with nothing between the choice and the training."""
        config = self.config
        by_plain_loss = (
            config.chooses_by_loss
            and type(config).score is Clustered.score
            and config.estimate == "full"
            and config.reseed == "never"
            and ask.active is None
            and not is_private(ask.hyper)
        )
        trains_plainly = config.aggregate == "model" and not config.buffers
        return by_plain_loss and trains_plainly and self.solver.chooses(ask.federation)

    def _bill(self, ask: Ask, state: State, arrived: Array) -> tuple[Traffic, PreRound | None]:
        """Return the traffic of the round, and what of it was sent for the clustering since the
        last one; None: nothing. `arrived` i32[]: how many clients joined on their arrival, for
        which they have trained."""
        config, cohort = self.config, ask.cohort
        # Of a gradient the server makes the buffer itself
        sends_two = config.trains_twice or (config.buffers and config.aggregate == "model")
        ask.upload(each=2 if sends_two else 1)
        ask.upload(numbers_sent(config.average))
        sent = ask.bill()
        trained = arrived
        if (
            state.labels_if_joining is not None
            and config.newcomers_train
            and not config.joins_on_arrival
        ):
            joins = cohort.mask & (state.labels[cohort.ids] < 0)
            trained = trained + jnp.sum(joins, dtype=jnp.int32)
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
        numbers = decay_rate(hyper, jnp.int32(round))
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
        return fresh._replace(models=jnp.asarray(models))

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the numbers of rounds after which `regroup` is called, in a run of `rounds`
        rounds."""
        every = self.config.again
        if every is None:
            return self.config.regroup_after(rounds)
        return tuple(range(every, rounds, every))

    def score(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """Return i32[C]: the cluster of each client, or the one that it would join."""
        without = (state.labels < 0) & federation.real
        # A method that chooses scores participants by the round's key; here there is no round
        key = keys.fold(keys.root(0), "score") if self.config.chooses else keys.root(0)
        ask = ask_all(
            self.solver, key, federation, without, hyper, state.active, state.client_params
        )
        if self.config.chooses:
            return jnp.where(without, ask.least(self.config.score(ask, state)), state.labels)
        found = jnp.where(state.labels >= 0, state.labels, self.config.join(ask, state))
        # One that joins nowhere has the global model, which comes after the clusters', or the first
        return jnp.where(found >= 0, found, state.clusters if self.config.trains_twice else 0)

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
