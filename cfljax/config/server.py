"""How the server applies the updates of a cluster: the table `train.server`, and the average "nova"."""

from __future__ import annotations

import dataclasses

from cfljax.config.frozen import FrozenTable
from cfljax.config.optimisers import check_optimiser
from cfljax.config.parts import list_pairs
from cfljax.errors import SpecError
from cfljax.registry.options import Table, Value, check, option, show
from cfljax.round.config import MethodConfig, TrainOptions

TABLE = "train.server"
_RANDOM = ("noisy_sgd",)


@dataclasses.dataclass(frozen=True)
class Server:
    """An optimiser of optax that moves the model of each cluster by what a round made of it."""

    name: str = option(help="an optimiser of optax, fedadam, fedyogi or fedadagrad")
    lr: float = option(help="its learning rate, the same in all rounds", low=0, traced=True)
    arguments: Table | None = option(None, "its other arguments, written next to name and lr", beside=True)

    def check(self, where: str) -> None:
        """Reject what optax does not have."""
        if self.name in _RANDOM:
            raise SpecError(f'{where} = "{self.name}": keeps a random key, which checkpoints do not; noise is train.privacy')
        check_optimiser(self.name, self.arguments or {}, where, f"{where}.lr", server=True)


def read_server(value: Value) -> Server | None:
    """Check the options of the table; None and "none" mean no table."""
    if value is None or value == "none":
        return None
    if isinstance(value, Server):
        return value
    if isinstance(value, str):
        raise SpecError(f'{TABLE} = "{value}": give its learning rate, too: {{ name = "{value}", lr = 0.1 }}')
    own = {key: each for key, each in value.items() if key in ("name", "lr")}
    rest = {key: each for key, each in value.items() if key not in own}
    return check(Server, own | {"arguments": FrozenTable(rest) if rest else None}, TABLE)


def check_server(label: str, options: MethodConfig, server: Server | None) -> None:
    """Reject a method without models that an optimiser could move from round to round."""
    if server is not None and not options.serves:
        if options.own_server:
            raise SpecError(f"{TABLE}: the step of the server is method.{label}'s own; leave it out")
        why = "it does not average, or changes its clusters during a run"
        raise SpecError(f"{TABLE}: method.{label} has no lasting cluster models ({why}); leave it out")


def check_average(label: str, options: MethodConfig, train: TrainOptions) -> None:
    """Reject FedNova if it is unknown by how much a client's steps move its model, or if the result would be averaged again."""
    if getattr(options, "average", "") != "nova":
        return
    where = f'method.{label}.average = "nova"'
    if train.optimizer != "sgd":
        raise SpecError(f"{where}: is for steps of SGD; leave out train.optimizer = {show(train.optimizer_pair[0])}")
    if train.schedule is not None:
        raise SpecError(f'{where}: head and body take different numbers of steps; leave out train.schedule = "{train.schedule}"')
    for part, kind in list_pairs(options, train):
        if kind == "all":
            told = (
                f'a part that all clients share is not averaged by steps; make it {part} = "cluster", or take average = "samples"'
            )
            raise SpecError(f'{where} with train.parts.{part} = "all": {told}')
    if train.transit.robust is not None:
        raise SpecError(f"{where}: robust rules need updates as they are sent; leave out train.robust")
    if getattr(options, "aggregate", "model") == "gradient":
        raise SpecError(f'{where}: all take one step with aggregate = "gradient"; take average = "samples"')
