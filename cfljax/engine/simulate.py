"""HOST. A batch of runs from start to end: compile, chunks of rounds, regrouping between them, and the history as numpy arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices import distributed
from cfljax.devices.mesh import RUNS
from cfljax.devices.placement import lying, placed, sharded
from cfljax.devices.spread import everywhere
from cfljax.engine.checkpoint import Checkpoint, Spent, check_rows, named, restore
from cfljax.engine.clock import Clock
from cfljax.engine.program import WORD, Carry, Program, Settings, make_program
from cfljax.local.send import Sending, as_trained_on, exact_share
from cfljax.types import Federation, Hyper, Method, Model


class Output(NamedTuple):
    """What a run leaves behind: arrays named as in the results folder, and timings."""

    history: dict[str, np.ndarray]
    """f32[T'] per quantity; f32[T', K] for "accuracy_clusters"."""
    labels: np.ndarray
    """i32[T', C], or i32[1, C] where only the last are kept."""
    client_accuracy: np.ndarray
    """f32[C]."""
    models: np.ndarray
    """f32[K, d] at the end."""
    diag: dict[str, np.ndarray]
    diverged_at: int
    """−1: it did not."""
    seconds_setup: float
    seconds_compile: float
    seconds_train: float
    seconds_eval: float


Progress = Callable[[int, np.ndarray], None]
"""(rounds done, accuracy f32[R])."""

_compiled: dict[Hashable, tuple[Any, float]] = {}
"""Programs of this process by what they were compiled for."""
KEPT = 64
"""Programs that a process keeps, the newest: each holds some memory maps, of which a process may have so many."""
compilations = 0
"""How many programs this process has compiled."""


def forget() -> None:
    """Drop the compiled programs of this process, and the memory that they map."""
    _compiled.clear()


def simulate(
    method: Method,
    model: Model,
    federation: Federation,
    settings: Settings,
    seeds: list[int],
    hypers: list[dict[str, float]],
    *,
    program_key: Hashable = None,
    chunk_rounds: int | None = None,
    progress: Progress | None = None,
    resume: Checkpoint | None = None,
    checkpoint: Callable[[Callable[[], Checkpoint]], None] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    shard: bool = False,
) -> list[Output]:
    """The runs of one batch: run r has `seeds[r]` and the numbers `hypers[r]`. `program_key` names everything static that
    the method, model and settings were made from, so that a later batch reuses the compiled program. `chunk_rounds`: look
    at the batch (progress, checkpoint) after so many, else every two seconds; how rounds are cut into chunks changes no bit
    of the result. `checkpoint` gets a function that makes one, to be called when it is time; `resume` goes on from it. `mesh`: the
    devices that a round's participants are dealt to; `shard`: and the samples of the federation, which is then of numpy arrays."""
    runs = len(seeds)
    before = Spent(0.0, 0.0, 0.0, 0.0) if resume is None else resume.spent
    begin = time.perf_counter()
    run_keys, hyper, setup, there = _inputs(method, federation, settings, seeds, hypers, mesh, shard)
    seconds_setup = before.setup + time.perf_counter() - begin
    program, where = make_program(method, model, settings), (program_key, mesh)
    args = (*placed((run_keys, hyper, setup), mesh, True), there)
    carry, compile_start = _first_carry(program, args, federation, where, resume)
    done, rows = (0, []) if resume is None else (resume.done, [resume.rows])
    fixed = (args[0], args[1], args[3])
    now = lambda *at: placed(np.array(at, np.int32), mesh)  # noqa: E731 (one array: each costs a tenth of a millisecond)
    chunk, compile_chunk = _compile(everywhere(program.chunk, mesh, 3), (carry, *fixed, now(0, 0, True)), (where, "chunk"), (0,))
    seconds_compile = compile_start + compile_chunk
    clock = Clock(before.rounds, before.evaluation)
    distributed.meet()
    while not rows or done < settings.rounds:
        first = not rows
        stop = 0 if first else distributed.agree(_next_stop(method, settings, done, chunk_rounds or clock.rounds_ahead()))
        if first:  # a chunk that only evaluates changes nothing
            carry, new = clock.price(chunk, carry, *fixed, now(done, stop, first))
        else:
            carry, new = clock.time(stop - done, chunk, carry, *fixed, now(done, stop, first))
        reached = _fetched({name: new[name] for name in ("round", "valid")})
        done, evaluated = min(stop, int(reached["round"][0, -1])), bool(reached["valid"].any())
        if evaluated:
            rows.append(_valid(_fetched(new)))
            check_rows(rows[0], rows[-1])
        if done in _regroup_rounds(method, settings):
            with lying(there, mesh):
                regrouped = distributed.same(_regroup(method, settings, run_keys, _fetched(carry), federation, hyper, done))
                carry = placed(regrouped, mesh, True)
        if progress is not None:
            progress(done, rows[-1]["accuracy"][:runs, -1] if evaluated else np.full(runs, np.nan))
        if checkpoint is not None and 0 < done < settings.rounds:
            spent = Spent(seconds_setup, seconds_compile, clock.total, clock.evaluation)
            checkpoint(lambda: Checkpoint(done, named(_fetched(carry)), _joined(rows), spent))  # noqa: B023
    history = _joined(rows)
    seconds = (seconds_setup, seconds_compile, *clock.split(history["round"].shape[1]))
    return _outputs(method, model, _fetched(carry), history, runs, seconds, settings.vector_up)


def _inputs(
    method: Method,
    federation: Federation,
    settings: Settings,
    seeds: list[int],
    hypers: list[dict[str, float]],
    mesh: jax.sharding.Mesh | None,
    shard: bool,
) -> tuple[jax.Array, Hyper, Any, Federation]:
    """What all runs start from, a leading R on every array but the federation's: keys, numbers, what the method prepares, and
    the federation where it is computed on."""
    spare = 0 if mesh is None else -len(seeds) % mesh.shape.get(RUNS, 1)  # groups of devices have as many runs each: the last again
    seeds, hypers = seeds + seeds[-1:] * spare, hypers + hypers[-1:] * spare
    hypers = [exact_share(settings.sending, each, federation) for each in hypers]
    run_keys = jnp.stack([keys.root(seed) for seed in seeds])
    hyper = {name: jnp.array([h[name] for h in hypers], jnp.float32) for name in hypers[0]}
    there = sharded(federation, mesh) if shard and mesh is not None else placed(federation, mesh)
    with jax.default_matmul_precision(settings.precision), lying(there, mesh):
        told = [h | {"participants": settings.participants} for h in hypers]
        setup = distributed.same(_setups(method, federation, run_keys, told, settings.sending))
    return run_keys, hyper, setup, there


def _fetched(arrays: Any) -> Any:
    """The arrays on the host, put together from the devices of this process, which have all of them."""

    def whole(array: Any) -> Any:
        if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
            return jax.device_get(array)
        out = np.empty(array.shape, array.dtype)
        for shard in array.addressable_shards:
            out[shard.index] = shard.data
        return out

    return jax.tree.map(whole, arrays)


def _setups(
    method: Method,
    federation: Federation,
    run_keys: Any,
    hypers: list[dict[str, float]],
    sending: Sending = Sending(),  # noqa: B008
) -> Any:
    """What the method prepares on the host, of all runs: a leading R on every array. `hyper["participants"]` tells it how
    many clients a round has."""
    if method.setup is None:
        return {}
    each = []
    for r, hyper in enumerate(hypers):
        numbers: Hyper = {name: jnp.float32(value) for name, value in hyper.items()}
        each.append(method.setup(run_keys[r], as_trained_on(sending, numbers, federation), numbers))
    return jax.tree.map(_stack, *each)


def _stack(*each: Any) -> jax.Array:
    """The runs' arrays as one; where they differ in their first axis (numbers of clusters found), zeros fill up the shorter."""
    arrays = [np.asarray(e) for e in each]
    if arrays[0].ndim:
        longest = max(len(a) for a in arrays)
        arrays = [np.concatenate([a, np.zeros((longest - len(a), *a.shape[1:]), a.dtype)]) for a in arrays]
    return jnp.asarray(np.stack(arrays))


def _first_carry(
    program: Program, args: tuple[Any, ...], federation: Federation, where: tuple[Hashable, Any], resume: Checkpoint | None
) -> tuple[Carry, float]:
    """(the carry to go on from, seconds of compiling so far); `args` of the program's start."""
    mesh = where[1]
    if resume is None:
        start, seconds = _compile(everywhere(program.start, mesh, 3), args, (where, "start"), ())
        return start(*args), seconds
    like = jax.eval_shape(program.start, *args[:3], federation)  # the set-up gives the structure that the saved arrays go into
    return placed(restore(like, resume.carry), mesh, True), resume.spent.compile


def _compile(
    f: Callable[..., Any], args: tuple[Any, ...], key: tuple[tuple[Hashable, Any], str], donate: tuple[int, ...]
) -> tuple[Any, float]:
    """(f compiled for these arguments, seconds); a program that this process has compiled before costs nothing. `key`: ((what
    made the program or None, the mesh), which of its functions)."""
    global compilations
    shapes = jax.tree.map(lambda a: (jnp.shape(a), str(jnp.result_type(a))), args)
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[1], str))
    full = (key, tuple(leaves), structure)
    if key[0][0] is not None and full in _compiled:
        return _compiled[full][0], 0.0
    begin = time.perf_counter()
    dealt = key[0][1] is not None
    forms = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a), sharding=a.sharding if dealt else None), args
    )
    compiled = jax.jit(f, donate_argnums=donate).lower(*forms).compile()
    compilations += 1
    seconds = time.perf_counter() - begin
    if key[0][0] is not None:
        _compiled[full] = (compiled, seconds)
        if len(_compiled) > KEPT:
            _compiled.pop(next(iter(_compiled)))
    return compiled, seconds


