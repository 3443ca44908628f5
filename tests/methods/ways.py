"""The ways of local training that a comparison with a plain program is made for."""

import pytest

from tests.often import rarely

WAYS = {
    "batches": {"batch": 5, "epochs": 1}, "single samples": {"batch": 1, "steps": 3}, "all samples": {"batch": "full", "epochs": 2},
}  # fmt: skip
FIRST, *OTHERS = WAYS.values()
ways = pytest.mark.parametrize("way", [FIRST, *map(rarely, OTHERS)], ids=WAYS)
