"""`train.asynchronous` from the spec to records, and what is refused."""

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.engine.metrics import RESERVED_NAMES
from cfljax.errors import SpecError
from cfljax.experiment import batching, dry_run
from cfljax.experiment.batching import Size, make_batches
from cfljax.methods import METHODS
from tests.often import rarely

BLOBS = {
    "name": "blobs",
    "samples": 240,
    "features": 6,
    "classes": 4,
    "clients": 6,
    "partition": "quantity",
}
TRAIN = {
    "rounds": 4,
    "lr": 0.2,
    "participation": 4,
    "clock": {"step_ms": 20, "down_mbps": 1, "up_mbps": 0.1},
}
SOME = {"buffer": 2}
LATE = {"arrive": {"clients": 2, "round": 2}}


def runs(table=SOME, method="fedavg", data=None, seeds=(0,), **train):
    train = TRAIN | ({} if table is None else {"asynchronous": table}) | train
    return read_spec(
        {
            "data": BLOBS | (data or {}),
            "model": "mclr",
            "train": train,
            "method": [method],
            "seeds": list(seeds),
        }
    ).runs()


@pytest.mark.parametrize(
    ("table", "more", "told"),
    [
        (3, {}, r"train.asynchronous = 3: must be .*a table"),
        (
            {"buffers": 3},
            {},
            r'train.asynchronous.buffers: there is no such option; did you mean "buffer"',
        ),
        ({"buffer": 0}, {}, r"train.asynchronous.buffer = 0: must be at least 1"),
        ({"exponent": -1}, {}, r"train.asynchronous.exponent = -1.0: must be at least 0"),
        ({"grace": 2}, {}, r"train.asynchronous.grace = 2: hinge went; give exponent"),
        (
            SOME,
            {"clock": "none"},
            r"train.asynchronous: updates arrive by a simulated clock; add train.clock",
        ),
        (
            SOME,
            {"clock": {"deadline_s": 2}},
            r"train.asynchronous with train.clock.deadline_s = 2.0: .* has no deadline",
        ),
        (
            SOME,
            {"plan": {"stream": 2}},
            r"train.plan.stream = 2: train.asynchronous keeps all pending updates",
        ),
        (
            {"buffer": 5},
            {},
            r"train.asynchronous.buffer = 5: 4 clients train at a time \(train.participation\)",
        ),
        ({"buffer": 4}, {"participation": 0.5}, r"train.asynchronous.buffer = 4: 3 clients train"),
    ],
)
def test_mistakes_get_a_line_before_any_data_is_loaded(table, more, told):
    with pytest.raises(SpecError, match=told) as error:
        runs(table, **more)
    assert "\n" not in str(error.value)


def test_a_buffer_larger_than_the_clients_that_the_data_have_is_refused_when_they_are_known():
    late = {
        "data": BLOBS | {"new_clients": {"share": 0.34, "shots": 5, "steps": [0]}},
        "model": "mclr",
        "method": "fedavg",
    }
    with pytest.raises(SpecError, match=r"train.asynchronous.buffer = 6: 4 clients train"):
        cfljax.run(**late, train=TRAIN | {"participation": 1.0, "asynchronous": {"buffer": 6}})


def test_what_is_not_private_is_refused():
    pytest.importorskip("dp_accounting")
    assert runs(privacy={"clip": 1.0})
    for table, key in (({"noise": 1.0}, "noise = 1.0"), ({"choice": {"epsilon": 1.0}}, "choice")):
        with pytest.raises(
            SpecError,
            match=f"train.asynchronous with train.privacy.{key}: ε is computed for rounds",
        ):
            runs(method="ifca", privacy={"clip": 1.0, **table})


def why_not(name):
    """Why the method cannot be asynchronous with its default options; None: it can."""
    return METHODS.check(name, {}, f"method.{name}").without.get("asynchronous")


@pytest.mark.parametrize("name", [name for name in METHODS if why_not(name)])
def test_methods_that_need_all_at_once_say_why(name):
    with pytest.raises(
        SpecError, match=f"train.asynchronous with method.{name}: .*; leave it out for this method"
    ) as error:
        runs(method=name)
    # Other lines are of draws that the run does not make
    assert sum("train.asynchronous" in line for line in error.value.lines) == 1


def test_permission_is_not_inherited_and_reasons_are():
    able = {name for name in METHODS if not why_not(name)}
    assert {
        "fedavg",
        "fedprox",
        "ifca",
        "oracle",
        "one_shot",
        "fedgroup",
        "pacfl",
        "fedper",
        "fedrep",
        "per_fedavg",
    } <= able
    assert not able & {
        "fl_hc",
        "stocfl",
        "cfl_sattler",
        "feddrift",
        "ditto",
        "fesem",
        "scaffold",
        "local",
        "ocfl",
        "fedem",
    }
    assert why_not("fedrc") == why_not("fedem")


