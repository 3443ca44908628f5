"""The local solver: what each participant does between receiving a model and sending its update.

`Solver.fit(key, federation, jobs, hyper)` returns the updates of a round. They do not depend on the
execution plan, beyond rounding: each client does its own number of steps on its own samples, as if
it were trained alone. Steps of a method's own are not a training backend: see
`Solver.with_own_steps` and `local.own_steps`.

To add a training backend, write a function (task, course) -> Updates and list it in
`backends.list_backends` for clients up to some size. For a plan to choose it: a field of
`types.Plan`, its key in `config.train.PlanOptions`, the prediction of its time in `local.predict`,
the choice and its reasons in `experiment.execution`, and its word in records
(`launch.batch.describe_plan`). Which clients train at a time, and on which device, is decided in
`devices.spread` alone. Side by side (on an accelerator) there should be one way for all clients: a
batched switch computes them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cfljax import keys
from cfljax.devices.compiled import shared_function
from cfljax.devices.spread import devices, spread
from cfljax.errors import SpecError
from cfljax.kernels.mix import Rule
from cfljax.lazy import jax, jnp
from cfljax.local.aggregation import server_rule
from cfljax.local.backends import (
    SolverSettings,
    find_grams,
    is_exact_on_gram,
    list_gram_sizes,
    make_trainer,
)
from cfljax.local.data import shuffle
from cfljax.local.gram import prepare_choice
from cfljax.local.own_steps import StepsOf
from cfljax.local.parts import ModelParts, freeze_statistics, insert_home, mask_home, receive
from cfljax.local.predict import choose_making, expected_seconds, layer_shape
from cfljax.local.queue import ModelTables, QueuedJobs, make_queue
from cfljax.local.schedule import (
    MAX_SHUFFLED,
    Task,
    Work,
    count_epochs,
    job_owners,
    job_samples,
    train_steps,
)
from cfljax.local.send import download, modifies
from cfljax.local.stream import client_losses
from cfljax.local.train import Samples, batch_gradient, full_gradient, gather_batch, whole_batch
from cfljax.types import (
    Array,
    ClientState,
    Federation,
    Hyper,
    Jobs,
    LocalStep,
    Model,
    Tree,
    Updates,
)

# The most numbers in the models of jobs that get a row each
MAX_OWN_ROWS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Solver(SolverSettings):
    """The local computations that methods are built from: how participants train, and what can be
    computed on their samples. A run has one, made from its table `train`; methods copy it for other
    training (`with_…`). All fields are static.

    Shapes: S jobs or participants, K models, d parameters, N samples of the client with the most.

    Example:
        ```python
        updates = solver.fit(key, federation, jobs_from(cohort, state.models, which), hyper)
        mixed = mix_updates(mix, updates.delta, state.models, solver.rule(key, hyper))
        ```
    """

    def with_work(self, work: Work) -> Solver:
        """Copy the solver for another amount of training.

        Args:
            work: The amount, instead of the run's.
        """
        if work.one_vector:
            self.need_no_statistics("a step that is sent as one gradient")
        return dataclasses.replace(self, work=work)

    def with_step(self, step_of: Callable[[Hyper], LocalStep]) -> Solver:
        """Copy the solver with other numbers of a local step.

        Args:
            step_of: (numbers of the run) -> numbers of a step.

        Example:
            ```python
            # a proximal term
            solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["mu"]))
            ```
        """
        return dataclasses.replace(self, step_of=step_of)

    def with_own_steps(self, steps_of: StepsOf) -> Solver:
        """Copy the solver with steps that the method defines, never on Gram matrices.

        Args:
            steps_of: (numbers of the run, its optimiser) -> the steps, `OwnSteps`.
        """
        self.need_no_statistics("steps of the method's own")
        return dataclasses.replace(self, steps_of=steps_of)

    def with_parts(self, parts: ModelParts) -> Solver:
        """Copy the solver for a model that is shared, or trained, in parts.

        Args:
            parts: Which numbers stay with the client, and which do not train.
        """
        return dataclasses.replace(self, parts=parts, model=freeze_statistics(self.model, parts))

    def need_no_statistics(self, what: str) -> None:
        """Raise SpecError if the model has statistics of batches.

        Args:
            what: The training that would not set them, for the message.
        """
        if self.model.statistics:
            why = (
                f"{what} cannot move the running statistics of BatchNorm; use GroupNorm or "
                "LayerNorm, or another method"
            )
            raise SpecError(f'model "{self.model.name}": {why}')

    def fit(self, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper) -> Updates:
        """Train the jobs. Returns the updates as the server receives them, after `train.attack`,
        `train.compress` and the clipping of `train.privacy`.

        Args:
            key: The round's key.
            federation: The clients' data.
            jobs: What each participant trains.
            hyper: The numbers of the run.
        """
        return self._run_jobs(True, key, federation, jobs, hyper)

    def _run_jobs(
        self, sends: bool, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper
    ) -> Updates:
        """Train the jobs, in short runs by a program for all methods that train in the same way."""
        # Counted apart from the training, which XLA leaves out where only the count is used
        steps = self.count_steps(federation, jobs)
        if not self.plan.quick:
            updates = _train_jobs(self, devices(), sends, key, federation, jobs, hyper)
            return updates._replace(steps=steps)
        solver, numbers = self, hyper
        if self.steps_of is None and not modifies(self.sending, hyper):
            # A program for the numbers of a step, not of a method: methods that train alike
            # share it
            numbers = {
                name: number
                for name, number in self.step_of(hyper)._asdict().items()
                if number is not None
            }
            solver = self.with_step(LocalStep.given)
            jobs = give_own_rows(jobs)
        jobs = jobs._replace(kept=jobs.kept._replace(flight=None, devices=None))
        updates = _train_apart.made(solver, devices(), sends, key, federation, jobs, numbers)
        return updates._replace(steps=steps)

    def count_steps(self, federation: Federation, jobs: Jobs) -> Array:
        """Count the local steps of each job, i32[S].

        Args:
            federation: The clients' data.
            jobs: The jobs.
        """
        return train_steps(federation, jobs, self.work)

    def _rows(
        self, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper
    ) -> tuple[QueuedJobs, ModelTables]:
        """Return the jobs for a queue. Models stay in tables, unless clients keep parts of them:
        then each job has a model of its own."""
        which = jobs.which
        number = jobs.client.shape[0]
        assert which is not None
        each_key = keys.fold_each(key, "client", federation.uid[jobs.client])
        start = jobs.start
        anchor_of = jobs.anchor_of
        velocity = jobs.velocity
        if (own := jobs.kept.client_params) is not None:
            start = jax.vmap(lambda c, k: insert_home(self.parts, own, c, jobs.start[k]))(
                jobs.client, which
            )
            anchor_of = which if anchor_of is None else anchor_of
            velocity = None if velocity is None else velocity[which]
            which = jnp.arange(number, dtype=jnp.int32)
        task = Task(
            each_key,
            jobs.client,
            jobs.mask,
            jobs.work,
            None,  # type: ignore[arg-type]
            None,
            None,
            jobs.weights,
            jobs.home,
            jobs.kept.take(jobs.client),
        )
        numbers = {name: jnp.broadcast_to(value, number) for name, value in hyper.items()}
        rows = QueuedJobs(task, which, which if anchor_of is None else anchor_of, numbers)
        return rows, ModelTables(start, jobs.anchor, velocity)

    def train(self, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper) -> Updates:
        """Train the jobs for models that do not leave the client. Returns the updates as they are
        before sending. Arguments as for `fit`."""
        return self._run_jobs(False, key, federation, jobs, hyper)

    def losses(
        self,
        federation: Federation,
        models: Array,
        clients: Array,
        mask: Array,
        client_params: Array | None = None,
    ) -> Array:
        """Compute the mean loss f32[K, S] of each model on all training samples of each client; 0
        where the mask is False, and for clients without samples.

        Args:
            federation: The clients' data.
            models: f32[K, d] the models.
            clients: i32[S] positions on the client axis.
            mask: bool[S] which of them are computed.
            client_params: The parameters that stay with each client, `ClientState.client_params`;
                None: there are none.
        """
        if client_params is not None:
            # With parts of their own, clients have different models: one cluster after another
            jobs = Jobs(
                clients,
                mask,
                jnp.ones(clients.shape),
                models,
                jnp.zeros_like(clients),
                kept=ClientState(client_params=client_params),
            )
            return jax.lax.map(
                lambda start: self.gradient(federation, jobs._replace(start=start[None]))[1], models
            )
        if not self.plan.quick:
            return client_losses(
                self.model, federation, federation.train, models, clients, mask, self.plan.on_cpu
            )
        return _losses(self.model, devices(), federation, models, clients, mask)

    def sample_losses(
        self, federation: Federation, models: Array, clients: Array, mask: Array
    ) -> Array:
        """Compute the loss f32[S, K, N] of each model on each training sample of each client, in
        the order of its samples; N is `Split.longest`. 0 if a client has no such sample, or its
        mask is False.

        Args:
            federation: The clients' data.
            models: f32[K, d] the models.
            clients: i32[S] positions on the client axis.
            mask: bool[S] which of them are computed.
        """
        model = self.model
        number = clients.shape[0]

        def loss_of_all(batch: Samples, _: Array) -> Array:
            losses = jax.lax.map(
                lambda w: model.loss(model.forward(model.unravel(w), batch.x, None), batch.y),
                models,
            )
            return jnp.where(batch.mask, losses, 0.0)

        # The jobs' start is not used
        jobs = Jobs(clients, mask, jnp.ones(number), models[:1], jnp.zeros(number, jnp.int32))
        return self.of_samples(loss_of_all, federation, jobs)

    def of_samples(
        self, one: Callable[[Samples, Array], Tree], federation: Federation, jobs: Jobs
    ) -> Tree:
        """Return `one(…)` for all jobs, stacked.

        Args:
            one: (all training samples of a client, the model f32[d] that it starts from) -> arrays.
                The samples are in their order, and `Split.longest` with padding; a masked job has
                padding alone.
            federation: The clients' data.
            jobs: The jobs.
        """
        positions = jnp.arange(federation.train.longest)

        def job(task: Task) -> Tree:
            here = task.mask & (positions < federation.train.count[task.client])
            return one(
                gather_batch(federation, task.client, positions, here, task.weights), task.start
            )

        return self._for_each(job, keys.root(0), federation, jobs, job_samples(federation, jobs))

    def gradient(self, federation: Federation, jobs: Jobs) -> tuple[Array, Array]:
        """Compute the gradient f32[S, d] of the mean loss on all training samples of each job's
        client, at the model that it starts from, and this loss f32[S]. Both are 0 for masked jobs.

        Args:
            federation: The clients' data.
            jobs: The jobs.
        """
        model = self.model

        def differentiate(task: Task) -> tuple[Array, Array]:
            whole = whole_batch(federation, task.client)
            loss, _, grads = full_gradient(
                model, federation, task.client, model.unravel(task.start), whole
            )
            gradient = jnp.where(task.mask, mask_home(self.parts, model.ravel(grads)), 0.0)
            return gradient, jnp.where(task.mask, loss, 0.0)

        # Nothing is drawn, so that any key will do
        costs = job_samples(federation, jobs)
        return self._for_each(differentiate, keys.root(0), federation, jobs, costs)

    def batch_gradient(
        self, key: Array, federation: Federation, jobs: Jobs, batch: int, summed: bool = False
    ) -> tuple[Array, Array]:
        """Compute the gradient f32[S, d] and the loss f32[S], as `gradient` does, on one
        mini-batch.

        Args:
            key: The round's key: the mini-batch is the first of `fit` with this key.
            federation: The clients' data.
            jobs: The jobs.
            batch: The number of samples.
            summed: Whether it is the gradient of the summed loss; False: of the mean loss.
        """
        self.need_no_statistics("a gradient of a batch")
        model, longest = self.model, federation.train.longest

        def differentiate(task: Task) -> tuple[Array, Array]:
            size = min(batch, longest)
            count = federation.train.count[task.client]
            # The keys are those of the first epoch and the first step of `fit`
            epoch_key = keys.fold(task.key, "epoch", 0)
            order = shuffle(epoch_key, count, longest, size, self.sequential)[:size]
            samples = gather_batch(federation, task.client, order, jnp.arange(size) < count)
            params = model.unravel(task.start)
            step_key = keys.fold(task.key, "step", 0)
            loss, _, grads = batch_gradient(model, params, samples, step_key, summed=summed)
            gradient = jnp.where(task.mask, mask_home(self.parts, model.ravel(grads)), 0.0)
            return gradient, jnp.where(task.mask, loss, 0.0)

        return self._for_each(differentiate, key, federation, jobs, job_samples(federation, jobs))

    def send(
        self,
        key: Array,
        federation: Federation,
        jobs: Jobs,
        rows: Array,
        hyper: Hyper,
        unit: Array | float = 1.0,
    ) -> Array:
        """Return f32[S, d]: the vectors that the server receives when participants send vectors
        that are not updates.

        Args:
            key: The round's key.
            federation: The clients' data.
            jobs: The jobs of the participants.
            rows: f32[S, d] what they send.
            hyper: The numbers of the run.
            unit: The factor from such a vector to an update (for a gradient, the learning rate).
        """
        if not modifies(self.sending, hyper):
            return rows
        uid = federation.uid[jobs.client]

        def receive_one(of: tuple[Array, Array, Array]) -> Array:
            client_key, own_uid, row = of
            return receive(self.sending, self.parts, hyper, client_key, own_uid, row, unit=unit)[0]

        each = (keys.fold_each(key, "client", uid), uid, rows)
        return jax.lax.map(receive_one, each) if self.sequential else jax.vmap(receive_one)(each)

    def download(self, key: Array, models: Array) -> Array:
        """Return f32[K, d]: models of the server as participants receive them.

        Args:
            key: The round's key.
            models: f32[K, d] the models that are sent.
        """
        return download(self.sending, key, models)

    def rule(self, key: Array, hyper: Hyper, unit: Array | float | None = None) -> Rule:
        """Return the server's aggregation rule in a round, for `mix_updates` and similar functions.

        Args:
            key: The round's key.
            hyper: The numbers of the run.
            unit: As for `send`, for vectors that are not updates.
        """
        return server_rule(self.sending.robust, key, hyper, unit)

    def costs(self, federation: Federation, jobs: Jobs) -> Array:
        """Estimate the time of each job, f32[S], in any unit, by which jobs are dealt to devices.

        Args:
            federation: The clients' data.
            jobs: The jobs.
        """
        layer = None
        if is_exact_on_gram(self) and self.sequential and devices() > 1:
            layer = layer_shape(self.model)
        if layer is None:
            return job_samples(federation, jobs)
        samples = federation.train.count[jobs.client]
        steps = train_steps(federation, jobs, self.work)
        how = choose_making(True, find_grams(self, federation) is not None)
        return expected_seconds(
            layer, self.work, samples, steps, list_gram_sizes(self, federation), how
        )

    def chooses(self, federation: Federation) -> bool:
        """Return whether participants should choose their start within `fit` (`Jobs.which` None),
        which is faster than a call of `losses` before it. True if all clients train on Gram
        matrices, one after another, and all updates are held.

        Args:
            federation: The clients' data.
        """
        apart = self.parts is not None and self.parts.home.size
        if federation.owner is not None or self.sending.robust or apart or self.plan.stream:
            return False
        sizes = list_gram_sizes(self, federation)
        return self.sequential and bool(sizes) and sizes[-1] >= federation.train.longest

    def _for_each(
        self,
        one: Callable[[Task], Tree],
        key: Array,
        federation: Federation,
        jobs: Jobs,
        costs: Array,
    ) -> Tree:
        """Return the results of `one` for all jobs, stacked: one after another or side by side, as
        the plan says. A job's start model is looked up when the job runs, so that jobs in sequence
        need no copy of a model per participant."""
        each_key = keys.fold_each(key, "client", federation.uid[jobs.client])
        anchor_of = jobs.which if jobs.anchor_of is None else jobs.anchor_of
        if jobs.anchor is not None and anchor_of is None:
            raise ValueError(
                "Jobs.anchor needs Jobs.anchor_of where participants choose their start"
            )

        def job(s: Array) -> Tree:
            which = 0 if jobs.which is None else jobs.which[s]
            anchor = None if jobs.anchor is None or anchor_of is None else jobs.anchor[anchor_of[s]]
            velocity = None if jobs.velocity is None else jobs.velocity[which]
            weights = None if jobs.weights is None else jobs.weights[s]
            home = None if jobs.home is None else jobs.home[s]
            # −1 is a slot of a block in which no job is left
            mask = jobs.mask[s] & (s >= 0)
            client = jobs.client[s]
            start = insert_home(self.parts, jobs.kept.client_params, client, jobs.start[which])
            task = Task(
                each_key[s],
                client,
                mask,
                jobs.work[s],
                start,
                anchor,
                velocity,
                weights,
                home,
                jobs.kept.take(client),
            )
            return one(task)

        return spread(job, costs, self.plan, job_owners(federation, jobs))


class OneGradient(Solver):
    """A solver whose local training is one step along the gradient on all local data."""

    def fit(self, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper) -> Updates:
        """Return the updates −lr · gradient."""
        self.need_no_statistics("one gradient")
        gradient, loss = self.gradient(federation, jobs)
        gradient = self.send(key, federation, jobs, gradient, hyper, hyper["lr"])
        return Updates(-self.step_of(hyper).lr * gradient, loss, self.count_steps(federation, jobs))

    def count_steps(self, federation: Federation, jobs: Jobs) -> Array:
        """Count one step for each job, i32[S]; none for a masked one or without data."""
        return train_steps(federation, jobs, Work(None, 1, None))


def _train_jobs(
    solver: Solver,
    devices: int,
    sends: bool,
    key: Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
) -> Updates:
    """Train the jobs; return the updates as the server receives them if they are sent. `devices`:
    the value of `devices()`, on which depends what is traced."""
    one_device = devices == 1 and federation.owner is None
    if uses_queue(solver, federation) and one_device and jobs.which is not None:
        return make_queue(solver, sends)(federation, *solver._rows(key, federation, jobs, hyper))
    choice = prepare_choice(solver.model, jobs.start) if jobs.which is None else None
    one = make_trainer(solver, sends, federation, hyper, choice)
    return solver._for_each(one, key, federation, jobs, solver.costs(federation, jobs))


_train_apart = shared_function(static=(0, 1, 2))(_train_jobs)


@shared_function(static=(0, 1))
def _losses(
    model: Model,
    devices: int,  # noqa: ARG001 (what is traced depends on it)
    federation: Federation,
    models: Array,
    clients: Array,
    mask: Array,
) -> Array:
    return client_losses(model, federation, federation.train, models, clients, mask)


def uses_queue(solver: Solver, federation: Federation) -> bool:
    """Return whether clients can train in the lanes of a queue: step by step, on mini-batches whose
    order is known beforehand."""
    work = solver.work
    longest = federation.train.longest
    if not solver.plan.queue or solver.sequential or work.batch is None:
        return False
    if list_gram_sizes(solver, federation):
        return False
    shuffled_at_once = count_epochs(work, longest) * longest <= MAX_SHUFFLED
    return shuffled_at_once and (work.epochs is not None or count_epochs(work, longest) > 1)


def give_own_rows(jobs: Jobs) -> Jobs:
    """Give each job its own models if these are few numbers: programs then do not depend on the
    number of models."""
    number = jobs.client.shape[0]
    if jobs.which is None or number * jobs.start.shape[1] > MAX_OWN_ROWS:
        return jobs
    which = jobs.which
    own = jnp.arange(number, dtype=jnp.int32)
    anchor = jobs.anchor
    if anchor is not None:
        anchor = anchor[which if jobs.anchor_of is None else jobs.anchor_of]
    return jobs._replace(
        start=jobs.start[which],
        which=own,
        anchor=anchor,
        anchor_of=None,
        velocity=None if jobs.velocity is None else jobs.velocity[which],
    )
