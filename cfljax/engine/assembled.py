"""What a batch of runs is simulated with."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import jax

from cfljax.engine.settings import Settings
from cfljax.types import Federation, Method, Model, Plan


class Assembled(NamedTuple):
    """All that `simulate` needs besides seeds and numbers."""

    method: Method
    model: Model
    federation: Federation
    """On the device; of numpy arrays where its samples are dealt to devices (`sharded`)."""
    settings: Settings
    plan: Plan = Plan()
    """How the method's solver trains clients."""
    mesh: jax.sharding.Mesh | None = None
    """The devices that a round's participants are dealt to; None: one device."""
    sharded: bool = False
    """Whether the pool of samples is dealt to the devices, too."""
    program_key: Hashable = None
    """Names everything static that the method and the model were made from, so that a later batch with the same key, plan and
    settings reuses the compiled program; None: nothing is reused."""
