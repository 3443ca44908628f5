"""Methods that are soft or partly personal, written against `cfljax.extend` alone."""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax import data, extend
from cfljax.config import plugins
from cfljax.methods import METHODS
from cfljax.models import from_module
from tests import blocks, play, toy
from tests.often import rarely
from tests.reference import fedem, plain

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [HERE / "soft.py", HERE / "partly.py"]
UNDESCRIBED = {"Array", "Hyper", "Tree"}
"""Names of types that have no docstring at run time."""


@pytest.fixture
def loaded():
    plugins.load([str(path) for path in FILES])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_plug_in_needs_nothing_but_the_facade(path):
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert {name for name in modules if name.startswith("cfljax")} == {"cfljax.extend"}


def test_the_facade_has_all_that_the_pages_import():
    for page in (ROOT / "docs").glob("*.md"):
        for module, names in re.findall(
            r"^from (cfljax[\w.]*) import ([\w, ]+)$", page.read_text(), re.MULTILINE
        ):
            for name in names.split(", "):
                assert hasattr(importlib.import_module(module), name), (
                    f"{page.name}: {module} has no {name}"
                )
            if page.name == "own.md":
                assert module == "cfljax.extend"


def test_the_facade_lists_what_it_has_and_each_thing_says_what_it_is():
    public = {
        name
        for name, value in vars(extend).items()
        if not name.startswith("_") and getattr(value, "__module__", "") != ""
    }
    assert set(extend.__all__) <= public
    for name in set(extend.__all__) - UNDESCRIBED:
        assert (getattr(extend, name).__doc__ or "").strip(), name


def things(name):
    """What the facade has under this name, and, of a class, its public functions: (where, thing)."""
    thing = getattr(extend, name)
    yield name, thing
    for inner, value in vars(thing).items() if inspect.isclass(thing) else ():
        value = getattr(value, "__func__", value)  # of a class method
        if inspect.isfunction(value) and not inner.startswith("_"):
            yield f"{name}.{inner}", value


DESCRIBED = [pair for name in extend.__all__ if name not in UNDESCRIBED for pair in things(name)]


def test_functions_of_the_facade_name_their_arguments():
    lacking = {}
    for where, thing in DESCRIBED:
        said = inspect.getdoc(thing) or ""
        if inspect.isfunction(thing) and "Arguments as for" not in said:
            own = [each for each in inspect.signature(thing).parameters if each != "self"]
            own = own[1:] if own[:1] == ["cls"] else own
            missing = [each for each in own if not re.search(rf"^    {each}: ", said, re.M)]
            lacking |= {where: missing} if missing else {}
    assert lacking == {}


def test_examples_of_the_facade_are_code_and_their_classes_are_methods():
    names = {"cfljax": cfljax, "dataclasses": dataclasses, "jax": jax, "jnp": jnp}
    names |= {name: getattr(extend, name) for name in extend.__all__}
    found = 0
    for where, thing in DESCRIBED:
        for block in re.findall(r"```python\n(.*?)```", inspect.getdoc(thing) or "", re.S):
            text = textwrap.dedent(block)
            code = compile(text, where, "exec")
            found += 1
            if re.search("^class ", text, re.M):
                exec(code, dict(names))
    assert found > 20


def test_the_reference_lists_the_facade():
    page = (ROOT / "docs" / "reference.md").read_text()
    listed = re.findall(r"^::: cfljax\.extend\.(\w+)$", page, re.M)
    assert sorted(listed) == sorted(extend.__all__)


