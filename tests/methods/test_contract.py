"""What every method of the registry must keep to; a method added later is under it without a line
here."""

import dataclasses
import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from cfljax.contract import outputs
from cfljax.contract.padding import pad
from cfljax.devices import compiled
from cfljax.engine.quantities import DIAGNOSTICS
from cfljax.methods import METHODS
from tests import play, toy
from tests.methods import golden
from tests.methods.three_runs import RUNS, played, three, three_and_their_programs
from tests.play import ROUNDS, on_nine, unlike

NAMES = list(METHODS)
NOT_FIXED_WITHOUT_STEPS = {
    "fedbn": "batches move running statistics without a learning rate, too",
    "joint": "in each round with an empty cluster random devices are put elsewhere",
    "fedem": "mixtures follow the losses, whether models move or not",
    "fedrc": "mixtures follow the losses, whether models move or not",
    "fedsoft": "a client that takes part has a model of its own from then on, in place of a random "
    "cluster model",
}
OVER_ALL_CLIENTS = ("scaffold", "fedbcd", "ocfl", "gossip")
"""Methods of which more than participants and those without a cluster count: a mean over all
clients, a clustering of all, a graph of all."""
FEW = ("ifca", "fedem", "cfl_sattler")
"""Methods for which other shapes or forms of their programs are compiled each time; those of the
others are tried by the long tests."""
SHARES = ("alpha", "balance", "label_weights", "mixture", "p")
"""Diagnostics that are fractions, besides accuracies."""
FAMILIES = {
    **dict.fromkeys(("fedavg_ft", "fedprox_ft"), "finetuned"),
    **dict.fromkeys(("fedper", "lg_fedavg"), "fedper_lg_fedavg"),
}
"""Methods of a few lines that have a file of tests together -> what it is called."""
every_method = pytest.mark.parametrize("name", NAMES)


@functools.cache
def the_second_in_one_program(name):
    """Return (the output of the second of the three runs, what it carries before a round and after
    it, its program's text)."""
    (output,), programs, split, _ = played(name, seeds=[1], work={"quick": False})
    assert not {"start", "advance"} & {
        each.name for each in split
    }  # only what precedes the rounds may be
    rounds = programs.rounds
    return output, rounds.args_info[0][0], rounds.out_info[0], rounds.as_text()


def padded(name):
    """The second of the three runs, among twelve clients of which three are dummies, with samples
    that nobody holds."""
    federation = pad(play.nine_clients(), clients=3, samples=4, rng=np.random.default_rng(1))
    return on_nine(name, seeds=[1], federation=federation)[0]


@every_method
def test_summary_and_docs_exist(name):
    entry = METHODS.entry(name)
    assert entry.summary and entry.summary.endswith(".")
    for field in dataclasses.fields(entry.options):
        assert field.metadata.get("help"), f"{name}.{field.name} has no help"


@every_method
def test_its_own_tests_are_in_one_file(name):
    file = Path(__file__).with_name(f"test_{FAMILIES.get(name, name)}.py")
    assert file.exists(), "write what is only this method's there: the plain program, its limits"
    text = file.read_text()
    assert re.search(rf"\b{name}\b", text) and "\ndef test_" in text


@every_method
def test_history_is_complete_and_finite(name):
    assert not outputs.describe_history(three(name)[0], ROUNDS, 9)


@every_method
def test_its_numbers_are_those_on_record(name):
    """What a commit that changes them must do is in `CONTRIBUTING.md`."""
    assert not golden.differences(name, golden.read_record(), three(name))


@every_method
def test_its_diagnostics_say_what_they_are(name):
    """The page, the docs and the axes of figures take the words from where a number is made."""
    declared = METHODS.entry(name).options.diagnostics | DIAGNOSTICS
    assert not outputs.describe_undeclared(three(name)[0], declared)
    for of, quantity in METHODS.entry(name).options.diagnostics.items():
        assert len(quantity.label) > 3 and quantity.label != of
        assert (quantity.unit == "share") == (of in SHARES or of.startswith("accuracy"))


@every_method
def test_it_learns(name):
    assert not outputs.describe_learning(three(name)[0])


def texts_of_shared_programs(function):
    """Return the programs of this name that this process keeps and that methods share."""
    kept = [each.result().as_text() for each in compiled._kept.values() if hasattr(each, "result")]
    return [text for text in kept if text.startswith(f"HloModule jit_shared_{function},")]


