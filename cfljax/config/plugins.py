"""Bring your own: methods, models, partitions, data sets, metrics, compressors and losses from
outside the package, used in a spec by name.

`plugins = ["my_method.py"]` in a spec, or `--plugin my_method.py`, loads a file whose decorators
register what it holds; an installed package does the same through the entry points
`cfljax.methods`, `cfljax.models`, `cfljax.partitions`, `cfljax.data`, `cfljax.metrics`,
`cfljax.compressors` and `cfljax.losses`. A plugin is the user's own program: it runs with all the
user's rights.

The files of a folder are modules of a package that stands for the folder, so that a plugin imports
a module beside it by `from . import helper`. Python's path and the names of other modules stay as
they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from cfljax.errors import CfljaxError, SpecError, suggest
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.registry import Registry, adopt
from cfljax.registry.entries import Make, Origin, load_as
from cfljax.registry.options import NoOptions, show
from cfljax.registry.renamed import explain_old_name
from cfljax.registry.sources import (
    find_package,
    find_program,
    hash_code,
    list_imports_beside,
    source_text,
)

if TYPE_CHECKING:
    from cfljax.data.sources import MakeSource
    from cfljax.engine.metrics import Seen
    from cfljax.federation.common import Partition
    from cfljax.local.compressors import Compressor
    from cfljax.models import MakeModel
    from cfljax.round.config import MakeMethod
    from cfljax.types import Array, OfLogits

MethodT = TypeVar("MethodT", bound="MakeMethod[Any]")
ModelT = TypeVar("ModelT", bound="MakeModel")
PartitionT = TypeVar("PartitionT", bound="Partition")
SourceT = TypeVar("SourceT", bound="MakeSource")
CompressorT = TypeVar("CompressorT", bound="type[Compressor]")
MetricT = TypeVar("MetricT", bound="Callable[[Seen], Array | float]")
# Plugin -> the SHA-256 of its source when it was loaded
_loaded: dict[str, str] = {}
# The files of all plugins that were loaded
_files: set[str] = set()
# A time before this process loaded its first plug-in
_BEGAN = time.time()


def register_method(
    name: str, options: type = NoOptions, *, version: object = None
) -> Callable[[MethodT], MethodT]:
    """Register a class (a recipe like `Clustered`, a frozen dataclass), or `make(config, model,
    solver) -> Method` with the class `options` of its `config`, under a name. `version`, in each of
    these functions: for an entry of a notebook, part of its runs' ids beside the source."""

    def add(made: Any) -> Any:
        from cfljax.round.entry import entry

        of_class = isinstance(made, type)
        METHODS.add(
            name,
            entry(name, made).make if of_class else made,
            made if of_class else options,
            version,
        )
        return made

    return add


def register_model(
    name: str, options: type = NoOptions, *, version: object = None
) -> Callable[[ModelT], ModelT]:
    """Register `make(options, sample_shape, classes)` -> a flax.linen module, a flax.nnx class or
    factory, or `(init, apply)`."""
    from cfljax.models import MODELS

    return _register(MODELS, name, options, version, ("options", "sample_shape", "classes"))


def register_partition(
    name: str, options: type = NoOptions, *, version: object = None
) -> Callable[[PartitionT], PartitionT]:
    """Register `make(options, source, rng) -> Parts`: which client holds which rows."""
    return _register(PARTITIONS, name, options, version, ("options", "source", "rng"))


def register_data(
    name: str, options: type = NoOptions, *, version: object = None
) -> Callable[[SourceT], SourceT]:
    """Register `make(options, rng)`, which returns a dict of arrays `x_train, y_train, x_test,
    y_test` (and `user_train, user_test` if samples have users), or a `cfljax.extend.Source`."""
    from cfljax.data import SOURCES

    return _register(SOURCES, name, options, version, ("options", "rng"))


def register_metric(name: str, *, version: object = None) -> Callable[[MetricT], MetricT]:
    """Register `metric(seen) -> f32[]`, computed at each evaluation inside the compiled program;
    `seen` is a `cfljax.extend.Seen`. A run asks for it by `train.metrics = ["name"]`."""
    from cfljax.engine.metrics import METRICS

    return _register(METRICS, name, NoOptions, version)


