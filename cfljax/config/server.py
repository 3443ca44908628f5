"""What the server makes of the updates of a cluster: the table `train.server`, and the average "nova"."""

from __future__ import annotations

import dataclasses

from cfljax.config.frozen import FrozenTable
from cfljax.config.optimisers import check_optimiser
from cfljax.config.parts import pairs_of
from cfljax.errors import SpecError
from cfljax.registry.options import Table, Value, check, option, show
from cfljax.round.config import MethodConfig, TrainOptions

WHERE = "train.server"
_RANDOM = ("noisy_sgd",)


@dataclasses.dataclass(frozen=True)
class Server:
    """An optimiser of optax that moves the model of each cluster by what a round made of it."""

    name: str = option(help="an optimiser of optax, fedadam, fedyogi or fedadagrad")
    lr: float = option(help="its learning rate, the same in all rounds", low=0, traced=True)
    arguments: Table | None = option(None, "its other arguments, written beside name and lr", beside=True)

    def check(self, where: str) -> None:
        """Raise a SpecError for what optax does not have."""
        if self.name in _RANDOM:
            raise SpecError(f'{where} = "{self.name}": keeps a random key, which checkpoints do not; noise is train.privacy')
        check_optimiser(self.name, self.arguments or {}, where, f"{where}.lr", server=True)


def read_server(value: Value) -> Server | None:
    """The checked options of the table; None and "none" stand for no table."""
    if value is None or value == "none":
        return None
    if isinstance(value, Server):
        return value
    if isinstance(value, str):
        raise SpecError(f'{WHERE} = "{value}": give its learning rate, too: {{ name = "{value}", lr = 0.1 }}')
    own = {key: each for key, each in value.items() if key in ("name", "lr")}
    rest = {key: each for key, each in value.items() if key not in own}
    return check(Server, own | {"arguments": FrozenTable(rest) if rest else None}, WHERE)


def check_server(label: str, options: MethodConfig, server: Server | None) -> None:
    """Raise a SpecError if the method has no models that an optimiser could move from round to round."""
    if server is not None and not options.serves:
        if options.own_server:
            raise SpecError(f"{WHERE}: the step of the server is method.{label}'s own; leave it out")
        why = "it averages nothing, or makes other clusters in the course of a run"
        raise SpecError(f"{WHERE}: method.{label} has no cluster models that stay what they are ({why}); leave it out")


def check_average(label: str, options: MethodConfig, train: TrainOptions) -> None:
    """Raise a SpecError where it is not known by how much a client's steps move its model, which FedNova divides by, or where what
    it makes of a cluster would be averaged again."""
    if getattr(options, "average", "") != "nova":
        return
    where = f'method.{label}.average = "nova"'
    if train.optimizer != "sgd":
        raise SpecError(f"{where}: is for steps of SGD; leave out train.optimizer = {show(train.optimizer_pair[0])}")
    if train.schedule is not None:
        raise SpecError(f'{where}: head and body take different numbers of steps; leave out train.schedule = "{train.schedule}"')
    for part, kind in pairs_of(options, train):
        if kind == "all":
            told = f'what everybody shares is not averaged by steps; make it {part} = "cluster", or take average = "samples"'
            raise SpecError(f'{where} with train.parts.{part} = "all": {told}')
    if train.transit.robust is not None:
        raise SpecError(f"{where}: a robust rule looks at updates as they are sent, long ones too; leave out train.robust")
    if getattr(options, "aggregate", "model") == "gradient":
        raise SpecError(f'{where}: all take one step with aggregate = "gradient"; take average = "samples"')