def test_methods_that_train_alike_share_that_program():
    compiled.forget()
    for name in ("fedavg", "ifca"):
        on_nine(name, seeds=[1], participants=5)
    assert len(texts_of_shared_programs("train_jobs")) == 1
    assert len(texts_of_shared_programs("draw_models")) == 2  # one model, and as many as IFCA has
    on_nine("fedprox", seeds=[1], participants=5)  # its steps are others
    assert len(texts_of_shared_programs("train_jobs")) == 2


@pytest.mark.parametrize("name", FEW)
def test_one_program_of_rounds_calls_nothing_of_the_host(name):
    _, carry, after, text = the_second_in_one_program(name)
    assert jax.tree.structure(after) == jax.tree.structure(carry)
    assert not [word for word in ("callback", "infeed", "outfeed") if word in text]


@every_method
def test_state_types_are_constant_and_nothing_calls_the_host(name):
    _, carry, after, texts = three_and_their_programs(name)
    assert jax.tree.structure(after) == jax.tree.structure(carry)
    assert all(
        a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(*map(jax.tree.leaves, (carry, after)), strict=True)
    )
    assert len(texts) > 3
    assert not [
        word for word in ("callback", "infeed", "outfeed") for text in texts if word in text
    ]


@pytest.mark.parametrize("name", FEW)
def test_a_run_in_stages_is_the_run_in_one_program(name):
    stages, whole = three(name)[1], the_second_in_one_program(name)[0]
    np.testing.assert_array_equal(stages.labels, whole.labels)
    np.testing.assert_allclose(stages.models, whole.models, rtol=1e-5, atol=1e-6)
    for quantity in ("accuracy", "loss", "train_loss", "discrepancy", "bytes_up"):
        np.testing.assert_allclose(
            stages.history[quantity],
            whole.history[quantity],
            rtol=1e-4,
            atol=1e-5,
            err_msg=quantity,
        )


@every_method
def test_chunks_of_any_size_give_the_same_bits_and_compile_once(name):
    whole, before = three(name), compiled.compilations
    for rounds in (1, 3):
        assert not any(map(unlike, whole, on_nine(name, RUNS, chunk_rounds=rounds)))
    assert compiled.compilations == before


@every_method
def test_one_diverging_run_leaves_the_others_alone(name):
    good = three(name)
    assert good[1].diverged_at == -1
    for lr in (float("nan"), 1e30):
        mixed = on_nine(name, [{}, {"lr": lr}, {}])
        assert not unlike(good[0], mixed[0]) and not unlike(good[2], mixed[2])
        assert mixed[1].diverged_at >= 0


@pytest.mark.parametrize("name", FEW)
def test_a_run_alone_is_the_run_in_a_batch(name):
    assert not unlike(three(name)[1], on_nine(name, seeds=[1])[0])


@every_method
def test_nothing_moves_without_a_learning_rate(name):
    if name in NOT_FIXED_WITHOUT_STEPS:
        pytest.skip(NOT_FIXED_WITHOUT_STEPS[name])
    still = on_nine(name, [{"lr": 0.0}, {}, {}])[0]
    assert np.allclose(still.history["loss"], still.history["loss"][0], atol=1e-6)


@pytest.mark.parametrize("name", ["ditto"])
def test_side_by_side_is_in_sequence(name):
    for a, b in zip(three(name), on_nine(name, RUNS, work={"sequential": False}), strict=True):
        assert np.array_equal(a.labels, b.labels)
        assert np.allclose(a.models, b.models, atol=1e-5)


@pytest.mark.parametrize("name", ["ifca", *OVER_ALL_CLIENTS])
def test_padding_is_invisible(name):
    assert not outputs.describe_padding(three(name)[1], padded(name))


@every_method
def test_the_order_of_clients_does_not_matter(name):
    order = np.array([4, 2, 8, 0, 7, 1, 3, 6, 5])
    moved = on_nine(name, RUNS, federation=play.nine_clients().take(order))[0]
    assert not outputs.describe_order(three(name)[0], moved, order)


@every_method
def test_a_client_with_broken_data_is_counted_and_kept_out(name):
    output = on_nine(name, RUNS, federation=toy.broken(play.nine_clients(), 3))[0]
    assert not outputs.describe_broken_client(output, 3)
