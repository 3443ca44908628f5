"""Arrays and records come back from a file as they were, whatever they hold."""

import json
import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cfljax.store import arrays, records

CALM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
KINDS = st.sampled_from(
    [
        np.bool_,
        np.int8,
        np.uint16,
        np.int32,
        np.int64,
        np.float16,
        np.float32,
        np.float64,
        np.complex64,
    ]
)
names = st.from_regex(
    r"[A-Za-z0-9_+=~-][A-Za-z0-9_.+=~-]{0,10}(/[A-Za-z0-9_-]{1,8})?", fullmatch=True
)
any_array = KINDS.flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
trees = st.recursive(
    leaves,
    lambda t: st.lists(t, max_size=4) | st.dictionaries(st.text(max_size=8), t, max_size=4),
    max_leaves=15,
)


def same(a, b):
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@CALM
@given(st.dictionaries(names, any_array, max_size=5))
def test_arrays_come_back_as_they_went(made):
    packed = arrays.pack(made)
    found = arrays.unpack(packed)
    assert found.keys() == made.keys() and arrays.pack(made) == packed
    for name, array in made.items():
        assert (found[name].dtype, found[name].shape, found[name].tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        )
    assert arrays.unseal(arrays.seal(packed)) == packed


@CALM
@given(st.dictionaries(st.text(max_size=8), trees, min_size=1, max_size=5))
def test_records_come_back_as_they_went(content):
    assert same(records.decode(records.encode(content)), json.loads(json.dumps(content)))


@CALM
@given(st.dictionaries(st.text(max_size=8), leaves, min_size=1, max_size=3), st.data())
def test_no_changed_byte_of_a_record_is_taken_for_what_was_written(content, data):
    good = bytearray(records.encode(content))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    try:
        records.decode(bytes(good))
    except arrays.Damaged:
        return
    raise AssertionError(f"byte {at} was changed and nobody noticed")