def register_compressor(
    name: str, *, version: object = None
) -> Callable[[CompressorT], CompressorT]:
    """Register a frozen dataclass, a `cfljax.extend.Compressor`: how updates are sent. A run asks
    for it by `train.compress = { name = "name" }`, beside which stand its options."""
    from cfljax.local.compressors import COMPRESSORS, Compressor

    def add(made: CompressorT) -> CompressorT:
        if not (isinstance(made, type) and issubclass(made, Compressor)):
            raise SpecError(
                f'compressor "{name}": {made!r:.60}: must be a frozen dataclass that inherits from '
                "cfljax.extend.Compressor (the class itself)"
            )
        COMPRESSORS.add(name, made, made, version)
        return made

    return add


def register_loss(
    name: str,
    loss: OfLogits,
    score: OfLogits | None = None,
    *,
    outputs: int | None = None,
    version: object = None,
) -> None:
    """Register a loss, which a run has by `model.loss = "name"`.

    Args:
        name: the value of `model.loss`.
        loss: (outputs f32[B, outputs], y f32[B] or i32[B]) -> f32[B], of each sample.
        score: the same arguments -> f32[B], how good each prediction is: the higher the better, 1
            is perfect. Columns have the name of this function where those of classes have
            "accuracy". None: labels are classes, and the score is the accuracy.
        outputs: how many outputs the model has; None: one per class, and one for a number.
        version: for functions of a notebook, part of the ids beside their sources."""
    from cfljax.engine.metrics import RESERVED_NAMES
    from cfljax.models.losses import LOSSES, Loss
    from cfljax.types import Score

    for function in (loss, score):
        if function is not None and not (callable(function) and _takes(function, 2)):
            raise SpecError(
                f'loss "{name}": {getattr(function, "__name__", function)!r:.60}: must be a '
                "function of (outputs, y)"
            )
    column = Score() if score is None else Score(getattr(score, "__name__", ""))
    if score is not None and (not column.name.isidentifier() or column.name in RESERVED_NAMES):
        raise SpecError(
            f'loss "{name}": its columns have the name of the score\'s function, and '
            f'"{column.name}" cannot be one; define the score by def, under a name of its own'
        )

    @functools.wraps(loss)
    def make() -> Loss:
        return Loss(loss, score, column, outputs)

    # Both functions tell versions apart. Where Python has no source, only a version does
    with contextlib.suppress(OSError, TypeError):
        version = source_text((loss, score, outputs, version))
    LOSSES.add(name, make, version=version)


def _register(
    registry: Registry[Make],
    name: str,
    options: type,
    version: object,
    arguments: tuple[str, ...] = (),
) -> Callable[[Any], Any]:
    """Return the decorator that adds an entry. `arguments`: what the entry is called with, so that
    one that takes others is refused before a run; (): the registry checks it."""

    def add(make: Make) -> Make:
        if arguments and not _takes(make, len(arguments)):
            raise SpecError(
                f'{registry.kind} "{name}": {getattr(make, "__name__", "it")} is called with other '
                f"arguments than it takes; register a function of ({', '.join(arguments)})"
            )
        registry.add(name, make, options, version)
        return make

    return add


def _takes(make: Any, arguments: int) -> bool:
    """Return whether something can be called with so many arguments, as far as it tells."""
    if not callable(make):
        return True
    # flax.linen adds `parent` and `name` to a class, which it takes by name alone
    fields = dataclasses.fields(make) if dataclasses.is_dataclass(make) else ()
    own = [field for field in fields if field.name not in ("parent", "name")]
    if fields and len(own) < arguments:
        return False
    try:
        signature = inspect.signature(make)
    except ValueError:  # it tells nothing
        return True
    # A data set may ask for the folders of data by this name
    named = {"where": None} if "where" in signature.parameters else {}
    try:
        signature.bind(*range(arguments), **named)
    except TypeError:
        return False
    return True


