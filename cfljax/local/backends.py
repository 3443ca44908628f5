"""The training backends (step by step, or on Gram matrices), and the clients that each is for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

from cfljax import keys
from cfljax.lazy import jax, jnp
from cfljax.local.data import SHUFFLE_LENGTHS
from cfljax.local.gram import Candidates, GramPlan, first_layer, train_on_gram
from cfljax.local.optimiser import StepRule, from_optax, sgd, with_head_rate
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
    for_each,
    group_steps,
    make_orders,
)
from cfljax.local.send import Sending, modifies
from cfljax.local.train import make_training
from cfljax.local.turned import transpose_kernels
from cfljax.models.flat import mark_head, mark_statistics
from cfljax.types import Federation, Grams, Hyper, LocalStep, Model, Plan, Updates

# The training of one client, step by step. The orders are the shuffles of its epochs; None: each
# step sees all of its samples
StepsOfClient = Callable[[Task, Course, Orders | None], Stepwise]


@dataclasses.dataclass(frozen=True)
class SolverSettings:
    """The settings of local training. All fields are static."""

    model: Model
    work: Work
    """The amount of a participant's training in a round."""
    optimizer: str = "sgd"
    """The name of the optimiser: "sgd", or one of optax."""
    arguments: tuple[tuple[str, object], ...] = ()
    """Arguments of the optimiser besides the learning rate."""
    plan: Plan = Plan()
    sending: Sending = Sending()
    step_of: Callable[[Hyper], LocalStep] = LocalStep.of
    """(numbers of the run) -> numbers of a local step."""
    steps_of: StepsOf | None = None
    """The method's own steps, instead of the optimiser's."""
    parts: ModelParts | None = None
    """Which parts of a model stay with the client, and which do not train; None: all train and
    travel."""
    keeps_state: bool = False
    """Whether optimisers go on from round to round (`ClientState.rows`)."""

    @property
    def sequential(self) -> bool:
        """Whether clients train one after another."""
        return self.plan.sequential


class Backend(NamedTuple):
    """A training backend."""

    # The largest number of samples of a client that it trains
    size: int
    # Trains one client and returns its update
    train: Callable[[Task, Course], Updates]


def is_plain_sgd(solver: SolverSettings) -> bool:
    """Return whether the optimiser is SGD without further arguments."""
    return solver.optimizer == "sgd" and not solver.arguments


def is_exact_on_gram(solver: SolverSettings) -> bool:
    """Return whether training on Gram matrices is exact for this model and these steps."""
    first = first_layer(solver.model)
    plain = (
        solver.steps_of is None
        and is_plain_sgd(solver)
        and not solver.work.head
        and not solver.keeps_state
    )
    return plain and first is not None and kernel_trains(solver.parts, solver.model, first.kernel)


def takes_steps_in_products(solver: SolverSettings) -> bool:
    """Return whether the kernel of a GPU that computes a layer's gradient should take the step, and
    keep the parameters of clients that have no more steps.

    XLA makes one kernel of it if the step size and whether the step counts are known before the
    step, for each client of each run. Otherwise it writes the gradient or the new parameters, reads
    them again with the old ones, and writes what is selected. A TPU does it in one kernel in any
    case. Models that begin with a convolution would need more memory so: 64 runs of the benchmark's
    W3 56 GB in place of 42.
    """
    return solver.plan.asks_host and is_exact_on_gram(solver)


def list_gram_sizes(solver: SolverSettings, federation: Federation) -> tuple[int, ...]:
    """Return the sizes of the Gram matrices on which clients are trained, ascending; empty if none
    are."""
    if not is_exact_on_gram(solver):
        return ()
    return gram_sizes(solver.plan, federation.train.longest, solver.work.batch)


def find_grams(solver: SolverSettings, federation: Federation) -> Grams | None:
    """Return the Gram matrices that were computed before the first round; None: there are none that
    fit this solver."""
    grams = federation.train.grams if solver.sequential else None
    # A method may train with other batches than those for which the matrices were computed
    if grams is None or grams.sizes != list_gram_sizes(solver, federation):
        return None
    return grams


def make_rule(solver: SolverSettings, numbers: LocalStep) -> StepRule:
    """Make the optimiser with the numbers of this run."""

    def make(numbers: LocalStep) -> StepRule:
        if is_plain_sgd(solver):
            return sgd(numbers)
        return from_optax(solver.optimizer, dict(solver.arguments), numbers.lr)

    rule = with_head_rate(make, numbers, lambda: mark_head(solver.model))
    return rule._replace(running=mark_statistics(solver.model)) if solver.model.statistics else rule


