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
from cfljax.local.averages import add_lengths, averages
from cfljax.local.meter import branch, count_pre_round_traffic
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
from cfljax.round.recluster import handed_on, reassigned
from cfljax.round.similarity import train_and_compare
from cfljax.round.state import Done, State
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Traffic, Tree


class ClusteredMethod:
    """The functions of one method, from its options, a model and a solver."""

    def __init__(self, name: str, config: Clustered, model: Model, solver: Solver):
        self.name, self.config, self.model = name, config, model
        stepped = solver if type(config).step is Clustered.step else solver.with_step(config.step)
        if config.own_steps:
            stepped = stepped.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
        work = config.work(solver.work)
        if config.aggregate == "gradient":
            work = Work(
                None, 1, work.batch if config.estimate == "batch" else None, one_vector=True
            )
        self.solver, self.train_before = stepped, trainers(stepped)
        self.trainer = stepped if work == solver.work else stepped.with_work(work)
        if config.trains_twice:
            self.trainer = self.trainer.with_step(
                lambda hyper: config.step(hyper)._replace(mu=config.pull(hyper))
            )

    def method(self) -> Method[State]:
        """Return the functions."""
        config, kind, regroups = self.config, type(self.config), self.regroups
        adapts = kind.adapt is not Clustered.adapt
        return Method(
            self.init,
            self.round,
            models=self.models_of_each if adapts else self.models,
            setup=self.setup,
            regroup=self.regroup if regroups else None,
            regroup_after=self.regroup_after if regroups else None,
            score=None if config.single else self.score,
            extras=self.extras,
            also=self.also if adapts or config.trains_twice else None,
            adapt=self.adapt if adapts else None,
            chooses=not (config.true_groups or adapts),
            follow=self.follow if config.true_groups else None,
            settle=None if kind.settle is Clustered.settle else self.settle,
            newcomers_choose=config.chooses and config.scores_on_server,
        )

    @property
    def regroups(self) -> bool:
        """Whether other clusters are made between rounds."""
        return self.config.again is not None or type(self.config).regroup is not Clustered.regroup

    def setup(self, key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        """HOST. What is made before the rounds."""
        config = self.config
        if config.true_groups:
            need_groups(f'method "{self.name}"', federation)
        if config.begins:
            return self._begun(self._before(key, federation, hyper))
        if config.chooses:
            need_clients(federation, config.clusters, self.name)
        return {}

    def _before(
        self, key: Array, federation: Federation, hyper: Hyper, own: Array | None = None
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
            own,
        )

    def _begun(self, ask: Before) -> dict[str, Tree]:
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
        none = jnp.full(federation.clients, -1 if config.chooses else 0, jnp.int32)
        active = None
        if config.true_groups:
            models, none = (
                jnp.tile(first_model(key, self.model), (federation.groups, 1)),
                jnp.asarray(federation.group),
            )
        elif config.splits or config.makes_models:
            models = jnp.tile(first_model(key, self.model), (config.models_kept, 1))
            active = jnp.arange(config.models_kept) == 0
            none = jnp.where(
                config.splits & cohorts.present(federation, jnp.int32(0)), 0, -1
            ).astype(jnp.int32)
        else:
            models = first_models(key, self.model, config.models_kept)
        asked = jnp.int32(0) if self.regroups else None
        ask = ask_all(self.solver, key, federation, federation.trains, hyper, active)
        whole = models[:1] if config.trains_twice else None
        state = config.first(ask, State(models, none, active=active, asked=asked, whole=whole))
        trained = ask.counts.asked
        if trained is None:
            return state
        return state._replace(asked=trained + (0 if asked is None else asked))

    def round(
        self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        """Run one round: find who takes part, then train them."""
        config = self.config
        arrived = jnp.int32(0)
        if config.joins_on_arrival and state.guess is not None:
            new = (state.labels < 0) & (federation.arrive <= cohort.round)
            if config.begins:
                arrived = jnp.sum(new & federation.trains & (state.guess >= 0), dtype=jnp.int32)
            state = state._replace(labels=jnp.where(new, state.guess, state.labels))
        if config.clients_per_cluster is not None:
            number, most = state.clusters, config.clients_per_cluster
            cohort = cohorts.draw_inside(key, federation, state.labels, number, most, cohort, hyper)
        train = functools.partial(
            self._trained, key, state, federation, hyper=hyper, arrived=arrived
        )
        if config.warmup_rounds == 0 or cohort.ids.shape[0] == federation.clients:
            return train(cohort)
        everyone, t = jnp.arange(federation.clients, dtype=jnp.int32), cohort.round
        full = cohorts.gather(
            key, federation, everyone, cohorts.present(federation, t), t, hyper, cohort.kept
        )
        return branch(t < config.warmup_rounds, lambda: train(full), lambda: train(cohort))

    def _trained(
        self,
        key: Array,
        state: State,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
        arrived: Array,
    ) -> tuple[State, Info]:
        config = self.config
        ask = Ask(self.solver, key, federation, cohort, hyper, state.active)
        state = config.prepare(ask, state)
        whole = self._train_whole(ask, state) if config.trains_twice else None
        which, mix, trained = self._train(ask, state)
        if config.reassigns:
            which, mix, trained = reassigned(config, self.trainer, ask, state, which, trained)
        models = self._after(trained.mixed.new, hyper, state)
        memory = trained.velocity if config.buffers else state.memory
        labels = state.labels if config.single else join(state.labels, cohort, which)
        after = state._replace(models=models, labels=labels, memory=memory)
        if whole is not None:
            either = cohort.mask & ~(trained.kept.finite & whole.kept.finite)
            trained = trained._replace(
                mixed=trained.mixed._replace(nonfinite=jnp.sum(either, dtype=jnp.int32))
            )
            after = after._replace(whole=whole.mixed.new)
        moved = (mix > 0).any(axis=1) & ~trained.mixed.lost
        if config.reassigns:
            after = after._replace(active=state.there | moved)
        done = Done(
            which,
            trained.kept.moves,
            trained.kept.norm,
            trained.kept.finite,
            moved,
            trained.kept.home,
        )
        after = after._replace(memory=config.remember(ask, state, after, done))
        after = after._replace(memory=config.settle(state, after))
        shown = ask.diag | config.shows(ask, state, after, done)
        info = report_trained(
            federation,
            cohort,
            trained,
            which,
            models - state.models,
            self._bill(ask, state, arrived),
            **shown,
        )
        nothing = lambda number: None if number is None else jnp.zeros_like(number)  # noqa: E731
        after = after._replace(
            asked=nothing(state.asked),
            floats=nothing(state.floats),
            compared=nothing(state.compared),
        )
        return self.share(state, after, federation, cohort, done), info

    def _after(self, models: Array, hyper: Hyper, state: State) -> Array:
        """f32[K, d]: the models after the method's own `after`, from the average models. Running
        statistics of batches stay as they are averaged: they are no parameters that it could move,
        and in their place it sees zeros, so that they count in no distance."""
        config, model = self.config, self.model
        if type(config).after is Clustered.after or not model.statistics:
            return config.after(models, hyper, state)
        statistics = columns_of_statistics(model)
        return jnp.where(
            statistics, models, config.after(jnp.where(statistics, 0.0, models), hyper, state)
        )

    def share(
        self, before: State, after: State, federation: Federation, cohort: Cohort, done: Done
    ) -> State:
        """Return the state after a round, in which models may be shared in part."""
        return after

    def _train(self, ask: Ask, state: State) -> tuple[Array, Array, Trained]:
        """Return the participants' clusters i32[S], the mixing matrix f32[K, S], and what training
        has made."""
        config, key, federation, cohort, hyper = (
            self.config,
            ask.key,
            ask.federation,
            ask.cohort,
            ask.hyper,
        )
        k = state.clusters

        def mix_of(which: Array) -> Array:
            if config.aggregate == "gradient":
                return shares_of_all(which, federation, cohort, k, config.average)
            return averages(self.trainer, federation, cohort, which, k, config.average, hyper)

        if self._at_once(ask):
            # The participants choose while they train: only its bill is used
            ask.losses(state.models)
            jobs = jobs_from(cohort, state.models, None)
            trained, which = choose_and_train(
                self.trainer, key, federation, jobs, hyper, mix_of, state.models
            )
            return which, mix_of(which), trained
        which = config.choose(ask, state)
        if config.chooses:
            which = reseed_empty(
                key, which, cohort.mask, k, federation.uid[cohort.ids], config.reseed, state.in_use
            )
        beside: dict[str, Array] = {"velocity": state.memory} if config.buffers else {}
        if config.notes:
            beside = {"home": jnp.full((cohort.ids.shape[0], config.notes), jnp.nan)}
        if state.whole is not None:
            beside = {"anchor": state.whole, "anchor_of": jnp.zeros_like(cohort.ids)}
        # noise of its own: the batches are the global model's, but the sum is another one
        rule = self.trainer.rule(key, hyper, 1.0) if config.trains_twice else None
        mix, jobs = mix_of(which), jobs_from(cohort, state.models, which, **beside)
        mixing = Mixing(mix, state.models)
        if config.buffers:
            members = weights_by(which, cohort.mask, sizes(federation, cohort), k, config.average)
            mixing = Mixing(mix, state.models, members, state.memory)
        if not config.compares:
            return (
                which,
                mix,
                train_and_mix(self.trainer, key, federation, jobs, hyper, mixing, rule=rule),
            )
        trained, moves = train_and_compare(
            config.similarity or "exact", self.trainer, key, federation, jobs, hyper, mixing
        )
        return which, mix, trained._replace(kept=trained.kept._replace(moves=moves), dealt=None)

    def _train_whole(self, ask: Ask, state: State) -> Trained:
        federation, cohort, whole, everyone = (
            ask.federation,
            ask.cohort,
            state.whole,
            jnp.zeros_like(ask.cohort.ids),
        )
        assert whole is not None
        mix = averages(self.solver, federation, cohort, everyone, 1, self.config.average, ask.hyper)
        return train_and_mix(
            self.solver,
            ask.key,
            federation,
            jobs_from(cohort, whole, everyone),
            ask.hyper,
            Mixing(mix, whole),
        )

    def _at_once(self, ask: Ask) -> bool:
        """Whether participants choose by their losses while they train, which is faster (see
        `Solver.chooses`)."""
        config = self.config
        plain = (
            config.chooses_by_loss
            and type(config).score is Clustered.score
            and config.estimate == "full"
        )
        plain = (
            plain
            and config.aggregate == "model"
            and config.reseed == "never"
            and ask.active is None
            and not config.buffers
        )
        return plain and self.solver.chooses(ask.federation) and not is_private(ask.hyper)

    def _bill(self, ask: Ask, state: State, arrived: Array) -> Traffic:
        """Return the traffic of the round, and what was sent for the clustering since the last
        one."""
        config, cohort = self.config, ask.cohort
        if config.buffers or config.trains_twice:
            ask.send(1)
        sent = ask.bill(
            2 if config.trains_twice or (config.buffers and config.aggregate == "model") else 1
        )
        sent = add_lengths(sent, cohort, config.average)
        beside = arrived
        if state.guess is not None and config.newcomers_train and not config.joins_on_arrival:
            beside = beside + jnp.sum(cohort.mask & (state.labels[cohort.ids] < 0), dtype=jnp.int32)
        if state.asked is not None:
            beside = beside + state.asked
        if state.guess is None and state.asked is None:
            return sent
        floats = jnp.int32(0) if state.floats is None else state.floats
        compared = jnp.int32(0) if state.compared is None else state.compared
        count_pre_round_traffic(beside)
        if state.floats is not None:
            senders = jnp.where(floats > 0, jnp.sum(ask.federation.trains, dtype=jnp.int32), 0)
            if state.compared is not None and state.asked is not None:
                # who has trained is counted, and sends the losses, too
                senders = jnp.where(state.asked > 0, 0, senders)
            count_pre_round_traffic(senders, vectors=0, models_down=compared, floats_up=floats)
        return sent._replace(
            vectors_down=sent.vectors_down + beside + compared,
            vectors_up=sent.vectors_up + beside,
            floats_up=sent.floats_up + floats,
        )

    def regroup(
        self, key: Array, state: State, federation: Federation, hyper: Hyper, round: int
    ) -> State:
        """HOST. Clusters are made again, by the method's own rule or as before round 0, by those
        who are there by now."""
        arrived = jnp.where(jnp.asarray(federation.arrive) <= round, 0, federation.arrive)
        now, numbers = (
            dataclasses.replace(federation, arrive=arrived),
            decay_rate(hyper, jnp.int32(round)),
        )
        ask = self._before(key, now, numbers, state.own)
        if self.config.again is None:
            new = self.config.regroup(ask, state, round)
            if ask.compared is not None:
                asked = jnp.int32(ask.compared)
                new = new._replace(compared=asked, floats=asked)
            return new._replace(asked=jnp.int32(ask.asked_now()))
        # Whole models
        fresh = ClusteredMethod.init(self, key, now, numbers, self._begun(ask))
        before, after = (
            np.where(np.asarray(each.labels) >= 0, each.labels, np.asarray(each.guess))
            for each in (state, fresh)
        )
        models = handed_on(np.asarray(state.models), before, np.asarray(fresh.models), after)
        return fresh._replace(models=jnp.asarray(models))

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """After which rounds."""
        every = self.config.again
        return (
            self.config.regroup_after(rounds)
            if every is None
            else tuple(range(every, rounds, every))
        )

    def score(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """i32[C]: the cluster of each client, or the one that it would join."""
        without = (state.labels < 0) & federation.real
        key = keys.fold(keys.root(0), "score") if self.config.chooses else keys.root(0)
        ask = ask_all(self.solver, key, federation, without, hyper, state.active, state.own)
        if self.config.chooses:
            return jnp.where(without, ask.least(self.config.score(ask, state)), state.labels)
        found = jnp.where(state.labels >= 0, state.labels, self.config.join(ask, state))
        return jnp.where(found >= 0, found, state.clusters if self.config.trains_twice else 0)

    def models(self, state: State) -> tuple[Array, Array]:
        """Return the clusters' models, and the global one if there is one."""
        return state.models if state.whole is None else jnp.concatenate(
            [state.models, state.whole]
        ), state.labels

    def models_of_each(self, state: State) -> tuple[Array, Array]:
        """Return the global model, for each client."""
        clients = state.labels.shape[0]
        return jnp.tile(state.models, (clients, 1)), jnp.arange(clients, dtype=jnp.int32)

    def also(self, state: State) -> dict[str, tuple[Array, Array]]:
        """Every client scored by the global model."""
        return {
            "global": (
                state.models if state.whole is None else state.whole,
                jnp.zeros_like(state.labels),
            )
        }

    def adapt(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """Return the models that clients are scored with."""
        return self.config.adapt(
            ask_all(self.solver, keys.root(0), federation, federation.train.count > 0, hyper, None),
            state,
        )

    def follow(self, state: State, federation: Federation) -> State:
        """Return the state whose clusters are the true groups of this round."""
        return state._replace(labels=jnp.asarray(federation.group))

    def settle(self, before: State, after: State, federation: Federation, hyper: Hyper) -> State:
        """Return what depends on the models, after a server's step."""
        return after._replace(memory=self.config.settle(before, after))

    def extras(self, state: State) -> dict[str, Array]:
        """Return what is kept with the results."""
        return self.config.kept(state)
