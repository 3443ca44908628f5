"""How many runs an accelerator computes side by side, by the compiler's figures. A CPU stands for
the accelerator."""

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices import compiled
from cfljax.devices.machine import describe_machine
from cfljax.devices.mesh import Shape
from cfljax.engine.groups import default_flags
from cfljax.engine.simulate import simulate
from cfljax.errors import DataError
from cfljax.experiment import widths
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import make_batches
from cfljax.experiment.widths import (
    MEASURED_RUNS_PER_GROUP,
    MEMORY_SHARE,
    batch_limit,
    measure_bytes,
)
from cfljax.launch import plan_file
from cfljax.store import Store
from tests import machines

DATA = {
    "name": "blobs",
    "samples": 200,
    "features": 20,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 6,
}
TABLE = {
    "data": DATA,
    "model": "mclr",
    "method": [{"name": "fedavg"}],
    "train": {"rounds": 2, "batch": 5},
}


def spec(seeds, **more):
    return read_spec(TABLE | {"seeds": list(range(seeds))} | more)


def gpu(memory=1 << 30, **more):
    return describe_machine()._replace(backend="gpu", kind="of a test", memory=memory, **more)


def never(*_):
    pytest.fail("compiled")


def test_the_limit_follows_the_memory():
    runs = spec(20).runs()
    each, shared = measure_bytes(
        make_batches(runs[:MEASURED_RUNS_PER_GROUP], MEASURED_RUNS_PER_GROUP)[0], gpu()
    )
    for width in (1, 3, 10, 100):
        memory = int((shared + (width + 0.5) * each) / MEMORY_SHARE)
        assert batch_limit(runs, gpu(memory)) == width
    assert batch_limit(runs, gpu(1)) == 1 and batch_limit(runs, gpu(1 << 40)) == 256


def test_what_runs_take_is_proportional_to_their_number():
    method = [{"name": "ifca", "clusters": 2}]
    few, many = (
        measure_bytes(make_batches(spec(n, method=method).runs(), n)[0], gpu())[0] for n in (8, 16)
    )
    assert abs(few / many - 1) < 0.05


def test_single_runs_and_runs_of_a_cpu_are_not_compiled(monkeypatch):
    monkeypatch.setattr(widths, "measure_bytes", never)
    assert batch_limit(spec(1).runs(), gpu()) == 1
    assert batch_limit(spec(3).runs(), machines.cpu(memory=1)) == 1
    assert batch_limit(spec(3).runs(), machines.cpu(8, mesh=Shape(4, 2))) == 4


def test_a_few_runs_have_their_programs_then():
    (batch,) = make_batches(spec(3, model={"name": "mlp", "hidden": [7]}).runs(), 3)
    assert batch_limit(list(batch.runs), gpu()) >= 3
    before = compiled.compilations
    with default_flags():
        outputs = simulate(assemble_batch(batch, gpu()), batch.seeds, batch.hypers)
    assert compiled.compilations == before and len(outputs) == 3


def test_what_a_method_prepares_is_prepared_for_one_run(monkeypatch):
    (batch,) = make_batches(
        spec(3, method=[{"name": "fedgroup", "clusters": 2, "alpha": 3}]).runs(), 3
    )
    parts = assemble_batch(batch, gpu())
    prepared = []
    setup = lambda *given: prepared.append(given) or parts.method.setup(*given)  # noqa: E731
    monkeypatch.setattr(
        widths,
        "assemble_batch",
        lambda *_: parts._replace(method=parts.method._replace(setup=setup)),
    )
    assert measure_bytes(batch, gpu())[0] > 0 and len(prepared) == 1


def test_what_the_compiler_has_no_room_for_is_halved(monkeypatch, capsys):
    asked = []

    def small(batch, _):
        asked.append(batch.width)
        if batch.width > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: hbm")
        return 10.0, 0

    monkeypatch.setattr(widths, "measure_bytes", small)
    assert batch_limit(spec(20).runs(), gpu(100)) == 6 and asked == [8, 4, 2]
    assert (
        "fedavg: compiling 2 runs, to see how many the device's memory holds"
        in capsys.readouterr().err
    )


def test_runs_that_raise_go_one_by_one_and_missing_data_end_the_sweep(monkeypatch):
    runs = spec(3).runs()
    monkeypatch.setattr(
        widths, "measure_bytes", lambda *_: (_ for _ in ()).throw(ValueError("a bug of a method"))
    )
    assert batch_limit(runs, gpu()) == 1
    monkeypatch.setattr(
        widths, "measure_bytes", lambda *_: (_ for _ in ()).throw(DataError("no such file"))
    )
    with pytest.raises(DataError, match="no such file"):
        batch_limit(runs, gpu())


def test_of_several_processes_one_compiles_for_itself(monkeypatch):
    seen = []
    monkeypatch.setattr(
        widths, "measure_bytes", lambda batch, machine: seen.append(machine) or (10.0, 0)
    )
    machine = gpu(100, devices=4, processes=2, mesh=Shape(4, 2))
    assert batch_limit(spec(20).runs(), machine) == 4 * 6
    assert (seen[0].devices, seen[0].processes, seen[0].mesh) == (1, 1, None)


def test_a_backend_without_figures_gets_what_was_compiled(monkeypatch):
    monkeypatch.setattr(widths, "measure_bytes", lambda *_: None)
    assert batch_limit(spec(20).runs(), gpu()) == MEASURED_RUNS_PER_GROUP


def test_a_resume_keeps_the_widths_of_the_plan(tmp_path, monkeypatch):
    monkeypatch.setattr(widths, "measure_bytes", lambda *_: (10.0, 0))
    settled = plan_file.make_plan(spec(5), Store(tmp_path), gpu(50), None, None)[0]
    assert [(len(batch.runs), batch.width) for batch in settled] == [(3, 3), (2, 3)]
    monkeypatch.setattr(widths, "measure_bytes", never)
    again = plan_file.make_plan(spec(5), Store(tmp_path), gpu(10**9), None, None)[0]
    assert again == settled and np.array_equal(*([b.id for b in each] for each in (again, settled)))
