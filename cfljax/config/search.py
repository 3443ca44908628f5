"""The `search` table: how `python -m cfljax.tune` looks for the best setting of each method. Sweeps ignore it."""

from __future__ import annotations

import dataclasses

from cfljax.config.grid import read_seeds
from cfljax.config.layers import need_table
from cfljax.registry.options import Table, check, option


@dataclasses.dataclass(frozen=True)
class Search:
    """The `search` table."""

    method: str = option("halving", "successive halving: the better settings continue", choices=("halving",))
    reduce: int = option(3, "one setting in this many continues, for this many times the rounds", low=2, high=100)
    first: int = option(10, "rounds until the first choice", low=1, high=10**9)
    seeds: tuple[int, ...] = option((10_000,), "seeds to tune with, instead of the spec's; compare on others")


def read_search(value: object) -> Search:
    """Check the `search` table of a spec; its seeds may be a range, as the spec's seeds."""
    table: Table = need_table(value, "search")
    if "seeds" in table:
        table = {**table, "seeds": read_seeds(table["seeds"])}
    return check(Search, table, "search")
