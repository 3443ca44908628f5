"""The local solver: what each participant does between receiving a model and sending its update.

One signature, `fit(key, federation, jobs, hyper) -> Updates`, whatever the execution plan. Each client runs its own number
of steps on its own samples: the result is that of the client trained alone.

To add a way of training a client: a function (task, course, orders) -> Updates, which `make_solver` lists as a `Way` for clients up
to some size (as `train_on_gram` and `train` are), and what it costs in `speed`. How many clients are trained at a time, and where,
is `spread`'s alone. What a plan may choose is a field of `Plan`; `execution` chooses it, and says why.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.devices.spread import devices, spread
from cfljax.kernels.mix import Rule
from cfljax.local.data import RUNGS, shuffle, take
from cfljax.local.gradients import batch_gradient, full_gradient, whole_batch
from cfljax.local.gram import Among, among, first_layer, train_on_gram
from cfljax.local.optimiser import StepRule, from_optax, sgd
from cfljax.local.schedule import Course, Orders, Task, Work, course_of, orders_of, train_steps
from cfljax.local.send import Sending, arrived, rule, touched
from cfljax.local.sizes import gram_sizes
from cfljax.local.speed import expected, layer_of, made
from cfljax.local.train import train
from cfljax.local.turned import turned
from cfljax.types import Federation, Grams, Hyper, Jobs, Model, Plan, Updates

__all__ = ["Plan", "Solver", "Work", "make_solver"]


class Solver(NamedTuple):
    """The local computations that methods are made of."""

    fit: Callable[..., Updates]
    """(key, federation, jobs, hyper, work=None) -> Updates as they arrive at the server: after `train.privacy`, `compress` and
    `attack`; `work` overrides the run's own amount of training."""
    train: Callable[..., Updates]
    """The same, of models that do not leave the client."""
    gradient: Callable[..., tuple[jax.Array, jax.Array]]
    """(federation, jobs) -> (f32[S, d], f32[S]): gradient of the mean loss on all local data at the start, and that loss."""
    batch_gradient: Callable[..., tuple[jax.Array, jax.Array]]
    """(key, federation, jobs, batch, summed=False) -> the same on the first mini-batch that `fit` would take with this key;
    `summed`: the gradient of its summed loss."""
    send: Callable[..., jax.Array]
    """(key, federation, jobs, rows f32[S, d], hyper, unit=1.0) -> f32[S, d]: what arrives of other things that participants send;
    `unit`: what a number of them is worth in those of an update (a gradient: the learning rate)."""
    rule: Callable[..., Rule]
    """(key of the round, hyper, unit=None) -> how the server adds up what arrives: for `mix_updates` and its like."""
    costs: Callable[..., jax.Array]
    """(federation, jobs, work=None) -> f32[S]: how long `fit` takes for each job, roughly, in any unit: to deal them to several
    devices."""
    chooses: Callable[[Federation], bool]
    """Whether `fit` is at its best where participants pick their own start (`Jobs.which` None): on Gram matrices, all of them."""
    work: Work
    plan: Plan

    @property
    def sequential(self) -> bool:
        """Clients one after another, or side by side."""
        return self.plan.sequential


