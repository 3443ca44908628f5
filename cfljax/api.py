"""The functions `run`, `sweep` and `load`: from options or specs to results."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import itertools
import numbers
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfljax.registry.options import Table, Value

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from cfljax.config import Run
    from cfljax.contract.battery import Check
    from cfljax.launch.checkpoints import Checkpoints
    from cfljax.models.apply import Network
    from cfljax.report.results import Results
    from cfljax.results.result import Result
    from cfljax.store import Store

    # Samples as `run` describes them; data sets of other libraries are no types that it knows
    Data = str | Table | tuple[np.ndarray, ...] | pandas.DataFrame | Any

# Is called with (rounds done, numbers by their names in the history); True ends the run
Callback = Callable[[int, dict[str, float]], object]
QUICKSTART = Path(__file__).parent / "config" / "quickstart.toml"


def run(
    method: str | Table = "fedavg",
    data: Data = "digits",
    model: str | Table | Network = "mlp",
    *,
    seed: int = 0,
    progress: bool | None = None,
    train: Table | None = None,
    callback: Callback | None = None,
    **options: Value,
) -> Result:
    """Run one method: `cfljax.run(method="fedgroup", data="digits", rounds=30, seed=0,
    clusters=4)`.

    `data`, `model` and `method` are names, or tables as in a spec (`{"name": "mnist", "partition":
    "rotated"}`); `model` may also be a flax.linen module, a class or factory of flax.nnx modules,
    or a pair `(init, apply)`.

    `data` may also hold the samples: arrays `(x, y)` or `(x, y, user)`, `((x_train, y_train),
    (x_test, y_test))`, a dict of arrays and options (`{"x": x, "y": y, "partition": "iid"}`), or a
    data frame or `datasets.Dataset`, of which `label` and `user` name columns. Without test samples
    a fifth is split off. Their users are the clients, else clients with label skew are drawn,
    unless the dict says otherwise. The id of the run depends on the contents.

    Further options are of `train` (rounds, participation, epochs, batch,
    lr, …) or of the method (clusters, mu, …), by name; an option that both have is given in the
    table `train` or `method`.

    `progress`: show how far the run is; by default only in notebooks.

    `callback(round, metrics)` is called at each evaluation, that of round 0 included, with numbers
    by their names in the result's `history`: `metrics["accuracy"]`. If it returns True, the run
    ends there, and its result has `stopped_at`. An error that it raises ends the call."""
    from cfljax.config import Train
    from cfljax.data import given
    from cfljax.errors import SpecError
    from cfljax.methods import METHODS

    _check_arguments(seed, options)
    if not isinstance(model, str | dict):
        model = _own_model(model)
    if given.is_frame(data):
        columns = {key: options.pop(key) for key in ("label", "user") if key in options}
        data = given.register(data, **columns, **_target_of(model))
    elif given.is_given(data):
        data = given.register(data, **_target_of(model))
    known = {field.name for field in dataclasses.fields(Train)}
    training = (train or {}) | {key: value for key, value in options.items() if key in known}
    own = {key: value for key, value in options.items() if key not in known}
    chosen = _table("method", method)
    name = str(chosen.get("name"))
    if name in METHODS:
        fields = {field.name for field in dataclasses.fields(METHODS.entry(name).options)}
        for key in own.keys() - fields - {"label"}:
            if near := difflib.get_close_matches(key, known, n=1, cutoff=0.75):
                raise SpecError(
                    f'{key} = {own[key]!r:.60}: there is no such option; did you mean "{near[0]}"?'
                )
        for key in sorted(fields & set(options) & known):
            ways = (
                f'train={{"{key}": {options[key]!r}}} or method={{"name": "{name}", "{key}": '
                f"{options[key]!r}}}"
            )
            raise SpecError(
                f"{key} = {options[key]!r}: is an option of train and of {name}; write {ways}"
            )
    table = {
        "data": _table("data", data),
        "model": _table("model", model),
        "method": [chosen | own],
        "train": training,
        "seeds": [seed],
    }
    return one_run(table, progress=progress, callback=callback)


def _check_arguments(seed: object, options: Table) -> None:
    """Reject what other programs take and `run` does not, with what to write instead."""
    from cfljax.errors import SpecError

    if "seeds" in options or not isinstance(seed, numbers.Integral) or isinstance(seed, bool):
        given = (
            f"seeds = {options['seeds']!r:.60}" if "seeds" in options else f"seed = {seed!r:.60}"
        )
        raise SpecError(
            f"{given}: run makes one run, with seed=3; for several take cfljax.sweep with "
            '"seeds": "0:5" in its table'
        )
    for key, value in options.items():
        if any(map(callable, value if isinstance(value, list | tuple) else [value])):
            raise SpecError(
                f"{key}: an option is no function; callback= is called at each evaluation, and "
                "cfljax.register_metric adds a quantity to the curves"
            )


def one_run(
    table: Table | Path,
    sets: Iterable[str] = (),
    progress: bool | None = None,
    callback: Callback | None = None,
) -> Result:
    """Run the single run that a spec describes. `progress`, `callback`: as for `run`."""
    from cfljax.config import read_spec
    from cfljax.devices.cores import use_cores
    from cfljax.errors import SpecError, SpecWarning
    from cfljax.files import use_compilation_cache

    use_cores()
    use_compilation_cache()
    spec = read_spec(table, sets)
    runs = spec.runs()
    if len(runs) != 1:
        raise SpecError(
            f"this is one run, and these options make {len(runs)}; use cfljax.sweep for a grid"
        )
    for message in spec.warnings:
        warnings.warn(message, SpecWarning, stacklevel=3)
    return _compute(runs[0], progress, callback)


def _compute(
    run: Run,
    progress: bool | None,
    callback: Callback | None,
    checkpoints: Checkpoints | None = None,
) -> Result:
    """Compute a run in this process. `checkpoints`: what it continues from."""
    from cfljax.devices.machine import describe_machine
    from cfljax.errors import CfljaxError
    from cfljax.experiment.batching import make_batches
    from cfljax.launch.batch import run_batch
    from cfljax.launch.display import find_notebook
    from cfljax.launch.progress import Progress
    from cfljax.launch.time_left import Work
    from cfljax.results.result import Result

    machine = describe_machine(speed=None)
    (batch,) = make_batches([run], 1)
    # Data that cannot be read are refused before anything is announced
    _ = batch.first.contents
    shown = find_notebook() is not None if progress is None else progress
    with Progress(Work({run.label: run.train.rounds}), quiet=not shown) as bar:
        bar.start(run.label, run.train.rounds)

        def report(done: int, accuracy: float | None) -> None:
            bar.update(done - int(bar.done), accuracy)

        def show_evaluation(run: Run, round: int, numbers: dict[str, float]) -> bool:  # noqa: ARG001
            return callback is not None and is_true(callback(round, numbers))

        try:
            ((record, arrays),) = run_batch(
                batch,
                machine,
                "state",
                report,
                checkpoints,
                catch=False,
                callback=None if callback is None else show_evaluation,
            )
        except CfljaxError as error:
            if os.environ.get("CFLJAX_DEBUG"):
                raise
            # The line says it all; a model's mistake has come through dozens of frames of flax
            raise error.with_traceback(None) from None
    return Result(record, arrays)


def is_true(answer: object) -> bool:
    """Return whether a callback asks to stop. Only True does: a function that draws returns
    anything."""
    import numpy as np

    return isinstance(answer, bool | np.bool_) and bool(answer)


def continue_run(
    result: Result,
    rounds: int,
    progress: bool | None = None,
    callback: Callback | None = None,
) -> Result:
    """Return the result of the run that is `rounds` longer, computed from the last state of this
    one (`Result.more`)."""
    from cfljax.config import read_spec
    from cfljax.devices.cores import use_cores
    from cfljax.errors import SpecError
    from cfljax.experiment.batching import make_batches
    from cfljax.files import use_compilation_cache
    from cfljax.launch.continuing import Shorter, continue_batch, load_in_memory, unpack_state
    from cfljax.results.predict import read_run

    if not isinstance(rounds, numbers.Integral) or isinstance(rounds, bool) or rounds < 1:
        raise SpecError(f"rounds = {rounds!r:.60}: must be how many rounds are added, from 1 on")
    if "state" not in result.record:
        raise SpecError(
            f"run {result.run}: has kept no state to continue from; compute it with --keep state "
            '(cfljax.sweep(…, keep="state")) or cfljax.run'
        )
    use_cores()
    use_compilation_cache()
    before = read_run(result.record)
    last = unpack_state(result.record, result.arrays)
    done = int(result.record["summary"]["rounds"])
    if done < before.train.rounds and result.stopped_at is None:
        raise SpecError(
            f"run {result.run}: train.stop has ended it in round {done}, as it would a longer run; "
            "leave out train.stop"
        )
    table = {key: value for key, value in before.resolved().items() if key != "plugins"}
    table["train"] = table["train"] | {"rounds": done + int(rounds)}
    (run,) = read_spec(table).runs()
    run = dataclasses.replace(run, label=result.label)
    (batch,) = make_batches([run], 1)
    saved, why = continue_batch(batch, [Shorter(before, result.record)], [last])
    if saved is None:
        raise SpecError(f"run {result.run}: cannot be continued: {why}")
    return _compute(run, progress, callback, load_in_memory(saved))


def sweep(
    spec: str | os.PathLike[str] | Table | None = None,
    out: str | os.PathLike[str] | None = None,
    sets: Iterable[str] = (),
    *,
    quiet: bool = False,
    keep: str = "labels",
    retry_failed: bool = False,
    target: float | None = None,
    callback: Callable[[int, dict[str, float], Table], object] | None = None,
) -> Results:
    """Carry out a sweep (a TOML file or a table; the quickstart when left out) and return its
    results. When it is called again with the same folder, it goes on where it stopped. With
    `keep="state"` a later call may raise `train.rounds`: runs continue where they have ended.
    `target`: as in `load`.

    `callback(round, metrics, run)` is called at each evaluation of each run, as in `run`; `run` has
    its `id`, `label`, `method`, `seed`, and in `varies` the options that differ between runs. Runs
    that it stops have `stopped_at` on record. A later call with a callback leaves them as they are;
    a call without one computes their other rounds."""
    from cfljax.config import read_spec
    from cfljax.errors import SpecError, suggest
    from cfljax.launch.batch import KEEP_CHOICES
    from cfljax.launch.sweep import SweepOptions, carry_out
    from cfljax.report.results import Results

    if keep not in KEEP_CHOICES:
        raise SpecError(f"keep = {keep!r}: unknown{suggest(str(keep), KEEP_CHOICES)}")
    _check_target(target)
    checked = read_spec(QUICKSTART if spec is None else _with_data(spec), sets)
    store = _opened(out, checked.name)
    show_evaluation = None
    if callback is not None:

        def show_evaluation(run: Run, round: int, numbers: dict[str, float]) -> bool:
            facts = {"id": run.id, "label": run.label, "method": run.method, "seed": run.seed}
            return is_true(callback(round, numbers, facts | {"varies": dict(run.varies)}))

    carry_out(checked, store, SweepOptions(keep, quiet, retry_failed, callback=show_evaluation))
    return Results(store.folder, target=target, sweep=checked.describe_sweep())


def tune(
    spec: str | os.PathLike[str] | Table,
    out: str | os.PathLike[str] | None = None,
    sets: Iterable[str] = (),
    *,
    budget: float | None = None,
    metric: str = "val_accuracy",
    then_compare: Iterable[int] | None = None,
    quiet: bool = False,
    keep: str = "labels",
) -> Results:
    """Find the best setting of each method of a spec by successive halving, and return the runs
    that came to the end. For a spec without ranges, each method tries nine settings of the ranges
    that its options declare (`search=` of `option`). `budget`: the whole runs that all methods
    together may cost. `metric`: what settings are chosen by; never a number from test data.
    `then_compare`: seeds on which the best setting of each method is run then; the results are
    those runs. Called again with the same folder, it goes on where it stopped."""
    from cfljax.config import read_spec
    from cfljax.launch import search
    from cfljax.launch.search_plan import plan_search
    from cfljax.launch.sweep import SweepOptions
    from cfljax.report.results import Results

    checked = read_spec(_with_data(spec), sets, tuned=True)
    plan = plan_search(checked, metric, budget)
    store = _opened(out, checked.name)
    _, last = search.tune(
        checked,
        plan,
        store,
        SweepOptions(keep, quiet),
        None if then_compare is None else list(then_compare),
    )
    return Results(store.folder, sweep=last.describe_sweep())


def check(what: str | os.PathLike[str] | Network, sets: Iterable[str] = ()) -> list[Check]:
    """Check a method or a model of one's own: play it for two rounds on small data, change what
    must not matter, and say what fails, as `cfljax check` does. Each check has a `subject`, a
    `property` in words, a `status` ("passed", "failed" or "skipped") and a `message` that says what
    to do.

    Args:
        what: a file with methods and models, the name of a method or model that is registered, or
            a model as `run` takes it.
        sets: options, other data or another model, such as `"method.mine.clusters=3"`.

    Example:
        ```python
        assert not [each for each in cfljax.check("bold.py") if each.status == "failed"]
        ```
    """
    from cfljax.contract.battery import check_file, check_name
    from cfljax.devices.cores import use_cores
    from cfljax.files import use_compilation_cache

    use_cores()
    use_compilation_cache()
    if not isinstance(what, str | os.PathLike):
        return check_name(_own_model(what), sets)
    name = os.fspath(what)
    return (check_file if name.endswith(".py") else check_name)(name, sets)


def import_data(
    source: str | os.PathLike[str] | Data,
    name: str | None = None,
    *,
    kind: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    replace: bool = False,
    **columns: Value,
) -> Table:
    """Import data as `cfljax data import` does, and return the table of a spec that uses them:
    `cfljax.run("ifca", data=cfljax.import_data("visits.csv", label="sick", user="hospital"))`.

    Args:
        source: a file or folder, `"hf:OWNER/NAME"`, or samples as `run` takes them.
        name: of the data in specs; by default that of the file. Samples need one.
        kind: `"csv"`, `"images"`, …, if the files of the source leave it open.
        folder: for the data, instead of `$CFLJAX_DATA` or the cache.
        replace: an earlier import of that name.
        columns: the other flags of the command: `label`, `user`, `drop=["a", "b"]`, `one_hot`,
            `shape=(32, 32)`, `text`, `by_user=True`, `test_fraction`, …"""
    from cfljax.data import given, importing, mapped

    where = None if folder is None else os.fspath(folder)
    options: Table = {}
    if isinstance(source, str | os.PathLike):
        wanted = given.check_wanted(columns)
        path = os.fspath(source)
        with given.name_arguments():
            target = importing.import_data(path, name, kind, wanted, where, replace)
        name = name or (path if importing.is_hub_name(path) else target.name)
    else:
        target, options = given.import_given(name, source, columns, where, replace)
        name = target.name
    by_domain = bool(columns.get("by_domain"))
    table = given.suggest_table(mapped.read(name, target), by_domain)
    return given.lay_options(table, options) | ({"path": str(target)} if where else {})


def _target_of(model: object) -> dict[str, bool]:
    """Return how the labels of arrays and frames are read: as numbers, if the losses of all models
    of a spec are for numbers."""
    from cfljax.models.losses import find_score
    from cfljax.types import Score

    tables = model if isinstance(model, list) else [model]
    losses: list[object] = []
    for table in tables:
        loss = table.get("loss") if isinstance(table, dict) else None
        losses += loss if isinstance(loss, list) else [loss]
    known = all(isinstance(loss, str) and find_score(loss) != Score() for loss in losses)
    return {"continuous": True} if known else {}


def _with_data(spec: str | os.PathLike[str] | Table) -> str | os.PathLike[str] | Table:
    """Register the data sets that a table of a spec holds itself, and return the table with their
    names."""
    from cfljax.data import given

    if not isinstance(spec, dict) or "data" not in spec:
        return spec
    data = spec["data"]
    several = data if isinstance(data, list) else [data]
    target = _target_of(spec.get("model"))
    found = [given.register(each, **target) if given.is_given(each) else each for each in several]
    return spec | {"data": found if isinstance(data, list) else found[0]}


def _opened(out: str | os.PathLike[str] | None, name: str) -> Store:
    """Open the results folder of the sweep of this name, and set devices and threads as in its
    plan."""
    from cfljax.devices.cores import list_cores, use_cores, use_threads
    from cfljax.files import use_compilation_cache
    from cfljax.store import Store

    store = Store(Path(out) if out is not None else default_folder(name))
    before = store.read_plan() or {}
    use_cores(before.get("devices"))
    use_threads(before.get("threads") or len(list_cores()))
    use_compilation_cache()
    return store


def default_folder(name: str) -> Path:
    """`results/<the sweep's name>`."""
    word = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
    return Path("results") / (word or "sweep")


def load(
    folder: str | os.PathLike[str], target: float | None = None, plugins: Iterable[str] = ()
) -> Results:
    """Load the results in a folder. `target`: count rounds and bytes to this accuracy (a fraction),
    from the curves. `plugins`: files or modules that samples and predictions of the runs need; a
    folder's own plug-ins are never executed unless they are named here."""
    from cfljax.report.results import Results
    from cfljax.store.errata import ErrataWarning, describe_errata

    _check_target(target)
    if named := list(plugins):
        from cfljax.config.plugins import load as load_plugins

        load_plugins(named, where="plugins")
    results = Results(folder, target=target)
    if line := describe_errata(folder, results.records.values()):
        warnings.warn(line, ErrataWarning, stacklevel=2)
    return results


