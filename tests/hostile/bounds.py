"""How hostile inputs must be refused."""

import time
import tracemalloc

import pytest

from cfljax.errors import DataError


def refused(act, kind=DataError, memory=80 << 20, seconds=3.0):
    """The message of the error with which `act` ends: one line, within these bounds."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(kind) as caught:
            act()
        spent, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000
    assert peak < memory and spent < seconds, (peak, spent)
    return message