def _regroup_rounds(method: Method, settings: Settings) -> tuple[int, ...]:
    return () if method.regroup_after is None else tuple(method.regroup_after(settings.rounds))


def _next_stop(method: Method, settings: Settings, done: int, most: int) -> int:
    """Where the next chunk must end: at the next regrouping, or when it has made as many rounds or evaluations as it may."""
    ahead = [r for r in _regroup_rounds(method, settings) if r > done]
    room = (done // settings.eval_every + settings.evaluations) * settings.eval_every
    return min([settings.rounds, room, done + most, *ahead])


def _regroup(
    method: Method, settings: Settings, run_keys: Any, carry: Carry, federation: Federation, hyper: Any, done: int
) -> Carry:
    """The method's host step for each run, with the states taken apart and put together again."""
    assert method.regroup is not None
    states = []
    for r in range(run_keys.shape[0]):
        take = lambda a, r=r: a[r]  # noqa: E731
        key = keys.fold(run_keys[r], "regroup", done)
        own = {k: v[r] for k, v in hyper.items()}
        seen = as_trained_on(settings.sending, own, federation)
        states.append(method.regroup(key, jax.tree.map(take, carry.state), seen, own, done))
    return carry._replace(state=jax.tree.map(lambda *each: jnp.stack([jnp.asarray(e) for e in each]), *states))


def _valid(rows: dict[str, Any]) -> dict[str, Any]:
    """The rows that were filled: [R, E, …] -> [R, E', …]."""
    keep = rows["valid"][0]
    return jax.tree.map(lambda a: a[:, keep], rows)


def _joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rows)


