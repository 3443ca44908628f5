"""HOST. The devices of the clients, for the simulated clock: speeds that are drawn, and what a trace says of them."""

from __future__ import annotations

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.traces import Trace, read_trace
from cfljax.types import Devices, on_host

MAX_TRACE_CELLS = 10**8  # The largest size (times of change × clients) of a trace on the device, at five bytes each
_TAG = 0x636C6F


def make_devices(clients: int, seed: int, same: bool, trace: str | None) -> Devices:
    """Make the devices of clients, whatever the method. `same`: all have speed 1, apart from the trace."""
    pace = np.random.default_rng([seed, _TAG]).standard_normal(clients).astype(np.float32)
    devices = Devices(on_host(np.zeros_like(pace) if same else pace))
    return devices if trace is None else _with_trace(devices, read_trace(trace), clients)


def _with_trace(devices: Devices, trace: Trace, clients: int) -> Devices:
    beyond = np.flatnonzero(trace.client >= clients)
    if len(beyond):
        at = beyond[0]
        why = f"client = {trace.client[at]}: there are {clients} clients, 0 to {clients - 1}"
        raise SpecError(f"train.clock.trace: {trace.file}:{trace.line[at]}: {why}")
    times = np.unique(np.concatenate([[0.0], trace.time]).astype(np.float32))
    if len(times) * clients > MAX_TRACE_CELLS:
        why = f"{len(times)} times of {clients} clients are too many; round the times to minutes or hours"
        raise SpecError(f"train.clock.trace: {trace.file}: {why}")
    available, factor = np.ones((len(times), clients), bool), np.ones((len(times), clients), np.float32)
    order = np.lexsort((trace.time, trace.client))
    for lines in np.split(order, np.flatnonzero(np.diff(trace.client[order])) + 1):  # of a client, as they follow each other
        client, begin = trace.client[lines[0]], np.searchsorted(times, trace.time[lines].astype(np.float32))
        until = np.append(begin[1:], len(times))
        available[begin[0] :, client] = np.repeat(trace.available[lines], until - begin)
        factor[begin[0] :, client] = np.repeat(trace.speed[lines], until - begin)
    return Devices(devices.pace, on_host(times), on_host(available), on_host(factor), by_seconds=trace.by_seconds)