def make_solver(
    model: Model,
    work: Work,
    optimizer: str = "sgd",
    arguments: tuple[tuple[str, Any], ...] = (),
    plan: Plan = Plan(),  # noqa: B008 (immutable)
    sending: Sending = Sending(),  # noqa: B008 (immutable)
) -> Solver:
    """The solver for a model; everything here is static."""
    sequential, plain_sgd = plan.sequential, optimizer == "sgd" and not arguments
    form = GramForm(model, plan, plain_sgd and first_layer(model) is not None)
    by_steps = turned(model) if sequential and form.exact else model

    def step_rule(hyper: Hyper) -> StepRule:
        return sgd(hyper) if plain_sgd else from_optax(optimizer, dict(arguments), hyper)

    def at_home(key: jax.Array, federation: Federation, jobs: Jobs, hyper: Hyper, work: Work = work) -> Updates:
        return _each(trainer(federation, hyper, work), key, federation, jobs, plan, costs(federation, jobs, work))

    def fit(key: jax.Array, federation: Federation, jobs: Jobs, hyper: Hyper, work: Work = work) -> Updates:
        one = trainer(federation, hyper, work, among(model, jobs.start) if jobs.which is None else None)
        sent = lambda task: _sent(sending, federation, task, one(task), hyper, work.one_vector)  # noqa: E731
        return _each(sent if touched(sending, hyper) else one, key, federation, jobs, plan, costs(federation, jobs, work))

    def costs(federation: Federation, jobs: Jobs, work: Work = work) -> jax.Array:
        return form.costs(federation, jobs, work)

    def chooses(federation: Federation) -> bool:
        sizes, alike = form.sizes(federation, work), federation.owner is None and not sending.robust
        return sequential and alike and not plan.stream and bool(sizes) and sizes[-1] >= federation.train.longest

    def trainer(federation: Federation, hyper: Hyper, work: Work, choice: Among | None = None) -> Callable[[Task], Updates]:
        sizes, grams = form.sizes(federation, work), form.kept(federation, work)

        def plain(task: Task, course: Course, orders: Orders | None) -> Updates:
            return train(by_steps, federation, task, course, orders, step_rule(hyper), hyper)

        def on_gram(size: int) -> Way:
            def way(task: Task, course: Course, orders: Orders | None) -> Updates:
                return train_on_gram(model, federation, task, course, orders, hyper, size, sequential, grams, choice)

            return Way(size, (), way)

        def nothing(task: Task, _: Course) -> Updates:
            none = (jnp.zeros(model.size), jnp.float32(0), jnp.int32(0))
            return Updates(*none, task.velocity, None if choice is None else jnp.int32(0))

        ways = [on_gram(size) for size in sizes] + _step_by_step(plain, (0, *sizes)[-1], federation.train.longest, sequential)
        return _by_size(ways, nothing, federation, work, sequential)

    send, adding = _sender(plan, sending), functools.partial(rule, sending)
    return Solver(fit, at_home, *_gradients(model, plan), send, adding, costs, chooses, work, plan)


class GramForm(NamedTuple):
    """Which clients are trained on their Gram matrix."""

    model: Model
    plan: Plan
    exact: bool
    """Whether any may be."""

    def sizes(self, federation: Federation, work: Work) -> tuple[int, ...]:
        """Those of the matrices."""
        return gram_sizes(self.plan, federation.train.longest, work.batch) if self.exact else ()

    def kept(self, federation: Federation, work: Work) -> Grams | None:
        """The matrices, where they have been made beforehand."""
        grams = federation.train.grams if self.plan.sequential else None
        return grams if grams is not None and grams.sizes == self.sizes(federation, work) else None

    def costs(self, federation: Federation, jobs: Jobs, work: Work) -> jax.Array:
        """`Solver.costs`."""
        layer = layer_of(self.model) if self.exact and self.plan.sequential and devices() > 1 else None
        if layer is None:
            return samples_of(federation, jobs)
        samples, steps = federation.train.count[jobs.client], train_steps(federation, jobs, work)
        how = made(True, self.kept(federation, work) is not None)
        return expected(layer, work, samples, steps, self.sizes(federation, work), how)


class Way(NamedTuple):
    """A way of training a client."""

    size: int
    """Of the largest client that it is for."""
    rungs: tuple[int, ...]
    """How many samples it shuffles at a time, besides `size`."""
    train: Callable[[Task, Course, Orders | None], Updates]


def _step_by_step(train: Callable[..., Updates], done: int, longest: int, sequential: bool) -> list[Way]:
    """For clients of more than `done` samples: one way, or two where small clients would fill up shuffles as long as those of much
    larger ones."""
    short = (keys.SHORT,) if sequential and done < keys.SHORT and longest > 4 * keys.SHORT else ()
    limits = (done, *short, longest) if done < longest else ()
    return [Way(size, tuple(rung for rung in RUNGS if rung > less), train) for less, size in itertools.pairwise(limits)]


def _by_size(
    ways: list[Way], nothing: Callable[..., Updates], federation: Federation, work: Work, sequential: bool
) -> Callable[[Task], Updates]:
    """Each client's training, by the way for its size: the ways are of rising size."""
    limits = [way.size for way in ways]

    def along(way: Way) -> Callable[[Task, Course], Updates]:
        return lambda task, course: way.train(
            task, course, orders_of(federation, task, course, work, sequential, way.size, way.rungs)
        )

    def one(task: Task) -> Updates:
        course = course_of(federation, task, work)
        if len(ways) == 1 and not sequential:
            return along(ways[0])(task, course)
        way = 1 + sum((course.samples > size).astype(jnp.int32) for size in limits[:-1])
        return jax.lax.switch(jnp.where(course.total > 0, way, 0), [nothing, *map(along, ways)], task, course)

    return one