def _outputs(
    method: Method,
    model: Model,
    carry: Carry,
    everything: dict[str, Any],
    runs: int,
    seconds: tuple[float, ...],
    vector_up: int | None,
) -> list[Output]:
    """One Output per run; the batch's seconds are shared out evenly."""
    outputs = []
    for r in range(runs):
        row = jax.tree.map(lambda a, r=r: a[r], everything)
        state = jax.tree.map(lambda a, r=r: a[r], carry.state)
        models, labels = method.models(state)
        once = {} if method.extras is None else {name: np.asarray(v) for name, v in method.extras(state).items()}
        vectors_down, vectors_up, floats_down, floats_up = (row.pop("traffic").astype(np.float64) @ np.array([WORD, 1.0])).T
        history = {name: np.asarray(v) for name, v in row.items() if name not in ("labels", "diag", "valid")}
        history["bytes_down"] = 4 * (vectors_down * model.size + floats_down)
        history["bytes_up"] = vectors_up * (4 * model.size if vector_up is None else vector_up) + 4 * floats_up
        kept = np.asarray(row["labels"]) if "labels" in row else np.asarray(labels)[None]
        outputs.append(
            Output(
                history, kept, np.asarray(carry.client_accuracy[r]), np.asarray(models), row["diag"] | once,
                int(carry.diverged_at[r]), *(s / runs for s in seconds),
            )
        )  # fmt: skip
    return outputs
