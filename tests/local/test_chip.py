"""Local training as one kernel, interpreted on the CPU, beside the Gram form of XLA and a plain float64 loop over one client."""

import dataclasses
import re

import jax
import numpy as np
import pytest

import cfljax
from cfljax import data, keys, models
from cfljax.config import read_spec
from cfljax.devices.chips import machine_of
from cfljax.errors import SpecError
from cfljax.experiment import assemble
from cfljax.experiment.execution import choose, explain
from cfljax.federation.pack import pack
from cfljax.local import fitting
from cfljax.local.fitting import form_of
from cfljax.local.schedule import Work, train_steps
from cfljax.local.ways import kernel_of
from cfljax.types import Jobs, Kernel, Parts
from tests import toy
from tests.reference import plain

COUNTS = (0, 1, 9, 10, 11, 500)
KEY = keys.fold(keys.root(3), "round", 0)
TPU, GPU = Kernel("tpu", 100 << 20, True), Kernel("gpu", 227 << 10, True)
ALL = {"momentum": 0.9, "mu": 0.3, "weight_decay": 0.1}
CASES = {
    "Gram": (TPU, 4096, (), {"epochs": 2, "batch": 10}, {}, ""),
    "by steps": (TPU, 0, (7,), {"epochs": 1, "batch": 9}, {}, ""),
    "full": (TPU, 4096, (7,), {"steps": 3, "batch": "full"}, {"mu": 0.2}, "anchor"),
    "full by steps": (GPU, 0, (), {"steps": 3, "batch": "full"}, ALL, "velocity weights"),
    "all of them": (TPU, 4096, (7,), {"epochs": 1, "batch": 20}, ALL, "anchor velocity weights"),
    "Triton": (GPU, 4096, (), {"steps": 5, "batch": 20}, ALL, "anchor velocity"),
    "chosen by loss": (TPU, 4096, (7,), {"epochs": 1, "batch": 10}, {"weight_decay": 0.1}, "choice"),
    "two layers": (GPU, 0, (6, 5), {"epochs": 1, "batch": 50}, {"momentum": 0.5}, "choice"),
    "large batches": (TPU, 0, (), {"epochs": 1, "batch": 33}, {}, ""),
}
QUICK = ("Gram", "all of them", "Triton", "chosen by loss", "full by steps")


def federation(counts=COUNTS, seed=0, features=6):
    """Clients with these numbers of samples."""
    source = data.load("blobs", {"samples": int(max(sum(counts), 40)), "features": features, "classes": 4}, seed=seed)
    ends = np.cumsum(counts)
    each = [np.arange(end - count, end) % len(source.y_train) for end, count in zip(ends, counts, strict=True)]
    parts = Parts(each, [np.arange(2)] * len(counts), np.full(len(counts), -1))
    return jax.device_put(pack(parts, source, "none"))


def with_kernel(solver, kernel):
    return dataclasses.replace(solver, plan=solver.plan._replace(kernel=kernel))


def setting(there, hidden, extras, seed=0):
    """(model, jobs): two models to start from, one masked client, one straggler; what `extras` names besides."""
    model = models.build("mlp" if hidden else "mclr", {"hidden": list(hidden)} if hidden else None, there.sample_shape, 4)
    rng = lambda number: np.random.default_rng([seed, number])  # noqa: E731
    several = lambda number, scale: np.float32(scale * rng(number).normal(size=(2, model.size)))  # noqa: E731
    clients, number = np.arange(there.clients, dtype=np.int32), there.clients
    which, part = clients % 2, np.where(clients == number - 1, np.float32(0.55), np.float32(1))
    anchor = several(2, 0.3) if "anchor" in extras else None
    velocity = several(3, 0.1) if "velocity" in extras else None
    weights = np.float32(0.5 + rng(0).random((number, there.train.longest))) if "weights" in extras else None
    start = None if "choice" in extras else which
    return model, jax.device_put(Jobs(clients, clients != 2, part, several(1, 0.3), start, anchor, None, velocity, weights))


