"""Small registries to name things from, so that these tests do not depend on which methods and data
sets there are."""

import contextlib
import dataclasses
from unittest import mock

from cfljax.config import read_spec
from cfljax.data import SOURCES
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions, option
from cfljax.round.config import MethodConfig


@dataclasses.dataclass(frozen=True)
class Synthetic:
    default_partition = "user"

    model_spread: float = option(1.0, low=0)
    users: int = option(100, low=1)


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
            raise SpecError(
                f"{where}: train.momentum = {train.momentum}: must be 0, beta is the momentum here"
            )


SMALL = {
    SOURCES: {"digits": NoOptions, "synthetic": Synthetic},
    PARTITIONS: {"iid": Iid, "dirichlet": Dirichlet, "rotated": Rotated, "user": Iid},
    MODELS: {"mclr": NoOptions, "mlp": Mlp},
    METHODS: {"fedavg": Average, "fedprox": Prox, "ifca": Ifca, "cfl_mgd": Mgd},
}
BASE = {"data": {"name": "digits"}, "method": "fedavg"}


def read(spec, *sets):
    """The spec, read with the small registries in place of the package's."""
    with contextlib.ExitStack() as stack:
        for registry, options in SMALL.items():
            entries = {name: Entry(cls, lambda: None) for name, cls in options.items()}
            stack.enter_context(mock.patch.object(registry, "_lines", entries))
        return read_spec(spec, sets)


def runs(spec=BASE, *sets):
    return read(spec, *sets).runs()


def spec(**changes):
    return {**BASE, **changes}