@pytest.mark.parametrize(
    ("work", "hidden"),
    [
        ({"gram": 4096}, 7),
        rarely({}, 7),
        rarely({"sequential": False}, None),
        rarely({"stream": 4}, None),
    ],
)
def test_the_soft_method_agrees_with_a_plain_program(loaded, work, hidden):
    federation, model, net = toy.federation(), toy.model(hidden), plain.Net(6, 4, hidden)
    played = play.rounds(
        "soft",
        federation,
        rounds=3,
        participants=5,
        seed=2,
        work=work | {"epochs": 2},
        model=model,
        clusters=3,
    )
    models, mixture = fedem.fedem(
        net, plain.Clients(federation), played.states[0].models, 2, 3, 5, 0.1, 5, 2
    )
    np.testing.assert_allclose(played.models(), models, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(played.states[-1].mixture, mixture, rtol=1e-4, atol=1e-5)
    assert np.abs(mixture - 1 / 3).max() > 0.05


@functools.partial(jax.jit, static_argnums=0)
def _score(*given):
    return extend.score_mixtures(*given)


def score(*given):
    """`score_mixtures` as numpy arrays."""
    return jax.device_get(_score(*given))


@pytest.mark.parametrize("test", ["own", "global"])
def test_clients_are_scored_by_their_mixture_of_the_models(loaded, test):
    federation, model = toy.federation(test=test), toy.model()
    rng = np.random.default_rng(1)
    models = np.float32(0.3 * rng.normal(size=(3, model.size)))
    weights = np.float32(fedem.softmax(2 * rng.normal(size=(3, federation.clients))).T)
    who = np.arange(federation.clients) != 4
    found = score(model, federation, federation.test, models, weights, who)
    clients, net = plain.Clients(federation), plain.Net(6, 4)
    for c, (x, y) in enumerate(clients.test):
        p = sum(
            float(weights[c, k])
            * fedem.softmax(net.logits(np.asarray(models[k], np.float64), x).T).T
            for k in range(3)
        )
        assert found.samples[c] == (len(y) if who[c] else 0)
        assert found.correct[c] == ((p.argmax(1) == y).sum() if who[c] else 0)
        assert np.isclose(
            found.loss[c], -np.log(p[np.arange(len(y)), y]).sum() if who[c] else 0, rtol=1e-4
        )


def test_mixtures_of_models_with_one_logit_mix_probabilities():
    source = data.load("blobs", {"samples": 400, "features": 6, "classes": 2}, seed=0)
    federation = toy.federation(source=source, test="own")
    model = from_module(
        (lambda key: jnp.zeros((6, 1)), lambda w, x: x @ w), (6,), 2, loss="sigmoid"
    )
    rng = np.random.default_rng(1)
    models = np.float32(0.5 * rng.normal(size=(3, 6)))
    weights = fedem.softmax(2 * rng.normal(size=(3, federation.clients))).T
    who = np.ones(federation.clients, bool)
    found = score(model, federation, federation.test, models, np.float32(weights), who)
    for c, (x, y) in enumerate(plain.Clients(federation).test):
        p = 1 / (1 + np.exp(-x @ np.asarray(models, np.float64).T)) @ weights[c]
        assert found.correct[c] == ((p > 0.5) == (y == 1)).sum()
        assert np.isclose(found.loss[c], -np.log(np.where(y == 1, p, 1 - p)).sum(), rtol=1e-4)


def test_a_soft_method_runs_from_a_spec_and_finds_the_groups(loaded):
    data = {
        "name": "blobs",
        "samples": 400,
        "partition": "label_permutation",
        "groups": 2,
        "clients": 8,
        "samples_per_client": 50,
    }
    options = {"data": data, "model": "mclr", "rounds": 20, "lr": 0.3, "epochs": 3, "seed": 1}
    soft, one = cfljax.run("soft", clusters=2, **options), cfljax.run("fedavg", **options)
    assert soft.summary["accuracy_last"] > one.summary["accuracy_last"] + 0.15
    assert soft.summary["ari_last"] == 1.0
    assert soft.summary["bytes_up"] == 2 * one.summary["bytes_up"]


def test_the_head_of_a_partly_personal_method_stays_at_home(loaded):
    federation, model = toy.federation(), toy.model(7)
    played = play.rounds(
        "partly", federation, rounds=2, participants=5, model=model, head="dense_1"
    )
    models, head = played.models(), np.asarray(extend.part_of(model, "dense_1"))
    assert 0 < head.sum() < model.size
    assert (models[:, ~head] == models[0, ~head]).all()  # the body is everybody's
    drawn = {int(c) for t in range(2) for c in plain.cohort(0, t, np.asarray(federation.uid), 5)}
    first = played.models(0)
    assert {
        c for c in range(federation.clients) if (models[c, head] != first[c, head]).any()
    } == drawn
    assert (models[:, ~head] != first[:, ~head]).any()


def test_an_option_called_mu_is_the_method_s_own(loaded):
    @cfljax.register_method("with_mu", make_options())
    def make(config, model, solver):
        """Has an option that local training must not see."""
        from cfljax.methods.fedavg import FedAvg
        from cfljax.round.entry import method_of

        return method_of("fedavg", FedAvg(), model, solver)

    federation = toy.federation()
    ours, plain_one = (
        play.rounds(name, federation, rounds=2, participants=5) for name in ("with_mu", "fedavg")
    )
    assert np.array_equal(ours.models(), plain_one.models())


def make_options():
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Options(extend.MethodConfig):
        mu: float = cfljax.option(5.0, "means nothing to local training", traced=True)

    return Options


CLOCK = {"step_ms": 5, "up_mbps": 1}
FEATURES = {
    "on the way": {
        "attack": {"name": "sign_flip", "share": 0.2},
        "compress": {"name": "topk", "keep": 0.5, "feedback": True},
        "privacy": {"clip": 1.0, "noise": 0.1, "choice": {"epsilon": 9.0}},
        "clock": CLOCK | {"deadline_s": 9.0},
        "optimizer_state": "client",
        "momentum": 0.5,
    },
    "models": {
        "parts": {"body": "all"},
        "server": {"name": "fedadam", "lr": 0.01},
        "robust": "median",
        "dropout": 0.2,
        "stragglers": 0.5,
    },
    "arrivals": {
        "clock": CLOCK,
        "asynchronous": {"buffer": 2},
        "freeze": "head",
        "optimizer": "adam",
        "finetune_steps": 3,
    },
}


LACKING = {
    "balanced": set(),
    "tempered": {"feedback", "choice", "optimizer_state", "parts", "asynchronous", "freeze"},
}


@pytest.mark.parametrize("feature", ["on the way", rarely("models"), rarely("arrivals")])
@pytest.mark.parametrize("name", ["balanced", rarely("tempered")])
def test_the_recipes_of_the_page_have_the_features_that_they_do_not_name(name, feature, tmp_path):
    page = blocks.blocks(ROOT / "docs" / "own.md")
    file = tmp_path / "my_clusters.py"
    file.write_text(next(each.text for each in page if each.title == file.name))
    plugins.load([str(file)])
    data = {
        "name": "blobs",
        "samples": 300,
        "clients": 9,
        "validation": 0.2,
        "new_clients": {"share": 0.2, "steps": [2]},
    }
    without = METHODS.check(name, {}, "m").without
    assert {key.split(".")[-1] for key in without} == LACKING[name]
    train = {key: each for key, each in FEATURES[feature].items() if key not in without}
    for table, key in (each.split(".") for each in without if "." in each):
        if table in train:
            train |= {table: {k: v for k, v in train[table].items() if k != key}}
    run = cfljax.run(
        name, data, {"name": "mlp", "hidden": [7]}, rounds=2, train=train | {"lr": 0.1}
    )
    assert np.isfinite(run.history["accuracy"]).all()
    assert np.isfinite(run.history["val_accuracy"]).all()
    assert ("clock_s" in run.summary) == ("clock" in train)
    assert "privacy" not in train or 0 < run.summary["epsilon"] < np.inf
