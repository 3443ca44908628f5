"""Specs and flags of any kind end in a list of runs or in one line."""

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfljax.config.layers import TOP_KEYS
from cfljax.config.train import Train
from cfljax.config.values import list_fields
from cfljax.errors import SpecError
from tests.config.small import BASE, read

WORDS = [
    *TOP_KEYS,
    *list_fields(Train),
    "name",
    "partition",
    "clients",
    "clusters",
    "hidden",
    "label",
    "mu",
    "seed",
    "arrive",
]
WORDS += ["angles", "low", "high"]
VALUES = [
    "digits",
    "mnist",
    "iid",
    "rotated",
    "fedavg",
    "ifca",
    "cfl_mgd",
    "mlp",
    "full",
    "run",
    "sgd",
    "small",
    "0:3",
    "3:0:-1",
]
VALUES += [
    "log(1, 2)",
    "log(1, 2, 3)",
    "lin(0, 1, 2)",
    "log(",
    "train.lr",
    "method.ifca.clusters",
    "",
    "\n",
    "\ud800",
    "é",
]
PIECES = [
    "[a]",
    "data = 'digits'",
    "x = 1",
    "train.lr = ",
    "0.1",
    '"',
    "[[method]]",
    "name = 'ifca'",
    "{",
    "}",
    "\n",
    "'",
]

keys = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(["train.lr", "method.ifca.train.lr", "data.name"]),
    st.text(max_size=4),
)
leaves = st.one_of(
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(VALUES),
    st.text(max_size=6),
    st.dates(),
)
tree = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
CALM = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def _read(table, *sets):
    try:
        read(table, *sets).runs()
    except SpecError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        assert len(message) < 1000
        message.encode()


@CALM
@given(st.dictionaries(keys, tree, max_size=5))
def test_any_table(table):
    _read(table)


@CALM
@given(st.sampled_from(TOP_KEYS), st.dictionaries(keys, tree, max_size=3), tree)
def test_a_good_spec_with_anything_in_one_place(key, inner, value):
    _read({**BASE, key: inner})
    _read({**BASE, key: [inner, value]})
    _read({**BASE, key: value})
    _read({**BASE, "train": inner, "method": {"name": "ifca", **inner}})


@CALM
@given(st.lists(keys, min_size=1, max_size=4), st.sampled_from(VALUES) | st.text(max_size=12))
def test_any_flag(path, value):
    _read(BASE, ".".join(path) + "=" + value)
    _read({**BASE, "method": ["ifca", "fedavg"]}, "method.ifca." + ".".join(path) + "=" + value)


@CALM
@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "spec.toml"
    with contextlib.suppress(UnicodeEncodeError):
        path.write_text(text, encoding="utf-8")
        _read(path)
