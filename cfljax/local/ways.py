"""The training backends (step by step, or on Gram matrices), and the clients that each is for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.local.data import SHUFFLE_LENGTHS
from cfljax.local.gram import Among, GramPlan, first_layer, train_on_gram
from cfljax.local.optimiser import StepRule, from_optax, sgd
from cfljax.local.own_steps import StepsOf, train_by
from cfljax.local.parts import ModelParts, kernel_trains, make_turns, send_parts, split_home
from cfljax.local.products import gram_sizes
from cfljax.local.schedule import (
    Course,
    Orders,
    Stepwise,
    Task,
    Work,
    count_work,
    follow,
    group_steps,
    make_orders,
)
from cfljax.local.send import Sending, modifies
from cfljax.local.train import make_training
from cfljax.local.turned import transpose_kernels
from cfljax.models.flat import mark_statistics
from cfljax.types import Federation, Grams, Hyper, LocalStep, Model, Plan, Updates

StepsOfClient = Callable[[Task, Course, Orders | None], Stepwise]
"""The training of one client, step by step. The orders are the shuffles of its epochs; None: each
step sees all of its samples."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings of local training. All fields are static."""

    model: Model
    # The amount of a participant's training in a round
    work: Work
    # The name of the optimiser: "sgd", or one of optax
    optimizer: str = "sgd"
    # Arguments of the optimiser besides the learning rate
    arguments: tuple[tuple[str, object], ...] = ()
    plan: Plan = Plan()
    sending: Sending = Sending()
    # (numbers of the run) -> numbers of a local step
    step_of: Callable[[Hyper], LocalStep] = LocalStep.of
    # The method's own steps, instead of the optimiser's
    steps_of: StepsOf | None = None
    parts: ModelParts | None = None
    """Which parts of a model stay with the client, and which do not train; None: all train and
    travel."""
    # Whether optimisers go on from round to round (`ClientState.optimiser`)
    keeps_state: bool = False

    @property
    def sequential(self) -> bool:
        """Whether clients train one after another."""
        return self.plan.sequential


class Way(NamedTuple):
    """A training backend."""

    # The largest number of samples of a client for it
    size: int
    # Trains one client and returns its update
    train: Callable[[Task, Course], Updates]


def is_plain_sgd(solver: Setting) -> bool:
    """Return whether the optimiser is SGD without further arguments."""
    return solver.optimizer == "sgd" and not solver.arguments


def is_exact_on_gram(solver: Setting) -> bool:
    """Return whether training on Gram matrices is exact for this model and these steps."""
    first = first_layer(solver.model)
    plain = (
        solver.steps_of is None
        and is_plain_sgd(solver)
        and not solver.work.head
        and not solver.keeps_state
    )
    return plain and first is not None and kernel_trains(solver.parts, solver.model, first.kernel)


def list_gram_sizes(solver: Setting, federation: Federation) -> tuple[int, ...]:
    """Return the sizes of the Gram matrices on which clients are trained, ascending; empty if none
    are."""
    return (
        gram_sizes(solver.plan, federation.train.longest, solver.work.batch)
        if is_exact_on_gram(solver)
        else ()
    )


def find_grams(solver: Setting, federation: Federation) -> Grams | None:
    """Return the Gram matrices that were computed before the first round; None: there are none that
    fit this solver."""
    grams = federation.train.grams if solver.sequential else None
    return (
        grams if grams is not None and grams.sizes == list_gram_sizes(solver, federation) else None
    )


def make_rule(solver: Setting, numbers: LocalStep) -> StepRule:
    """Make the optimiser with the numbers of this run."""
    rule = (
        sgd(numbers)
        if is_plain_sgd(solver)
        else from_optax(solver.optimizer, dict(solver.arguments), numbers.lr)
    )
    return rule._replace(running=mark_statistics(solver.model)) if solver.model.statistics else rule


