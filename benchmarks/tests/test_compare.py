"""The comparison: what the systems share, what its rows hold, what becomes of a system that
fails."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare, judge, setup_peers
from benchmarks.measure import KEYS, System, SystemFailed, by_turns, row
from benchmarks.shared import contents, run_of
from benchmarks.workloads import WORKLOADS, layers_of_resnet, operations
from cfljax.devices.machine import describe_machine
from cfljax.experiment import assemble

ROUNDS = 4
TOY = WORKLOADS["toy"]


@pytest.fixture(scope="module")
def shared():
    return contents(TOY, ROUNDS, None)


def test_clients_lie_one_after_another_with_the_samples_of_the_partition(shared):
    federation = assemble.host_federation(run_of(TOY, ROUNDS, None))
    split = federation.train
    for c in range(federation.clients):
        rows = split.rows[split.start[c] : split.start[c] + split.count[c]]
        mine = slice(shared["start"][c], shared["start"][c] + shared["count"][c])
        np.testing.assert_array_equal(shared["x"][mine], federation.pool.x[rows])
        np.testing.assert_array_equal(shared["y"][mine], federation.pool.y[rows])


def test_the_schedule_is_the_one_that_the_engine_draws(shared):
    """A client that has taken part has moved the model; the engine's own run says by its traffic
    how many did, and the end model trained on the schedule alone is the engine's."""
    import jax
    import jax.numpy as jnp

    from cfljax.engine.simulate import simulate
    from cfljax.experiment.batching import make_batches
    from cfljax.federation.cohort import Cohort
    from cfljax.keys import fold, root

    run = run_of(TOY, 2, None)
    parts, batch = assemble.assemble(run, 1, describe_machine()), make_batches([run], 1)[0]
    output = simulate(parts, batch.seeds, batch.hypers)[0]
    hyper = {name: jnp.float32(value) for name, value in batch.hypers[0].items()}
    one_round, state = (
        jax.jit(parts.method.round),
        parts.method.init(root(0), parts.federation, hyper, {}),
    )
    for t in range(2):
        ids = jnp.asarray(shared["schedule"][t])
        cohort = Cohort(ids, jnp.ones(len(ids), bool), jnp.ones(len(ids)), jnp.int32(t))
        state, _ = one_round(fold(root(0), "round", t), state, parts.federation, cohort, hyper)
    np.testing.assert_allclose(parts.method.models(state)[0], output.models, atol=1e-6)


def test_first_models_are_those_of_the_run_and_names_lead_back(shared):
    from benchmarks.shared import flat_models
    from cfljax.keys import root
    from cfljax.round.common import first_model

    model = assemble.assemble(run_of(TOY, ROUNDS, None), 1, describe_machine()).model
    named = {name[5:]: value for name, value in shared.items() if name.startswith("init/")}
    np.testing.assert_array_equal(flat_models(model, named)[0], first_model(root(0), model))


def test_rotated_views_are_applied_to_the_shared_samples(tmp_path):
    from benchmarks.workloads import Workload

    x = np.arange(40 * 16, dtype=np.uint8).reshape(40, 4, 4)
    y = np.arange(40, dtype=np.int32) % 4
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    data = {"name": "mine", "partition": "rotated", "groups": 2, "clients": 4}
    turned = Workload("", data, {"name": "mclr"}, {"name": "fedavg"}, TOY.train, 0.1)
    arrays = contents(turned, 1, tmp_path)
    held = arrays["x"][arrays["start"][2] :]
    upright = {sample.tobytes() for sample in x}
    assert all(np.rot90(sample, 2).tobytes() in upright for sample in held)
    assert {sample.tobytes() for sample in arrays["x"][: arrays["start"][2]]} <= upright


def test_operations_of_the_workloads():
    assert operations([(784, 10)], (28, 28), 1) == 2 * 2 * 7840
    assert operations([(784, 200), (200, 10)], (28, 28), 0, losses=3) == 3 * 2 * (784 * 200 + 2000)
    cnn = operations([(3, 3, 3, 32), (3, 3, 32, 64), (4096, 128), (128, 10)], (32, 32, 3), 1)
    conv = [2 * 1024 * 27 * 32, 2 * 256 * 288 * 64]
    dense = [2 * 4096 * 128, 2 * 128 * 10]
    assert cnn == 3 * sum(conv + dense) - conv[0]


def test_operations_of_a_resnet_are_the_published_ones():
    from cfljax.models import build
    from cfljax.models.flat import paths_of

    leaves = paths_of(build("resnet20", {}, (32, 32, 3), 10))
    kernels = {
        path.removesuffix("/kernel"): leaf.shape
        for path, leaf in leaves
        if path.endswith("/kernel")
    }
    kernels = {name: kernels[name] for name in sorted(kernels, key=judge._place)}
    forward = layers_of_resnet(kernels, (32, 32, 3))
    assert sum(forward) == 2 * 40_551_040  # 40.55 million multiplications and additions
    assert forward[0] == 2 * 432 * 1024 and forward[-1] == 2 * 640