def list_backends(
    solver: SolverSettings, federation: Federation, hyper: Hyper, choice: Candidates | None
) -> list[Backend]:
    """List the training backends, ordered by the size of the clients that they are for. `choice`:
    the models among which participants choose their start; None: they do not choose."""
    numbers = solver.step_of(hyper)
    sizes = list_gram_sizes(solver, federation)
    longest = federation.train.longest
    grams = find_grams(solver, federation)
    summed = solver.work.summed
    turns = make_turns(solver.parts, solver.work.head)
    steps_of_client = train_by_steps(solver, federation, hyper)
    work = solver.work

    def choose_block(most: int) -> int:
        return group_steps(work, most) if solver.plan.asks_host else 0

    def on_gram(size: int) -> Backend:
        plan = GramPlan(size, solver.sequential, summed, grams, choice, choose_block(size), turns)

        def train_client(task: Task, course: Course) -> Updates:
            orders = make_orders(federation, task, course, work, solver.plan, size, ())
            return train_on_gram(solver.model, federation, task, course, orders, numbers, plan)

        return Backend(size, train_client)

    def step_by_step(size: int, rungs: tuple[int, ...]) -> Backend:
        def train_client(task: Task, course: Course) -> Updates:
            ahead = takes_steps_in_products(solver)
            if ahead:
                course = course._replace(total=for_each(course.total, task.key))
            orders = make_orders(federation, task, course, work, solver.plan, size, rungs)
            steps = steps_of_client(task, course, orders)
            block = choose_block(longest)
            carry = follow(course, orders, steps.visit, steps.begin(), block, ahead)
            return steps.end(carry)

        return Backend(size, train_client)

    backends = [on_gram(size) for size in sizes]
    # Larger clients than the last size train step by step
    largest_on_gram = sizes[-1] if sizes else 0
    if largest_on_gram >= longest:
        return backends
    limits = [largest_on_gram, longest]
    # Two backends, so that shuffles of small clients are shorter than shuffles of much larger ones
    if (
        solver.sequential
        and largest_on_gram < keys.SHORT_LENGTH
        and longest > 4 * keys.SHORT_LENGTH
    ):
        limits.insert(1, keys.SHORT_LENGTH)
    # All clients of one size need one length
    rungs = () if solver.plan.alike else SHUFFLE_LENGTHS
    for smaller, size in itertools.pairwise(limits):
        backends.append(step_by_step(size, tuple(rung for rung in rungs if rung > smaller)))
    return backends


def train_by_steps(solver: SolverSettings, federation: Federation, hyper: Hyper) -> StepsOfClient:
    """Return the function that trains a client step by step."""
    numbers = solver.step_of(hyper)
    gpu = solver.plan.asks_host
    model = solver.model
    if (solver.sequential or gpu) and is_exact_on_gram(solver):
        model = transpose_kernels(model, gpu)
    turns = make_turns(solver.parts, solver.work.head)

    def steps_of_client(task: Task, course: Course, orders: Orders | None) -> Stepwise:
        own = numbers
        if takes_steps_in_products(solver):
            own = jax.tree.map(lambda each: for_each(each, task.key), numbers)
        rule = make_rule(solver, own)
        if solver.steps_of is not None:
            return train_by(solver.steps_of(hyper, rule), model, federation, task, course, orders)
        return make_training(
            model, federation, task, course, orders, rule, own, solver.work.summed, turns
        )

    return steps_of_client


def make_trainer(
    solver: SolverSettings,
    sends: bool,
    federation: Federation,
    hyper: Hyper,
    choice: Candidates | None = None,
) -> Callable[[Task], Updates]:
    """Return the function that trains one client by the backend for its size, and sends its update
    if `sends`. A client that does no step takes no time. `choice`: as for `list_backends`."""
    backends = list_backends(solver, federation, hyper, choice)
    work = solver.work
    sequential = solver.sequential

    def skip(task: Task, _: Course) -> Updates:
        return Updates(
            jnp.zeros(solver.model.size),
            jnp.float32(0),
            jnp.int32(0),
            task.velocity,
            None if choice is None else jnp.int32(0),
            task.home,
            # A residual is read and written when the update is sent
            rows={name: row for name, row in task.rows.items() if name != "residual"},
        )

    def train(task: Task) -> Updates:
        course = count_work(federation, task, work, sequential)
        if len(backends) == 1 and not sequential:
            update = backends[0].train(task, course)
        else:
            index = 1 + sum(
                (course.samples > smaller.size).astype(jnp.int32) for smaller in backends[:-1]
            )
            update = jax.lax.switch(
                jnp.where(course.total > 0, index, 0),
                [skip, *(each.train for each in backends)],
                task,
                course,
            )
        return send_update(solver, sends, federation, hyper, task, update)

    return train


def send_update(
    solver: SolverSettings,
    sends: bool,
    federation: Federation,
    hyper: Hyper,
    task: Task,
    update: Updates,
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
