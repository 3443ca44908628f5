"""The order in which local training visits a client's samples, in epochs and steps. The numbers of
steps are traced, so that each client takes only the time that its samples need."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from cfljax import keys
from cfljax.lazy import custom_vmap, jax, jnp
from cfljax.local.data import shuffle
from cfljax.types import Array, Federation, Jobs, Plan, Tree, Updates

# The names of the loops over a client's steps in compiled programs, by which profiles and tests
# find them
STEPS = "local_steps"
BLOCKS_OF_STEPS = "step_blocks"
# The steps done before a GPU asks its host whether there are more, which costs as much as some
# kernels. A client that has no more steps waits for the end of these, on average for half of them
STEPS_PER_BLOCK = 16
# If epochs × samples is at most this, the shuffles of all epochs of a client are computed at once,
# before its first step
MAX_SHUFFLED = 1 << 17
# The same for steps × samples of clients side by side whose work is given in steps, each of which
# may begin an epoch
MAX_SHUFFLED_STEPS = 1 << 15


class Work(NamedTuple):
    """The amount of a client's training in a round. Static. One of `epochs` and `steps` is None.

    Example:
        ```python
        solver = solver.with_work(Work(epochs=1, steps=None, batch=32))
        ```
    """

    epochs: int | None
    """The number of passes over the client's data."""
    steps: int | None
    """The number of optimiser steps, on the same sequence of batches."""
    batch: int | None
    """Samples per step; None: each step sees all samples of the client, so that an epoch is one
    step."""
    one_vector: bool = False
    """Whether the client does one step and sends its momentum buffer alone. The update is then −lr
    times this buffer."""
    summed: bool = False
    """Whether a step follows the gradient of a batch's summed loss; False: of its mean loss."""
    head: int = 0
    """The first of the epochs, in which the head trains alone; in the others the body does. 0: all
    trains in all epochs."""


class Task(NamedTuple):
    """The job of one participant: its entries of `Jobs`."""

    # The random key of this client in this round
    key: Array
    # i32[] its position on the client axis
    client: Array
    # bool[] whether it trains at all
    mask: Array
    # f32[] the share of its local steps that it does
    work: Array
    # f32[d] the parameters that it starts from
    start: Array
    # f32[d] the parameters that the proximal term pulls to; None: `start`
    anchor: Array | None
    # f32[d] the momentum buffer that it starts with; None: zeros
    velocity: Array | None
    # f32[N] the weights of its samples' losses; None: all weights are 1
    weights: Array | None = None
    # f32[m] its client-side numbers; None: there are none
    home: Array | None = None
    # f32[n] by name: its rows of `ClientState.rows`
    rows: dict[str, Array] = {}


class Course(NamedTuple):
    """The numbers of samples and steps in one participant's training. They do not depend on the way
    of training."""

    # i32[] the number of its samples; 0 if it does no step
    samples: Array
    # i32[] the number of its steps in the round
    total: Array
    # i32[] the number of steps in an epoch
    per_epoch: Array
    # f32[] the number of samples that its steps see in all, counted each time; at least 1
    visited: Array
    epochs: Array | None
    """key[epochs] the random keys of the epochs' shuffles; None: each is made when its epoch
    begins, or there are no batches."""
    most: Array | None = None
    """i32[]: the most steps of all clients that train side by side, which count their steps
    together; None: one after another."""


class Orders(NamedTuple):
    """The shuffles of a client's epochs. A shuffle i32[L], L a multiple of `batch`: positions in
    random order, then filler."""

    # Samples per step
    batch: int
    # (number of the epoch i32[]) -> its shuffle i32[L]
    draw: Callable[[Array], Array]
    all: Array | None
    """i32[epochs, L]: the shuffles of all epochs; None: each is drawn when its epoch begins. For a
    small client, sorting all at once takes about as long as sorting one."""
    sequential: bool = True
    """Whether clients train one after another. Side by side, positions are read one by one: a slice
    that begins at another index for each client is a loop over the clients on a TPU."""

    def batch_at(self, line: Array, start: Array) -> Array:
        """Return `line` from each `start` i32[...] on, i32[..., batch]."""
        if self.sequential:
            return jax.lax.dynamic_slice(line, (start,), (self.batch,))
        return jnp.take(
            line, start[..., None] + jnp.arange(self.batch, dtype=jnp.int32), mode="clip"
        )