def _gradients(model: Model, plan: Plan) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`Solver.gradient` and `Solver.batch_gradient`."""

    def gradient(federation: Federation, jobs: Jobs) -> tuple[jax.Array, jax.Array]:
        def one(task: Task) -> tuple[jax.Array, jax.Array]:
            whole = whole_batch(federation, task.client)
            loss, _, grads = full_gradient(model, federation, task.client, model.unravel(task.start), whole)
            return jnp.where(task.mask, model.ravel(grads), 0.0), jnp.where(task.mask, loss, 0.0)

        return _each(one, keys.root(0), federation, jobs, plan, samples_of(federation, jobs))

    def first_batch_gradient(
        key: jax.Array, federation: Federation, jobs: Jobs, batch: int, summed: bool = False
    ) -> tuple[jax.Array, jax.Array]:
        def one(task: Task) -> tuple[jax.Array, jax.Array]:
            size, count = min(batch, federation.train.longest), federation.train.count[task.client]
            order = shuffle(keys.fold(task.key, "epoch", 0), count, federation.train.longest, size, plan.sequential)[:size]
            mask = jnp.arange(size) < count
            samples = (*take(federation, federation.train, task.client, order, mask), mask)
            params, step = model.unravel(task.start), keys.fold(task.key, "step", 0)
            loss, _, grads = batch_gradient(model, params, samples, step, summed=summed)
            return jnp.where(task.mask, model.ravel(grads), 0.0), jnp.where(task.mask, loss, 0.0)

        return _each(one, key, federation, jobs, plan, samples_of(federation, jobs))

    return gradient, first_batch_gradient


def _sender(plan: Plan, sending: Sending) -> Callable[..., jax.Array]:
    """`Solver.send`."""

    def send(
        key: jax.Array, federation: Federation, jobs: Jobs, rows: jax.Array, hyper: Hyper, unit: jax.Array | float = 1.0
    ) -> jax.Array:
        if not touched(sending, hyper):
            return rows
        uid = federation.uid[jobs.client]
        one = lambda of: arrived(sending, hyper, of[0], of[1], of[2], unit)  # noqa: E731
        each = (keys.fold_each(key, "client", uid), uid, rows)
        return jax.lax.map(one, each) if plan.sequential else jax.vmap(one)(each)

    return send


def _sent(sending: Sending, federation: Federation, task: Task, updates: Updates, hyper: Hyper, one_vector: bool) -> Updates:
    """What arrives of one participant's update, and of the change of its momentum buffer, which is worth `lr` times as much.
    `one_vector`: the buffer is all that was sent, and the update follows from it."""

    def send(pair: tuple[jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array | None]:
        uid = federation.uid[task.client]
        if one_vector and pair[1] is not None:
            buffer = arrived(sending, hyper, task.key, uid, pair[1], hyper["lr"])
            return -hyper["lr"] * buffer, buffer
        delta = arrived(sending, hyper, task.key, uid, pair[0])
        if pair[1] is None or task.velocity is None:
            return delta, None
        moved = arrived(sending, hyper, keys.fold(task.key, "velocity"), uid, pair[1] - task.velocity, hyper["lr"])
        return delta, task.velocity + moved

    delta, velocity = jax.lax.cond(task.mask, send, lambda pair: pair, (updates.delta, updates.velocity))
    return updates._replace(delta=delta, velocity=velocity)


def _each(one: Callable[[Task], Any], key: jax.Array, federation: Federation, jobs: Jobs, plan: Plan, costs: jax.Array) -> Any:
    """`one` for every job, as the plan says. A start model is looked up when its job's turn comes, so the models
    are never copied per participant where jobs run in sequence."""
    each_key = keys.fold_each(key, "client", federation.uid[jobs.client])
    anchor_of: Any = jobs.which if jobs.anchor_of is None else jobs.anchor_of

    def job(s: jax.Array) -> Any:
        which = 0 if jobs.which is None else jobs.which[s]
        anchor = None if jobs.anchor is None else jobs.anchor[anchor_of[s]]
        velocity = None if jobs.velocity is None else jobs.velocity[which]
        mask = jobs.mask[s] & (s >= 0)
        return one(Task(each_key[s], jobs.client[s], mask, jobs.work[s], jobs.start[which], anchor, velocity))

    return spread(job, costs, plan, owners_of(federation, jobs))


def owners_of(federation: Federation, jobs: Jobs) -> jax.Array | None:
    """i32[S]: the device that has each job's samples; None: all have them."""
    return None if federation.owner is None else federation.owner[jobs.client]


def samples_of(federation: Federation, jobs: Jobs) -> jax.Array:
    """f32[S]: the work of each job, in samples."""
    return jnp.where(jobs.mask, federation.train.count[jobs.client] * jobs.work, 0.0)