def compare(there, kernel, gram, hidden, work, numbers, extras, seed=0):
    model, jobs = setting(there, hidden, extras, seed)
    hyper = {name: np.float32(value) for name, value in ({"lr": 0.05} | numbers).items()}
    alone = toy.pulling_solver(model, gram=4096, **work)
    chip = with_kernel(toy.pulling_solver(model, gram=gram, lanes=0, **work), kernel)
    form = kernel_of(chip, there, chip.step_of(hyper), 2)
    assert form is not None and form.gram == (gram > 0)
    got, want = (jax.tree.map(np.asarray, jax.jit(solver.fit)(KEY, there, jobs, hyper)) for solver in (chip, alone))
    assert np.array_equal(got.steps, want.steps)
    names = ["delta", "loss"] + ["velocity"] * (jobs.velocity is not None)
    for name in names:
        a, b = np.asarray(getattr(got, name)), np.asarray(getattr(want, name))
        assert np.abs(a - b).max() < 1e-5 * np.abs(b).max(), name
    which = jobs.which
    if which is None:
        assert np.array_equal(got.which, want.which)
        assert seed or len(set(np.asarray(got.which))) == 2, "the federation that was chosen for it has clients of both models"
        which = got.which
    if len(hidden) < 2:
        beside_numpy(there, got.delta, jobs, which, hidden, work, numbers)


def beside_numpy(there, delta, jobs, which, hidden, work, numbers):
    """The same in float64, one client after another."""
    net, clients = plain.Net(*there.sample_shape, 4, *hidden), plain.Clients(there)
    steps = np.asarray(train_steps(there, jobs, toy.solver(None, **work).work))
    row = lambda of, c: None if of is None else np.asarray(of, np.float64)[int(which[c])]  # noqa: E731
    for c in range(there.clients):
        if not steps[c]:
            assert not np.any(delta[c])
            continue
        start, (x, y) = row(jobs.start, c), clients.train[c]
        if jobs.which is None:
            losses = [net.loss(w, x, y) for w in np.asarray(jobs.start, np.float64)]
            assert int(which[c]) == int(np.argmin(losses))
        weights = None if jobs.weights is None else np.asarray(jobs.weights, np.float64)[c][: len(y)]
        key = plain.local_key(KEY, clients.uid[c])
        end, _ = plain.fit(
            net, start, (x, y), key, 0.05, batch=work["batch"], steps=int(steps[c]), anchor=row(jobs.anchor, c),
            velocity=row(jobs.velocity, c), weights=weights, **numbers,
        )  # fmt: skip
        assert np.abs(np.asarray(delta[c]) - (end - start)).max() < 1e-5 * max(1.0, np.abs(end - start).max())


@pytest.mark.parametrize("case", QUICK)
def test_one_kernel_trains_as_the_gram_form_and_as_numpy(case):
    compare(federation(), *CASES[case])


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case not in QUICK])
def test_one_kernel_trains_so_in_other_ways(case):
    compare(federation(), *CASES[case])


@pytest.mark.parametrize(
    ("features", "gram", "numbers", "extras"), [(600, 4096, ALL, "anchor velocity weights"), (600, 0, {"mu": 0.2}, "anchor")]
)
def test_a_first_layer_beyond_a_gpu_s_registers_is_changed_in_tiles(features, gram, numbers, extras, monkeypatch):
    monkeypatch.setattr(fitting, "CARRIED", 40 << 10)
    monkeypatch.setattr(fitting, "AT_A_TIME", 8 << 10)
    there, work = federation(features=features), {"epochs": 1, "batch": 10}
    form = form_of(GPU, setting(there, (7,), "")[0], Work(1, None, 10), 500, gram > 0, momentum="momentum" in numbers, mu=True)
    assert (form.tile, form.across) == ((64, 512) if gram else (128, 1024))
    compare(there, GPU, gram, (7,), work, numbers, extras)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_federations_and_options(seed):
    rng = np.random.default_rng(seed)
    counts = (*rng.permutation(COUNTS[:-1]), *rng.integers(2, 60, 3))
    batch = rng.choice([1, 7, 10, "full"])
    work = {rng.choice(["epochs", "steps"]): int(rng.integers(1, 5)), "batch": batch if batch == "full" else int(batch)}
    work = {"steps": 3, "batch": "full"} if batch == "full" else work
    numbers = {name: float(rng.uniform(0.05, 0.9)) for name in ("momentum", "mu", "weight_decay") if rng.random() < 0.5}
    extras = [name for name in ("weights", "choice") if rng.random() < 0.3]
    extras += ["velocity"] if "momentum" in numbers and "choice" not in extras and rng.random() < 0.5 else []
    extras += ["anchor"] if "mu" in numbers and "choice" not in extras and rng.random() < 0.5 else []
    hidden = () if rng.random() < 0.4 else (int(rng.integers(2, 20)),)
    gram = int(rng.choice([0, 4096]))
    compare(federation(counts, seed), [TPU, GPU][seed % 2], gram, hidden, work, numbers, " ".join(extras), seed + 1)