def _check_target(target: float | None) -> None:
    from cfljax.errors import SpecError

    if target is not None and not 0 < target <= 1:
        raise SpecError(f"target = {target}: must be a fraction above 0 and up to 1, as in 0.9")


_own_models: dict[str, Network] = {}
_registering = threading.Lock()


def _own_model(model: Network) -> str:
    """Register a user's network and return the name of its entry, which stays registered as long as
    the process lives: predictions may be asked for later, and other threads run other networks.
    Equal networks have the same name."""
    from cfljax.models import MODELS
    from cfljax.registry.sources import source_text

    try:
        text = source_text(model)
    except (OSError, TypeError):
        text = secrets.token_hex()
    stem = f"own-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    with _registering:
        for name, known in _own_models.items():
            if known is model or _equal(known, model):
                return name
        name = next(n for n in (f"{stem}-{i}" for i in itertools.count(1)) if n not in _own_models)
        MODELS.add(name, lambda options, sample_shape, classes: model, version=text)  # noqa: ARG005
        _own_models[name] = model
    return name


def _equal(one: Network, other: Network) -> bool:
    """Return whether two networks are equal by their own comparison, as flax.linen modules with the
    same fields are."""
    try:
        return bool(one == other)
    except Exception:  # fields that are arrays have no truth value
        return False


def _table(key: str, what: object) -> Table:
    """Return the table for an argument of `run`: a name stands for a table with only that name."""
    from cfljax.errors import SpecError

    if isinstance(what, str):
        return {"name": what}
    if key == "data":
        from cfljax.data import given

        if not isinstance(what, dict):
            raise SpecError(f"data: must be {given.FORMS}, not {type(what).__name__}")
    if not isinstance(what, dict):
        raise SpecError(
            f"{key}: must be a name or a table with a name, not {what!r:.80}; for several "
            "use cfljax.sweep"
        )
    return dict(what)