def test_work_counts_short_batches_as_steps_and_their_samples_once_per_epoch(shared):
    arrays = shared | {"count": np.full_like(shared["count"], 11)}
    first = judge.work(arrays, choose=False)[0]
    assert first["samples"] == TOY.train["epochs"] * 4 * 11
    assert first["steps"] == TOY.train["epochs"] * 4 * 3


@pytest.mark.rare
def test_a_comparison_writes_rows_of_the_promised_keys(tmp_path, monkeypatch):
    """With a peer that cannot be installed: a row with nulls and a reason, not silence."""

    def refuse(name, cache, python=sys.executable):
        raise setup_peers.NotInstalled("no such index")

    monkeypatch.setattr(compare, "ensure", refuse)
    file = tmp_path / "rows.json"
    assert (
        compare.main(
            [
                "--workloads",
                "toy",
                "--peers",
                "torch",
                "--rounds",
                "2",
                "--turn",
                "3",
                "--json",
                str(file),
            ]
        )
        == 0
    )
    rows = json.loads(file.read_text())
    assert [r["system"] for r in rows] == ["cfljax", "cfljax-in-blocks", "torch", "floor"]
    assert all(tuple(r) == (*KEYS, "about") for r in rows)
    own, blocks, peer, floor = rows
    assert (
        blocks["about"]["plan"]["stream"] == 2 != own["about"]["plan"]["stream"]
        and blocks["accuracy"] == own["accuracy"]
    )
    assert (
        own["min_s"] <= own["median_s"] <= own["max_s"]
        and own["compile_s"] > 0
        and own["peak_rss_mib"] > 0
    )
    assert len(own["about"]["seconds"]) == 2 and own["about"]["rounds_per_turn"] == 3
    counted = floor["about"]["work"]
    assert len(counted) == 6
    whole = sum(one["operations"] for one in counted) / floor["about"]["machine"]["flops"]
    assert sum(floor["about"]["seconds"]) == pytest.approx(whole / 3, rel=1e-4)
    assert own["accuracy"] == pytest.approx(own["about"]["engine_accuracy"], abs=1e-6)
    assert peer["median_s"] is None and peer["about"]["reason"] == "no such index"
    assert 0 < floor["median_s"] < own["median_s"] and floor["about"]["machine"]["flops"] > 0


SCRIPT = """
import sys
sys.path.insert(0, {peers!r})
from protocol import Stage
stage = Stage()
stage.ready(compile_s=0.0)
for t, ids in enumerate(stage.rounds()):
    print("chatter of a library")
    if t == {fail}:
        sys.exit("out of luck")
stage.finish(stage.init)
"""


def _system(tmp_path, shared, name, fail=-1):
    file, program = tmp_path / "toy.npz", tmp_path / f"{name}.py"
    np.savez(file, **shared)
    peers = Path(compare.__file__).parent / "peers"
    program.write_text(SCRIPT.format(peers=str(peers), fail=fail))
    return System(name, [sys.executable, str(program)], file, tmp_path)


def test_systems_take_turns_and_one_that_fails_stops_no_other(tmp_path, shared):
    systems = [_system(tmp_path, shared, "good"), _system(tmp_path, shared, "bad", fail=1)]
    failed = by_turns(systems, ROUNDS)
    assert failed == {"bad": "out of luck"}
    assert len(systems[0].seconds) == ROUNDS and systems[0].facts["peak_rss_mib"] > 0
    with np.load(systems[0].models_file, allow_pickle=False) as models:
        assert set(models.files) == {name[5:] for name in shared if name.startswith("init/")}


def test_a_system_that_does_not_start_says_why(tmp_path, shared):
    np.savez(tmp_path / "toy.npz", **shared)
    program = tmp_path / "broken.py"
    program.write_text("raise ImportError('no module named nothing')")
    with pytest.raises(SystemFailed, match="no module named nothing"):
        System("broken", [sys.executable, str(program)], tmp_path / "toy.npz", tmp_path)


def test_accuracies_too_far_apart_are_told(capsys):
    rows = [
        row("toy", "a", {}, accuracy=0.9),
        row("toy", "b", {}, accuracy=0.8),
        row("toy", "c", {}),
    ]
    assert not compare.agree(rows, "toy")
    assert "DO NOT AGREE" in capsys.readouterr().out
    assert compare.agree(rows[:1], "toy")


def test_unknown_names_are_an_error_of_one_line(capsys):
    for flags in (
        ["--workloads", "W9"],
        ["--peers", "tensorflow"],
        ["--rounds", "0"],
        ["--turn", "0"],
    ):
        with pytest.raises(SystemExit) as ended:
            compare.parse(flags)
        assert ended.value.code == 2
        assert flags[1] in capsys.readouterr().err.strip().splitlines()[-1]