def test_runs_are_one_more_axis_of_the_kernel_s_grid():
    there = federation((3, 0, 12))
    model, jobs = setting(there, (), "")
    solver = with_kernel(toy.pulling_solver(model, gram=4096, lanes=0, epochs=1, batch=5), TPU)
    fit = lambda lr: solver.fit(KEY, there, jobs, {"lr": lr}).delta  # noqa: E731
    rates = np.float32([0.05, 0.2])
    traced = jax.jit(jax.vmap(fit)).trace(rates)
    assert str(traced.jaxpr).count("pallas_call") == 1 and "grid=(2, 3)" in str(traced.jaxpr)
    assert np.allclose(traced.lower().compile()(rates), np.stack([jax.jit(fit)(rate) for rate in rates]), atol=1e-6)


def explained(runs=1, **options):
    """What is said of the kernel for a TPU v5e."""
    table = {"data": {"name": "digits", "clients": 5}, "model": "mclr", "train": {"rounds": 2, "lr": 0.1}, "method": "fedavg"}
    for name, value in options.items():
        table[name] = table[name] | value if name == "train" else value
    (run,) = read_spec(table).runs()
    machine, there = machine_of("v5e"), assemble.host_federation(run)
    text = explain("run", choose(run, assemble.model_of(run, there), there, machine, runs))
    return next((line.strip() for line in text.splitlines() if "kernel" in line), None)


def test_explain_says_in_one_line_whether_there_is_a_kernel():
    assert explained().startswith(
        "local training is one kernel, a program per client (Mosaic), by steps; predicted for all steps of a round: "
    )
    assert "plain SGD" in explained(train={"optimizer": "adam"}) and "plain SGD" in explained(model="cnn")
    assert "too long a program" in explained(model={"name": "mlp", "hidden": [6000]})
    assert explained(train={"plan": {"kernel": "xla"}}) is None
    with pytest.raises(SpecError, match="kernel"):
        explained(train={"plan": {"kernel": "palas"}})


def test_what_is_predicted_to_be_faster_is_taken_unless_one_is_forced():
    def times(text):
        return [float(word) for word in re.findall(r"([0-9.e-]+) ms", text)]

    few = explained()
    wide = {"data": {"name": "digits", "clients": 80, "partition": "iid"}, "model": {"name": "mlp", "hidden": [64]}}
    many = explained(**wide)
    assert "one kernel, a program" in few and times(few)[0] < times(few)[1]
    assert "XLA's kernels: these are predicted to be faster" in many and times(many)[0] > times(many)[1]
    forced = {"plan": {"kernel": "pallas"}}
    assert "one kernel, a program" in explained(**wide, train=forced)
    assert "one kernel, a program" in few and "these are predicted" in explained(runs=64)


def test_a_run_by_the_kernel_is_the_run_by_xla():
    options = {"data": {"name": "digits", "clients": 5}, "model": "mclr", "rounds": 2, "lr": 0.1}
    by_xla, by_kernel = (cfljax.run("ifca", **options, plan={"kernel": kernel}) for kernel in ("xla", "pallas"))
    assert np.allclose(by_xla.params(0)["dense_0"]["kernel"], by_kernel.params(0)["dense_0"]["kernel"], atol=1e-5)
    assert '"pallas"' in by_kernel.record["plan"] and "pallas" not in by_xla.record["plan"]


def test_what_does_not_fit_goes_by_xla_and_says_why():
    mlp, wide = (models.build("mlp", {"hidden": [width]}, (28, 28), 10) for width in (200, 3000))
    work = Work(20, None, 10)
    assert form_of(TPU, mlp, work, 900, True).gram and not form_of(TPU, mlp, work, 900, False).gram
    assert not form_of(TPU, mlp, Work(1, None, 10), 6000, True).gram  # the samples themselves are fewer numbers
    for kernel, model, some, longest, why in (
        (GPU, mlp, Work(None, 10, None), 200, "a step's samples take 256 KiB of registers"),
        (TPU, wide, work, 900, "too long a program"),
        (TPU, mlp, Work(1, None, 10), 30000, "KiB on the chip"),
        (TPU, mlp, Work(20, None, 10), 5000, "unit's memory"),
        (TPU, mlp, Work(200, None, 10), 5000, "drawn at once"),
        (TPU, models.build("cnn", None, (28, 28), 10), work, 900, "not for cnn"),
        (TPU, models.build("mclr", None, (28, 28), 10, several=True), work, 900, 'not for loss "several"'),
    ):
        assert why in form_of(kernel, model, some, longest, True)
