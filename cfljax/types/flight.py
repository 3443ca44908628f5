"""Updates in flight: computed by clients, not yet received by the server (`train.asynchronous`)."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.types.arrays import Array


class Flight(NamedTuple):
    """M slots for updates in flight. Each holds an update that is computed and has not arrived yet, or is free. The
    cohort of a server step has the same M slots: it trains the clients that take free ones, and masks the others."""

    ids: Array  # i32[M]: positions of the clients on the client axis
    busy: Array  # bool[M]: whether the slot is taken, by a client that began in an earlier step
    left: Array  # f32[M]: simulated seconds until the update arrives
    begun: Array  # i32[M]: the server step at whose start the last client of this slot got its models; −1: none yet
    work: Array  # f32[M]: the share of its local steps that the client does (`Jobs.work`)
    up: Array  # i32[M, 2]: the vectors and floats that arrive with the update
    which: Array  # i32[M]: the cluster of the update: the one that the client trained for
    delta: Array  # f32[M, d]: the updates, as they will arrive
    loss: Array  # f32[M]: their training losses
    home: Array | None  # f32[M, n]: the updates of client-side parameters (`Updates.home`); None: there are none
    staleness: Array  # i32[]: the staleness of all updates that have arrived since the start of the run, added up
    arrived: Array  # i32[]: how many these are
    applied: Array  # i32[K]: how many updates of each cluster's members have arrived since the start of the run
    arrives: Array | None = None
    """bool[M]: whether the update arrives in this step; None: it is not known yet, as before a step and while it is timed. Then
    methods train and mix as if there were no flight."""
    discount: Array | None = None  # f32[M]: what an update's part of the mean of its cluster is multiplied by; None as `arrives`