class StepSamples(NamedTuple):
    """The samples that a step sees, or the samples of all steps, with a leading axis."""

    # i32[B] positions in the client's list
    positions: Array
    # bool[B]: False for padding
    mask: Array
    # i32[] the number of samples without padding: the sum of the mask, given here so that steps
    # need not compute it
    samples: Array


Carry = TypeVar("Carry")
Visit = Callable[[Carry, StepSamples | None, Array], Carry]
"""Does one step: (carry, its samples, or None for all of the client, the number of the step i32[])
-> carry."""


class Stepwise(NamedTuple):
    """The training of one client, step by step."""

    # Return the state before the first step
    begin: Callable[[], Tree]
    visit: Visit[Tree]
    # Return the client's update from the state after the last step
    end: Callable[[Tree], Updates]


def train_steps(federation: Federation, task: Task | Jobs, work: Work) -> Array:
    """Count the optimiser steps of a client, i32[]; for Jobs each participant's, i32[S]. It is 0
    for a masked client or one without data, and at least 1 for a straggler."""
    count = federation.train.count[task.client]
    full: int | Array
    if work.steps is not None:
        full = work.steps
    else:
        assert work.epochs is not None
        full = work.epochs
        if work.batch is not None:
            full = _count_batches(count, batch_size(federation, work)) * work.epochs
    # A product just above a whole number, by float32's rounding, must not count as the next one
    wanted = jnp.maximum(1, jnp.ceil(task.work * full - 1e-3)).astype(jnp.int32)
    return jnp.where(task.mask & (count > 0), wanted, 0)


def batch_size(federation: Federation, work: Work) -> int:
    """Return the samples per step: the batch size of `work`, or the number of samples of the
    largest client, if that is smaller."""
    assert work.batch is not None
    return min(work.batch, federation.train.longest)


def _count_batches(count: Array, batch: int) -> Array:
    """Count the batches of `count` samples, i32[…]."""
    # `//` would be several kernels more, for signs that counts do not have
    return jax.lax.div(count + (batch - 1), jnp.full_like(count, batch))


def count_epochs(work: Work, longest: int) -> int:
    """Return how many epochs' shuffles are drawn at once side by side. Each step of a client with a
    single batch begins one."""
    if work.epochs is not None:
        return work.epochs
    assert work.steps is not None
    return work.steps if work.steps * longest <= MAX_SHUFFLED_STEPS else 1


def count_work(federation: Federation, task: Task, work: Work, sequential: bool = True) -> Course:
    """Count the samples and steps of a task. `sequential`: whether clients train one after
    another."""
    total = train_steps(federation, task, work)
    most = None if sequential else max_of(total)
    count = jnp.where(total > 0, federation.train.count[task.client], 0)
    if work.batch is None:
        visited = jnp.maximum(total * count, 1).astype(jnp.float32)
        return Course(count, total, jnp.int32(1), visited, None, most)
    batch = batch_size(federation, work)
    per_epoch = _count_batches(count, batch)
    divisor = jnp.maximum(per_epoch, 1)
    whole = jax.lax.div(total, divisor)
    rest = jax.lax.rem(total, divisor)
    visited = jnp.maximum(whole * count + jnp.minimum(rest * batch, count), 1).astype(jnp.float32)
    if work.epochs is None and sequential:
        number = 1
    else:
        number = count_epochs(work, federation.train.longest)
    known = work.epochs is not None or number > 1
    epochs = keys.fold_in(keys.fold(task.key, "epoch"), jnp.arange(number)) if known else None
    return Course(count, total, per_epoch, visited, epochs, most)