def load(names: Iterable[str], near: Path | None = None, where: str = "--plugin") -> list[str]:
    """Load plug-ins, and return the names under which another process finds them from any folder. A
    plug-in that is loaded already is loaded again only if its source has changed.

    Args:
        names: files (`my_method.py`) or modules (`my_package.methods`).
        near: the folder of the spec. A relative file is looked for there, then in the current
            folder.
        where: the key or flag that errors name."""
    found = []
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise SpecError(f"{where} = {show(name)}: must be the name of a Python file or module")
        if name.endswith(".py"):
            path = Path(name).expanduser()
            beside_spec = (near or Path()) / path
            found.append(
                _load_file(
                    path if path.is_file() and not beside_spec.is_file() else beside_spec, where
                )
            )
        else:
            found.append(_load_module(name, where))
    return found


def list_loaded() -> dict[str, str]:
    """Map each plug-in to the SHA-256 of its source when it was loaded."""
    return dict(_loaded)


def _load_file(path: Path, where: str) -> str:
    """Load a plug-in that is a file, and return its absolute path."""
    try:
        path = path.resolve(strict=True)
        files = find_program([path], path.parent)
        for file, module in list_imports_beside(files, path.parent):
            raise SpecError(
                f'{where} = "{path}": {file.name} imports {module} of the plug-in\'s folder: write '
                f'it as a relative import, "from . import {module}"'
            )
        return _load_once(str(path), files, lambda: execute(path), where)
    except OSError as error:
        near = (
            suggest(path.name, [p.name for p in path.parent.glob("*.py")])
            if path.parent.is_dir()
            else ""
        )
        raise SpecError(
            f'{where} = "{path}": cannot be read ({error.strerror or error}){near}'
        ) from None


def _load_module(name: str, where: str) -> str:
    """Load a plug-in that is an installed module, and return its name."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise SpecError(f'{where} = "{name}": there is no such module; a file ends in .py')
    return _load_once(
        name, find_program(find_package(name)), lambda: importlib.import_module(name), where
    )


def _load_once(
    name: str, files: list[Path], import_it: Callable[[], ModuleType], where: str
) -> str:
    """Execute a plug-in that consists of these files, unless it was loaded from the same source
    before, and return its name.

    Args:
        name: the plug-in's file or module.
        files: all files of its program.
        import_it: imports or executes it.
        where: the key or flag that errors name."""
    code = hash_code(files)
    if _loaded.get(name) == code:
        return name
    # An earlier version may be among the imported modules, which `import` would return. It is not
    # if the files are older than the process and were not loaded before.
    if name in _loaded or any(
        max(file.stat().st_mtime, file.stat().st_ctime) >= _BEGAN for file in files
    ):
        for module in [
            n
            for n, m in sys.modules.items()
            if getattr(m, "__file__", None) in set(map(str, files))
        ]:
            del sys.modules[module]
            parent, _, name_in_it = module.rpartition(".")
            # `from . import helper` takes an attribute of the package before it looks for a module
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(name_in_it, None)
    origin = Origin(code, name)
    importlib.invalidate_caches()
    try:
        with load_as(origin), _without_bytecode():
            import_it()
    except CfljaxError as error:
        raise type(error)(f'{where} = "{name}": {error}') from error
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
        line = f"line {frames[-1].lineno}: " if frames else ""
        why = f"{line}{type(error).__name__}: {error}{explain_old_name(error)}"
        raise SpecError(f'{where} = "{name}": {why}') from error
    if not name.endswith(".py"):
        adopt(set(map(str, files)), origin)
    _loaded[name] = code
    _files.update([name, *map(str, files)])
    return name


@contextlib.contextmanager
def _without_bytecode() -> Iterator[None]:
    """Import without writing compiled modules, which are outdated when a source changes again
    within a second."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def locate_error(error: BaseException) -> str:
    """Return where in a plug-in an error was raised, as in `soft.py, line 62: `; "" for other
    errors."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _files
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""


def execute(path: Path) -> ModuleType:
    """Execute the file as a new module of its folder's package."""
    root = f"cfljax_plugin_{hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]}"
    package = sys.modules.setdefault(root, ModuleType(root))
    package.__path__ = [str(path.parent)]
    stem = path.stem
    if not stem.isidentifier():
        stem = re.sub(r"[^0-9A-Za-z_]", "_", f"plugin_{stem}")
    spec = importlib.util.spec_from_file_location(f"{root}.{stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