def test_gradients_over_the_participants_of_a_round_are_refused():
    ifca = {"name": "ifca", "clusters": 2, "aggregate": "gradient"}
    with pytest.raises(
        SpecError, match=r'train.asynchronous with method.ifca: .* aggregate = "gradient"'
    ):
        runs(method=ifca)


def test_numbers_share_a_program_and_buffers_have_their_own():
    grid = runs({"buffer": 2, "exponent": [0.0, 0.5, 1.0]}, seeds=(0, 1))
    assert len(grid) == 6 and len({batch.program for batch in make_batches(grid, 100)}) == 1
    others = runs({"buffer": 3}) + runs({"buffer": 2})
    assert len({batch.program for batch in make_batches(grid + others, 9)}) == 2


def test_memory_and_communication_are_told_before():
    (run,), size = runs(), Size(6, 1000, 6)
    assert dry_run.communication(run, size) == (4000 * (4 + 3 * 2), 4000 * 4 * 2)
    (batch,) = make_batches([run], 1)
    assert batching.estimate_memory(batch, size) == 4 * 1000 * (
        3 + 4 * 2 * 4
    )  # the updates of four, before and after a step


def test_the_history_says_how_old_updates_were_and_whose():
    run = cfljax.run(
        data=BLOBS,
        model="mclr",
        method={"name": "ifca", "clusters": 2},
        train=TRAIN | {"asynchronous": SOME},
    )
    assert {"staleness", "clock_s"} <= set(run.history) and "staleness" in RESERVED_NAMES
    assert (
        run.diag["ifca/applied"].sum(axis=-1).tolist() == [0, 2, 4, 6, 8]
        and run.history["staleness"][0] == 0
    )
    size = 4 * 28
    assert run.history["bytes_down"].tolist() == [0, *(2 * size * np.array([4, 6, 8, 10]))]
    assert run.history["bytes_up"].tolist() == [0, *(size * np.array([2, 4, 6, 8]))]


@pytest.mark.parametrize(
    ("method", "train", "data"),
    [
        rarely("fedavg", {"server": {"name": "adam", "lr": 0.05, "eps": 1e-3}}, {}),
        rarely("ifca", {"parts": {"body": "all"}}, {}),
        rarely("ifca", {"parts": {"head": "client"}}, {}),
        rarely("ifca", {"stop": {"patience": 1, "metric": "train_loss"}, "rounds": 9}, {}),
        rarely(
            "oracle",
            {},
            {"partition": "label_permutation", "groups": 2, "drift": {"at": [2], "share": 0.5}},
        ),
        rarely("fedgroup", {"compress": {"name": "topk", "keep": 0.2, "feedback": True}}, {}),
        rarely(
            "one_shot", {"robust": "median", "attack": {"name": "label_flip", "share": 0.2}}, LATE
        ),
        rarely(
            "fedprox",
            {"privacy": {"clip": 0.5}, "stragglers": 0.4, "dropout": 0.2},
            {"validation": 0.2},
        ),
    ],
    ids=str,
)
def test_it_goes_together_with_the_rest(method, train, data):
    """To wait for everybody is then the same as a round; to wait for some is something else, and
    finite."""
    model = {"name": "mlp", "hidden": [4]}
    few = (
        {"clusters": 2} if "clusters" in METHODS.entry(method).options.__dataclass_fields__ else {}
    )
    few |= {"alpha": 1, "pretrain_steps": 3} if method == "fedgroup" else {}
    play = lambda table: cfljax.run(  # noqa: E731
        data=BLOBS | data,
        model=model,
        method={"name": method, **few},
        train=TRAIN | train | {"asynchronous": table},
    )
    waiting, all_of_them, some = play("none"), play({"buffer": 4}), play({"buffer": 2})
    for name in waiting.history:
        np.testing.assert_allclose(
            waiting.history[name], all_of_them.history[name], rtol=1e-4, atol=1e-6, err_msg=name
        )
    np.testing.assert_allclose(waiting.models, all_of_them.models, atol=1e-6)
    assert np.isfinite(some.models).all() and not np.array_equal(some.models, waiting.models)


def test_a_trace_says_who_may_begin(tmp_path):
    """Nobody is there before second 7, and the clock goes on to it; who is under way is waited for,
    there or not."""
    lines = [f"{c},0,0\n{c},7,1\n{c},7.001,0" for c in range(6)]
    (tmp_path / "trace.csv").write_text("client,second,available\n" + "\n".join(lines) + "\n")
    clock = TRAIN["clock"] | {"trace": str(tmp_path / "trace.csv")}
    run = cfljax.run(
        data=BLOBS,
        model="mclr",
        method="fedavg",
        train=TRAIN | {"asynchronous": SOME, "clock": clock, "rounds": 5},
    )
    assert run.history["clock_s"][1] == 7 and run.diag["fedavg/applied"][:, 0].tolist() == [
        0,
        0,
        2,
        4,
        4,
        4,
    ]
