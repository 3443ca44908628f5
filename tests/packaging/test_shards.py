"""`--shard i/n`: n parts that do not overlap and together are the sweep."""

import pytest

from cfljax.commands.sweep import _list_worker_flags, _parse_shard, parser
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.launch.sweep import SweepOptions, carry_out, prepare_batches
from cfljax.store import Store

SPEC = {
    "data": {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3}, "model": "mclr", "train": {"rounds": 1},
    "method": ["fedavg", {"name": "fedprox", "mu": [0.1, 1.0]}], "seeds": "0:3",
}  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 20])
def test_parts_cover_every_unit_once(tmp_path, n, limit):
    spec = read_spec(SPEC)
    parts = [
        prepare_batches(spec, Store(tmp_path), SweepOptions(part=(i, n)), limit)[0]
        for i in range(n)
    ]
    ids = [run.id for part in parts for batch in part for run in batch.runs]
    assert sorted(ids) == sorted(run.id for run in spec.runs()) and len(set(ids)) == 9
    if limit == 1 and n < 9:
        assert all(parts)


def test_a_part_computes_its_part_and_leaves_the_rest(tmp_path):
    spec = read_spec(SPEC | {"method": "local", "seeds": "0:4"})
    outcome = carry_out(spec, Store(tmp_path), SweepOptions(quiet=True, part=(1, 2)))
    assert outcome.computed == outcome.done == 2
    assert {record["seed"] for record in Store(tmp_path).records().values()} == {2, 3}


def test_the_flag_is_checked_and_handed_to_workers():
    assert _parse_shard("3/8") == (3, 8) and _parse_shard(None) is None
    for wrong in ("8/8", "1", "a/2", "-1/2", "1/0"):
        with pytest.raises(SpecError, match="--shard"):
            _parse_shard(wrong)
    words = _list_worker_flags(
        parser().parse_args(["s.toml", "--shard", "1/2", "--plugin", "x.py"]), "r"
    )
    assert (
        words[words.index("--shard") : words.index("--shard") + 2] == ["--shard", "1/2"]
        and "x.py" in words
    )