def list_ways(
    solver: Setting, federation: Federation, hyper: Hyper, choice: Among | None
) -> list[Way]:
    """List the training backends, ordered by the size of the clients that they are for. `choice`:
    the models among which participants choose their start; None: they do not choose."""
    numbers, sizes, longest = (
        solver.step_of(hyper),
        list_gram_sizes(solver, federation),
        federation.train.longest,
    )
    grams, summed, turns = (
        find_grams(solver, federation),
        solver.work.summed,
        make_turns(solver.parts, solver.work.head),
    )
    steps_of_client, work = train_by_steps(solver, federation, hyper), solver.work
    block_of = lambda most: group_steps(work, most) if solver.plan.asks_host else 0  # noqa: E731

    def on_gram(size: int) -> Way:
        plan = GramPlan(size, solver.sequential, summed, grams, choice, block_of(size), turns)

        def train_client(task: Task, course: Course) -> Updates:
            orders = make_orders(federation, task, course, work, solver.plan, size, ())
            return train_on_gram(solver.model, federation, task, course, orders, numbers, plan)

        return Way(size, train_client)

    def step_by_step(size: int, rungs: tuple[int, ...]) -> Way:
        def train_client(task: Task, course: Course) -> Updates:
            orders = make_orders(federation, task, course, work, solver.plan, size, rungs)
            steps = steps_of_client(task, course, orders)
            return steps.end(follow(course, orders, steps.visit, steps.begin(), block_of(longest)))

        return Way(size, train_client)

    done = (0, *sizes)[-1]
    # two ways, so that shuffles of small clients are shorter than shuffles of much larger ones
    short = (
        (keys.SHORT_LENGTH,)
        if solver.sequential and done < keys.SHORT_LENGTH and longest > 4 * keys.SHORT_LENGTH
        else ()
    )
    # All clients of one size need one length
    rungs = () if solver.plan.alike else SHUFFLE_LENGTHS
    limits = itertools.pairwise((done, *short, longest) if done < longest else ())
    return [
        *map(on_gram, sizes),
        *(
            step_by_step(size, tuple(rung for rung in rungs if rung > less))
            for less, size in limits
        ),
    ]


def train_by_steps(solver: Setting, federation: Federation, hyper: Hyper) -> StepsOfClient:
    """Return the function that trains a client step by step."""
    numbers, gpu = solver.step_of(hyper), solver.plan.asks_host
    model = (
        transpose_kernels(solver.model, gpu)
        if (solver.sequential or gpu) and is_exact_on_gram(solver)
        else solver.model
    )
    turns = make_turns(solver.parts, solver.work.head)

    def steps_of_client(task: Task, course: Course, orders: Orders | None) -> Stepwise:
        rule = make_rule(solver, numbers)
        if solver.steps_of is not None:
            return train_by(solver.steps_of(hyper, rule), model, federation, task, course, orders)
        return make_training(
            model, federation, task, course, orders, rule, numbers, solver.work.summed, turns
        )

    return steps_of_client


def make_trainer(
    solver: Setting, sends: bool, federation: Federation, hyper: Hyper, choice: Among | None = None
) -> Callable[[Task], Updates]:
    """Return the function that trains one client in the way for its size, and sends its update. A
    client that does no step takes no time. `choice`: as for `list_ways`."""
    ways, work, sequential = (
        list_ways(solver, federation, hyper, choice),
        solver.work,
        solver.sequential,
    )

    def nothing(task: Task, _: Course) -> Updates:
        none = (jnp.zeros(solver.model.size), jnp.float32(0), jnp.int32(0))
        return Updates(
            *none,
            task.velocity,
            None if choice is None else jnp.int32(0),
            task.home,
            optimiser=task.optimiser,
        )

    def train(task: Task) -> Updates:
        course = count_work(federation, task, work, sequential)
        if len(ways) == 1 and not sequential:
            update = ways[0].train(task, course)
        else:
            way = 1 + sum(
                (course.samples > smaller.size).astype(jnp.int32) for smaller in ways[:-1]
            )
            update = jax.lax.switch(
                jnp.where(course.total > 0, way, 0),
                [nothing, *(each.train for each in ways)],
                task,
                course,
            )
        return send_update(solver, sends, federation, hyper, task, update)

    return train


def send_update(
    solver: Setting, sends: bool, federation: Federation, hyper: Hyper, task: Task, update: Updates
) -> Updates:
    """Return the update as it arrives at the server; as it is, if it is not sent."""
    if not sends:
        return update
    here = split_home(solver.parts, update)
    if not modifies(solver.sending, hyper):
        return here
    return send_parts(
        solver.sending,
        solver.parts,
        solver.work.one_vector,
        solver.step_of(hyper).lr,
        hyper,
        federation,
        task,
        here,
    )
