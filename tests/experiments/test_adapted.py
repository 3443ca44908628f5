"""LoRA on the attention of a small transformer, in runs: what travels, what clusters are found on,
and what comes of it."""

import numpy as np
import pytest

import cfljax
from cfljax.errors import SpecError
from tests.often import every

MODEL = {"name": "transformer", "width": 16, "depth": 1, "heads": 2, "hidden": 16}
DATA = {"name": "two_tongues", "partition": "user", "normalise": "none"}
TRAIN = {"batch": 20, "lr": 0.3}
CLIENTS, TOKENS, LENGTH = 6, 8, 3
LORA = {"rank": 2, "alpha": 8, "where": "attention"}
ADAPTERS = 4 * 2 * (16 + 16)
"""Numbers of the adapters: query, key, value and out, down and up."""


@pytest.fixture(autouse=True)
def tongues():
    """Texts of two groups of clients: after a token comes the next one in one group, in the other
    the third from it."""

    @cfljax.register_data("two_tongues")
    def made(options, rng):
        arrays = {}
        for part, each in (("train", 80), ("test", 40)):
            user = np.repeat(np.arange(CLIENTS), each)
            texts = rng.integers(TOKENS, size=(len(user), LENGTH))
            following = (texts[:, -1] + np.where(user % 2 == 0, 1, 3)) % TOKENS
            of_part = {
                "x": texts.astype(np.float32),
                "y": following,
                "user": user,
                "population": user % 2,
            }
            arrays |= {f"{name}_{part}": values for name, values in of_part.items()}
        return arrays


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("start")


@pytest.fixture
def start(folder, tongues):
    """The file of a model that all have trained together: of both tongues it knows half."""
    file = folder / "start.safetensors"
    if not file.is_file():
        run = cfljax.run("fedavg", data=DATA, model=MODEL, rounds=20, epochs=5, **TRAIN)
        assert 0.3 < run.history["accuracy"][-1] < 0.7
        run.export(file)
    return file


def adapted(method, start, **train):
    model = MODEL | {"weights": str(start), "jitter": 0.3}
    return cfljax.run(method, data=DATA, model=model, **TRAIN | {"lr": 0.1, "lora": LORA} | train)


def test_ifca_finds_who_speaks_alike_on_the_adapters_of_attention_alone(start):
    run = adapted({"name": "ifca", "clusters": 2}, start, rounds=10, epochs=2)
    history = run.history
    assert run.models.shape == (2, ADAPTERS)
    assert history["bytes_up"][-1] == 10 * CLIENTS * 4 * ADAPTERS
    assert (
        history["bytes_down"][-1] == 10 * CLIENTS * 2 * 4 * ADAPTERS
    )  # both models, to choose from
    assert history["ari"][-1] == 1.0
    assert history["accuracy"][-1] > 0.9 > 0.7 > history["accuracy"][0]
    one, other = run.params(0)["block_0"], run.params(1)["block_0"]
    assert not np.allclose(
        one["attention"]["value"]["kernel"], other["attention"]["value"]["kernel"], atol=1e-2
    )
    np.testing.assert_array_equal(one["dense_0"]["kernel"], other["dense_0"]["kernel"])


SENT = {"fedavg": 2, "ditto": 2, "local": 0, "fedgroup": 3}
"""Method → how many updates each client has sent after two rounds; one of FedGroup's is for its
groups."""


@pytest.mark.parametrize("method", every(SENT, often=("local",)))
def test_federated_personal_and_grouped_methods_send_and_keep_adapters_alone(method, start):
    run = adapted(
        {"name": method} | ({"clusters": 2} if method == "fedgroup" else {}), start, rounds=2
    )
    assert run.models.shape[1] == ADAPTERS and np.isfinite(run.history["loss"]).all()
    assert run.history["bytes_up"][-1] == SENT[method] * CLIENTS * 4 * ADAPTERS


def test_methods_that_keep_the_head_at_home_need_one_that_trains(start):
    with pytest.raises(SpecError, match="no dense layer that could be its head"):
        adapted("fedrep", start, rounds=1)


@pytest.mark.long
def test_a_head_that_stays_at_home_is_not_sent(start):
    run = adapted("fedrep", start, rounds=1, lora=LORA | {"head": True})
    assert run.history["bytes_up"][-1] == CLIENTS * 4 * ADAPTERS  # without the head
