"""Small registries to name things from, so that these tests do not depend on which methods and data sets there are."""

import dataclasses

from cfljax.config import Known, read_spec
from cfljax.errors import DataError, SpecError
from cfljax.methods.shared.config import MethodConfig
from cfljax.registry import Registry
from cfljax.registry.options import NoOptions, option


@dataclasses.dataclass(frozen=True)
class Files:
    classes: int | None = option(None, low=1)
    checksums: bool = option(True)


@dataclasses.dataclass(frozen=True)
class Synthetic:
    alpha: float = option(1.0, low=0)
    users: int = option(100, low=1)
    clients: int = option(50, low=1)


@dataclasses.dataclass(frozen=True)
class Iid:
    clients: int = option(100, low=1)
    test: str = option("own", choices=("own", "global"))


@dataclasses.dataclass(frozen=True)
class Dirichlet(Iid):
    alpha: float = option(0.5, above=0)


@dataclasses.dataclass(frozen=True)
class Rotated(Iid):
    groups: int = option(4, low=1)
    samples_per_client: int | None = option(None, low=1)
    angles: tuple[int, ...] = option(())


@dataclasses.dataclass(frozen=True)
class Mlp:
    hidden: tuple[int, ...] = option((200,), low=1)


@dataclasses.dataclass(frozen=True)
class Average(MethodConfig):
    average: str = option("samples", choices=("samples", "uniform"))


@dataclasses.dataclass(frozen=True)
class Prox(Average):
    mu: float = option(1.0, low=0, traced=True)


@dataclasses.dataclass(frozen=True)
class Ifca(MethodConfig):
    clusters: int = option(2, low=1)
    average: str = option("uniform", choices=("samples", "uniform"))
    estimate: str = option("full", choices=("full", "batch"))


@dataclasses.dataclass(frozen=True)
class Mgd(Ifca):
    beta: float = option(0.9, low=0, traced=True)
    rho: float = option(0.5, low=0, traced=True)
    low_rho: bool = option(False)

    def check(self, where):
        if self.estimate == "batch" and self.clusters == 1:
            raise SpecError(f'{where}.estimate = "batch": needs clusters > 1')

    def check_run(self, where, train, data, model):
        if train.momentum:
            raise SpecError(f"{where}: train.momentum = {train.momentum}: must be 0, beta is the momentum here")


def _registry(kind, **options):
    registry = Registry(kind, {})
    for name, cls in options.items():
        registry.add(name, lambda: None, cls)
    return registry


def _find(name, path=None):
    raise DataError(f"{name} not found")


SOURCES = _registry("data set", digits=NoOptions, synthetic=Synthetic)
HAS = Known(
    SOURCES,
    lambda name: SOURCES.entry(name).options if name in SOURCES else Files,
    _find,
    _registry("partition", iid=Iid, dirichlet=Dirichlet, rotated=Rotated, user=Iid),
    _registry("model", mclr=NoOptions, mlp=Mlp),
    _registry("method", fedavg=Average, fedprox=Prox, ifca=Ifca, cfl_mgd=Mgd),
)
BASE = {"data": {"name": "digits"}, "method": "fedavg"}


def read(spec, *sets):
    return read_spec(spec, sets, HAS)


def runs(spec=BASE, *sets):
    return read(spec, *sets).runs()


def spec(**changes):
    return {**BASE, **changes}
