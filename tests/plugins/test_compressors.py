"""A compressor of the user's own: the one of docs/own.md, in runs of several methods."""

import dataclasses
import math
from pathlib import Path

import jax
import numpy as np
import pytest

import cfljax
from cfljax import keys
from cfljax.config import plugins, read_spec
from cfljax.errors import SpecError
from cfljax.local.compressors import COMPRESSORS
from tests import blocks
from tests.often import rarely

PAGE = Path(__file__).parents[2] / "docs" / "own.md"
TITLE = "my_compressors.py"
SPEC = {
    "data": {"name": "blobs", "samples": 120, "features": 6, "classes": 4, "clients": 6},
    "model": "mclr",
    "method": "fedavg",
}
ROUNDS, D = 2, 6 * 4 + 4


@pytest.fixture
def qsgd(tmp_path):
    """The class, loaded as a plug-in from its file."""
    text = next(b.text for b in blocks.blocks(PAGE) if b.title == TITLE)
    (tmp_path / TITLE).write_text(text)
    plugins.load([str(tmp_path / TITLE)])
    return COMPRESSORS.entry("qsgd").options


def spec(method="fedavg", **compress):
    train = {"rounds": ROUNDS, "lr": 0.1, "finetune_steps": 0, "plan": {"quick": True}}
    train["compress"] = {"name": "qsgd"} | compress
    return SPEC | {"method": method, "train": train}


def test_what_arrives_is_on_a_level_and_without_bias(qsgd):
    row = np.random.default_rng(0).normal(size=40).astype(np.float32)

    @jax.jit
    def draw(number):
        return qsgd(levels=4).encode(keys.fold(keys.root(0), "x", number), row)

    found = np.array([draw(number) for number in range(1000)])
    level = found / np.linalg.norm(row) * 4
    np.testing.assert_allclose(level, np.round(level), atol=1e-4)
    # The deviation of one draw is at most half a level
    error = np.linalg.norm(row) / 4 / 2 / math.sqrt(len(found))
    assert np.abs(found.mean(axis=0) - row).max() < 5 * error


def test_what_is_broken_stays_broken(qsgd):
    encode = jax.jit(lambda row: qsgd().encode(keys.root(0), row))
    for bad in (np.nan, np.inf):
        assert not np.isfinite(encode(np.array([1.0, bad, 0.0], np.float32))).all()
    assert not np.asarray(encode(np.zeros(3, np.float32))).any()


@pytest.mark.parametrize("method", (rarely("fedavg"), rarely({"name": "ifca", "clusters": 2})))
def test_each_update_is_billed_as_the_file_says(qsgd, method):
    found = cfljax.run(**spec(method, feedback=True)).history
    # Everybody takes part. Four levels are nine values, of four bits
    assert found["bytes_up"][-1] == ROUNDS * 6 * (4 + D * 4 // 8)
    assert found["bytes_down"][-1] == ROUNDS * 6 * 4 * D * (1 if method == "fedavg" else 2)
    assert np.isfinite(found["train_loss"][1:]).all()


def test_its_options_are_an_axis_of_a_sweep_and_part_of_ids(qsgd):
    runs = read_spec(spec(levels=[4, 64], feedback=[False, True])).runs()
    assert len({each.id for each in runs}) == 4
    assert {each.train.vector_bytes(D) for each in runs} == {4 + D * 4 // 8, 4 + D}
    assert all(each.plugin_hashes for each in runs)
    (int8,) = read_spec(spec(name="int8")).runs()
    assert not int8.plugin_hashes


@pytest.mark.parametrize(
    "method, compress, said",
    [
        ("fedavg", {"levels": 0}, "train.compress.levels = 0"),
        ("fedavg", {"keep": 0.1}, 'train.compress.keep = 0.1: belongs to name = "topk"'),
        ("fedavg", {"level": 3}, "train.compress.level"),
        ("fedavg", {"name": "qsg"}, 'did you mean "qsgd"'),
        ("scaffold", {"feedback": True}, "train.compress.feedback = true with method.scaffold"),
        ("fedproto", {}, "train.compress"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(qsgd, method, compress, said):
    with pytest.raises(SpecError) as error:
        read_spec(spec(method, **compress)).runs()
    assert said in str(error.value) and "\n" not in str(error.value)


def test_only_a_compressor_can_be_registered():
    with pytest.raises(SpecError, match='compressor "mine"'):
        cfljax.register_compressor("mine")(dataclasses.make_dataclass("Mine", []))