def make_orders(
    federation: Federation,
    task: Task,
    course: Course,
    work: Work,
    plan: Plan,
    longest: int,
    rungs: tuple[int, ...],
) -> Orders | None:
    """Make the shuffles of a client's epochs; None if each step sees all samples.

    Args:
      federation: The clients' data.
      task: The client's job, for its random key.
      course: Its numbers of samples and steps.
      work: The amount of training.
      plan: How clients train.
      longest: The most samples of a client that is trained by this program.
      rungs: Lengths of shuffles, see `data.shuffle`.
    """
    if work.batch is None:
        return None
    batch = batch_size(federation, work)

    def shuffle_by(key: Array) -> Array:
        return shuffle(key, course.samples, longest, batch, plan.sequential, rungs)

    # The key is folded by the number of the epoch, so that a shuffle is the same whether it is
    # drawn with the others or when its epoch begins
    def draw(number: Array) -> Array:
        return shuffle_by(keys.fold(task.key, "epoch", number))

    shuffles = None
    if course.epochs is not None and course.epochs.shape[0] * longest <= MAX_SHUFFLED:
        shuffles = shuffle_by(course.epochs)
    return Orders(batch, draw, shuffles, plan.sequential)


def group_steps(work: Work, longest: int) -> int:
    """Return the number of steps that are done before a GPU asks its host whether there are more,
    for clients of at most `longest` samples: STEPS_PER_BLOCK or somewhat less, a divisor of the
    largest number of steps."""
    most = work.steps or (work.epochs or 1) * (
        1 if work.batch is None else -(-longest // min(work.batch, longest))
    )
    # As many equal blocks as it takes
    return -(-most // -(-most // STEPS_PER_BLOCK))


def follow(
    course: Course,
    orders: Orders | None,
    visit: Visit[Carry],
    begin: Carry,
    block: int = 0,
    ahead: bool = False,
) -> Carry:
    """Do all steps of a client, and return the carry after the last one.

    Args:
      course: The client's numbers of samples and steps. Training ends after its number of steps,
        also within an epoch.
      orders: The shuffles of its epochs, which its steps see batch by batch; the last batch of an
        epoch may be short. None: each step sees all samples.
      visit: Does one step.
      begin: The carry before the first step.
      block: The number of steps done at a time, see `group_steps`; 0: one.
      ahead: As in `do_steps`, for steps in blocks.
    """

    def visit_all_samples(number: Array, carry: Carry) -> Carry:
        return visit(carry, None, number)

    if orders is None:
        return _loop(course.total, visit_all_samples, begin, block, course.most, ahead)

    def visit_known(number: Array, carry: Carry) -> Carry:
        return visit(carry, steps_at(course, orders, number), number)

    # One loop instead of two: for short epochs an outer loop would cost as much as a step
    if orders.all is not None:
        return _loop(course.total, visit_known, begin, block, course.most, ahead)

    def do_epoch(at: tuple[Carry, Array, Array]) -> tuple[Carry, Array, Array]:
        carry, number, done = at
        order = orders.draw(number)
        steps = jnp.minimum(course.per_epoch, course.total - done)

        def step(in_epoch: Array, carry: Carry) -> Carry:
            number = done + in_epoch
            seen = _step_samples(course, orders, order, in_epoch * orders.batch, in_epoch)
            return visit(carry, seen, number)

        return _loop(steps, step, carry, block, None, ahead), number + 1, done + steps

    at_start = (begin, jnp.int32(0), jnp.int32(0))
    return jax.lax.while_loop(lambda at: at[2] < course.total, do_epoch, at_start)[0]


def steps_at(course: Course, orders: Orders, number: Array) -> StepSamples:
    """Return the samples of the steps number i32[...], if the shuffles of all epochs are known."""
    assert orders.all is not None
    # Without compilation a loop counts with Python's numbers
    number = jnp.asarray(number, jnp.int32)
    epoch = jax.lax.div(number, jnp.broadcast_to(course.per_epoch, number.shape))
    in_epoch = number - epoch * course.per_epoch
    positions = orders.all.reshape(-1)
    start = epoch * orders.all.shape[1] + in_epoch * orders.batch
    return _step_samples(course, orders, positions, start, in_epoch)


def _step_samples(
    course: Course, orders: Orders, line: Array, start: Array, in_epoch: Array
) -> StepSamples:
    """Return the samples of steps i32[...] of an epoch, whose positions are in `line` from `start`
    i32[...] on."""
    left = course.samples - in_epoch * orders.batch
    slots = jnp.arange(orders.batch)
    return StepSamples(
        orders.batch_at(line, start), slots < left[..., None], jnp.minimum(left, orders.batch)
    )


def _loop(
    total: Array,
    step: Callable[[Array, Carry], Carry],
    begin: Carry,
    block: int,
    most: Array | None = None,
    ahead: bool = False,
) -> Carry:
    """Return the carry after `step(i, carry)` for i = 0 … total − 1. `block`: as in `follow`.
    `most`: as in `Course`. `ahead`: as in `do_steps`."""
    if not block:
        with jax.named_scope(STEPS):
            if most is None:
                return jax.lax.fori_loop(0, total, step, begin)
            return do_steps(most, jnp.int32(0), total, step, begin, ahead=False)
    end = total if most is None else most

    def do_block(at: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, done = at
        with jax.named_scope(STEPS):
            carry = do_steps(block, done, total, step, carry, ahead)
        return carry, done + block

    with jax.named_scope(BLOCKS_OF_STEPS):
        return jax.lax.while_loop(lambda at: at[1] < end, do_block, (begin, jnp.int32(0)))[0]


def do_steps(
    number: int | Array,
    first: Array,
    total: Array,
    step: Callable[[Array, Carry], Carry],
    carry: Carry,
    ahead: bool,
) -> Carry:
    """Do `number` steps from step `first` on, of which those from `total` on change nothing.

    Args:
        ahead: whether a step finds out if the next one counts (`takes_steps_in_products`).
    """

    def one(i: Array, at: tuple[Carry, Array | None]) -> tuple[Carry, Array | None]:
        carry, found = at
        counts = first + i < total if found is None else found
        # A client that has done all its steps waits: its carry stays as it is
        new = jax.tree.map(
            lambda new, old: jnp.where(counts, new, old), step(first + i, carry), carry
        )
        return new, first + i + 1 < total if ahead else None

    begin = first < total if ahead else None
    return jax.lax.fori_loop(0, number, one, (carry, begin))[0]


def job_owners(federation: Federation, jobs: Jobs) -> Array | None:
    """Return the index of the device that holds the samples of each job, i32[S]; None: every device
    holds all samples."""
    return None if federation.owner is None else federation.owner[jobs.client]


def job_samples(federation: Federation, jobs: Jobs) -> Array:
    """Return the work of each job, f32[S]: training samples times its share of the local steps; 0
    if it is masked."""
    return jnp.where(jobs.mask, federation.train.count[jobs.client] * jobs.work, 0.0)


@custom_vmap()
def max_of(number: Array) -> Array:
    """Return the number itself, i32[]; under `vmap` the largest of all, which bounds a loop for all
    at once."""
    return number


@max_of.def_vmap
def _(_size: int, _mapped: list[bool], number: Array) -> tuple[Array, bool]:
    return max_of(jnp.max(number, axis=0)), False


@custom_vmap()
def for_each(value: Array, like: Array) -> Array:  # noqa: ARG001
    """Return the value itself; under `vmap` one for each entry of `like`, which each run and each
    client has for itself.

    A GPU's products read it in the kernel then. What only runs, or only clients, have for
    themselves, XLA writes in the shape of the parameters in each step."""
    return value


@for_each.def_vmap
def _(size: int, mapped: list[bool], value: Array, like: Array) -> tuple[Array, bool]:
    whole = value if mapped[0] else jnp.broadcast_to(value, (size, *jnp.shape(value)))
    return for_each(whole, like), mapped[0] or mapped[1]
