"""How the server applies the updates of a cluster: the table `train.server`."""

from __future__ import annotations

import dataclasses

from cfljax.config.frozen import FrozenTable
from cfljax.config.optimisers import check_optimiser
from cfljax.errors import SpecError
from cfljax.registry.options import Table, Value, check, option

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
