"""Traced programs in the cache folder: what finds them, what does not, and that no number depends on them."""

import io
import os
import subprocess
import sys
import zipfile
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

import cfljax
from cfljax import files
from cfljax.config import read_spec
from cfljax.devices import compiled, portable
from cfljax.devices.compiled import Source
from cfljax.devices.cut import cut, in_one_piece, in_pieces
from cfljax.engine import compiling, stored
from cfljax.engine.groups import Group
from cfljax.engine.settings import View
from cfljax.engine.simulate import simulate
from cfljax.engine.traced import Pick, Traced
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import batches
from cfljax.methods import METHODS
from tests import machines
from tests.engine.test_quick import DATA, IMAGES
from tests.play import unlike

A = jnp.arange(3.0)
FORM = jax.ShapeDtypeStruct((3,), np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Programs are kept here."""
    monkeypatch.setattr(portable, "wanted", lambda: True)
    monkeypatch.setattr(files, "programs_folder", lambda: tmp_path)
    compiled.forget()
    yield tmp_path / files.TRACED
    compiled.forget()


def batch_of(method="fedavg", seed=0, model="mclr", data=DATA, label=None, **train):
    method = {"name": method} | ({} if label is None else {"label": label})
    train = {"rounds": 3, "lr": 0.1, **train}
    spec = {"data": data, "model": model, "method": [method], "train": train, "seeds": [seed]}
    return batches(read_spec(spec).runs(), 1)[0]


def assembled_by(**more):
    batch = batch_of(**more)
    return batch, assemble_batch(batch, machines.cpu())


def outputs(**more):
    batch, parts = assembled_by(**more)
    return simulate(parts, batch.seeds, batch.hypers)[0]


def another_process(monkeypatch):
    """What is computed from now on is computed by a process that traces nothing."""
    compiled.forget()

    def trace(*args):
        raise AssertionError("this was traced before")

    monkeypatch.setattr(compiling, "trace", trace)


def test_another_process_gets_the_same_bits_and_traces_nothing(folder, monkeypatch):
    first = outputs()
    assert len(list(folder.glob("*.zip"))) == 1
    another_process(monkeypatch)
    assert not unlike(first, outputs())
    monkeypatch.undo()  # no cache
    compiled.forget()
    assert not unlike(first, outputs())


def test_runs_that_differ_in_seeds_rounds_numbers_or_names_find_it_and_others_do_not(folder, monkeypatch):
    outputs()
    another_process(monkeypatch)
    for other in ({"seed": 5}, {"rounds": 7}, {"lr": 0.3}, {"label": "mine"}, {"eval_every": 2}):
        outputs(**other)
    for other in ({"method": "fedprox"}, {"epochs": 3}, {"batch": 5}, {"model": {"name": "mlp", "hidden": [3]}}, {"data": IMAGES}):
        with pytest.raises(AssertionError, match="traced before"):
            outputs(**other)


def places(**more):
    """A function that says where a batch's programs are kept."""
    _, parts = assembled_by(**more)
    group = Group(np.zeros((1, 2)), {"lr": np.zeros(1)}, {})
    return lambda parts=parts, group=group: stored.place_of(parts, group, parts.federation)


def test_the_name_of_a_file_holds_what_the_programs_depend_on(folder, monkeypatch):
    where = places()
    found = [where(), where(group=Group(np.zeros((2, 2)), {"lr": np.zeros(1)}, {}))]
    (_, parts) = assembled_by()
    found.append(where(parts._replace(plan=parts.plan._replace(gram=8))))
    found.append(where(parts._replace(mesh=jax.sharding.Mesh(np.array(jax.devices()[:1]), ("clients",)))))
    found.append(where(parts._replace(settings=parts.settings._replace(score="assigned"))))
    with monkeypatch.context() as patch:
        patch.setattr(stored, "software_hash", lambda: "another version")
        found.append(where())
    with jax.enable_x64(True):
        found.append(where())
    assert len({*found}) == len(found) == 7 and None not in found
    assert where() == found[0] == where(parts._replace(settings=parts.settings._replace(rounds=9)))


def test_what_is_not_kept(folder, monkeypatch):
    where, (_, parts) = places(), assembled_by()
    assert where(parts._replace(plan=parts.plan._replace(quick=False))) is None
    assert where(parts._replace(ours=False)) is None and where(parts._replace(sharded=True)) is None
    assert where(parts._replace(settings=parts.settings._replace(score="<function f at 0x7f00>"))) is None
    monkeypatch.setattr(portable, "wanted", lambda: False)
    assert where() is None
    monkeypatch.setattr(portable, "wanted", lambda: True)
    monkeypatch.setattr(files, "programs_folder", lambda: None)
    assert where() is None


def test_what_is_the_users_own_is_traced_in_each_process(folder):
    plain = METHODS.entry("fedavg").make

    @cfljax.register_method("mine", METHODS.entry("fedavg").options)
    def make(options, model, solver):
        """A method of the user's."""
        return plain(options, model, solver)

    assert assembled_by()[1].ours and not assembled_by(method="mine")[1].ours
    assert not unlike(outputs(method="mine"), outputs())
    assert len(list(folder.glob("*.zip"))) == 1  # FedAvg's


def with_a_changed_bit(archive):
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        at = members.infolist()[0].header_offset + 200
    return archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :]


def of_other_words():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(stored.ABOUT, '{"cuts": {}, "pick": null, "models": 1}')
    return file.getvalue()


def test_a_damaged_file_is_written_anew(folder, monkeypatch):
    first = outputs()
    (file,) = folder.glob("*.zip")
    whole = file.read_bytes()
    for damaged in (b"", b"no archive", whole[: len(whole) // 2], with_a_changed_bit(whole), of_other_words()):
        file.write_bytes(damaged)
        compiled.forget()
        assert not unlike(first, outputs()) and len(file.read_bytes()) == len(whole), damaged[:200]
    another_process(monkeypatch)
    assert not unlike(first, outputs())


def test_a_folder_that_cannot_be_written_to_does_no_harm(folder):
    folder.write_text("no folder")
    assert outputs().history["accuracy"].shape == (4,)


class Own(NamedTuple):
    a: object
    b: object


def test_trees_of_shapes_come_back_and_what_has_no_words_is_refused():
    shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    tree = Own({"x": [shape, None], "y": (shape,)}, View(shape, shape, None, None, {}))
    back = stored._tree_of(stored._as_json(tree))
    assert back == tree and type(back) is Own and type(back.b) is View

    class Local(NamedTuple):
        a: object

    for other in (Local(shape), {1: shape}, {"x": 3}, jax.eval_shape(lambda: jax.random.key(0))):
        with pytest.raises(stored.Unwritable):
            stored._as_json(other)
    with pytest.raises(ValueError, match="no such class"):
        stored._tree_of(["os path", []])


def traced_with(rounds):
    f = in_one_piece(Source(lambda a: a + 1, (FORM,), None, None)).with_bytes("f", True)
    return Traced(rounds, f, f, None, Pick((0,), View(*[f.form] * 2, None, None, {})), 1)


def test_constants_and_memory_that_is_reused_are_kept(tmp_path):
    table = np.array([2.0, 4.0, 8.0], np.float32)
    rounds = cut(jax.jit(lambda a, b: (a * table, b, b, table, jnp.float32(3))).trace(A, A), 1).with_bytes("rounds", True)
    donated = in_one_piece(Source(lambda a, b: a + b, (FORM, FORM), None, None, (0,))).with_bytes("donated", True)
    for of, args in ((rounds, (A + 1, A)), (donated, (A + 2, A))):
        stored.write(tmp_path / "traced" / "some.zip", traced_with(of))
        back = stored.read(tmp_path / "traced" / "some.zip", None)
        assert back.rounds.overwrites == of.overwrites and back.models == 1 and back.pick.places == (0,)
        expected, found = (each.run_by(compiled.compiled(each.sources("f", None, False))[0]) for each in (of, back.rounds))
        expected = jax.tree.map(np.array, expected(args[0] + 0, args[1]))
        jax.tree.map(np.testing.assert_array_equal, found(*args), expected)
    assert donated.overwrites == [(0,)] and args[0].is_deleted() and not args[1].is_deleted()


def test_programs_that_call_the_host_are_not_kept(tmp_path, capfd):
    def f(a):
        jax.debug.print("{}", a.sum())
        return a + 1

    of = cut(jax.jit(f).trace(A)).with_bytes("f", True)
    stored.write(tmp_path / "some.zip", traced_with(of))
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(of.run_by(compiled.compiled(of.sources("f", None, False))[0])(A), A + 1)
    jax.effects_barrier()
    assert "3.0" in capfd.readouterr().out


def test_linear_algebra_of_lapack_is_found_and_other_programs_do_without_it(folder):
    """In a process of its own, which has not called LAPACK before."""
    singular = in_pieces(lambda a: jnp.linalg.svd(a, compute_uv=False), True)
    np.testing.assert_allclose(singular(jnp.diag(A + 1)), [3, 2, 1], rtol=1e-6)
    of = cut(jax.jit(lambda a: jnp.linalg.svd(a, compute_uv=False)).trace(jnp.eye(3))).with_bytes("singular", True)
    assert portable.LAPACK in of.pieces[0].program.data
    done = subprocess.run([sys.executable, "-c", APART, of.pieces[0].program.data.hex()], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "3.0", "True"], done.stderr[-2000:]


APART = """
import sys
import jax, jax.numpy as jnp
from cfljax.devices import portable
plain = portable.with_bytes(portable.of_traced(jax.jit(lambda a: a + 1).trace(jnp.ones(2)).jaxpr), "plain")
assert jax.jit(plain.f).lower(*plain.forms).compile()(jnp.ones(2))[0].tolist() == [2, 2]
print("scipy.linalg" in sys.modules)
program = portable.of_bytes(bytes.fromhex(sys.argv[1]))
print(float(jax.jit(program.f)(3 * jnp.eye(3))[0][0]), "scipy.linalg" in sys.modules)
"""


def test_too_large_programs_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "MOST", 100)
    stored.write(tmp_path / "some.zip", traced_with(cut(jax.jit(jnp.sin).trace(A)).with_bytes("f", True)))
    assert not list(tmp_path.iterdir())


def test_equal_programs_have_equal_bytes_whoever_calls(tmp_path):
    def made():
        return cut(jax.jit(lambda a: jnp.sin(a) + 1).trace(A)).with_bytes("f", True).pieces[0].program

    def by_another():
        return made()

    assert made().data == by_another().data and str(tmp_path.parent).encode() not in made().data
    assert b"tests/engine" not in made().data and b"test_stored.py" in made().data


def file_of_weights(file, seed):
    """A small MLP for six features and four classes."""
    rng = np.random.default_rng(seed)
    shapes = {"dense_0.kernel": (6, 5), "dense_0.bias": (5,), "dense_1.kernel": (5, 4), "dense_1.bias": (4,)}
    file.write_bytes(save({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}))
    return {"name": "mlp", "hidden": [5], "weights": str(file)}


def test_a_changed_file_of_weights_is_another_program(folder, tmp_path):
    found = []
    for seed in (0, 1, 0):
        _, parts = assembled_by(model=file_of_weights(tmp_path / "start.safetensors", seed))
        found.append(stored.place_of(parts, Group(np.zeros((1, 2)), {}, {}), parts.federation))
    assert found[0] == found[2] != found[1] and None not in found


@pytest.mark.parametrize("kept", [True, False])
def test_runs_whose_adapters_differ_are_scored_each_with_its_own(folder, tmp_path, monkeypatch, kept):
    """The evaluation is shared by all runs of a model, and the adapters are part of it."""
    monkeypatch.setattr(portable, "wanted", lambda: kept)
    model = file_of_weights(tmp_path / "start.safetensors", 0)

    def adapted(alpha):
        return outputs(model=model, lora={"rank": 1, "alpha": alpha, "where": "all"}, plan={"quick": True})

    first, after_another = adapted(1.0), adapted(50.0)
    compiled.forget()
    for file in folder.glob("*"):
        file.unlink()
    alone = adapted(50.0)
    assert not unlike(after_another, alone) and unlike(first, alone)


TWO = """
import sys
import numpy as np
import cfljax
from cfljax.engine import compiling
if sys.argv[1:]:
    compiling.trace = None
chooses, grids = compiling.chooses, set()
compiling.chooses = lambda parts: grids.add(parts.mesh and parts.mesh.size) or chooses(parts)
for seed in (0, 3):
    run = cfljax.run("ifca", data={"name": "digits", "partition": "rotated", "groups": 2, "clients": 8},
                     model="mclr", rounds=3, clusters=2, seed=seed)
    print(np.asarray(run.models).tobytes().hex()[:200], run.history["loss"].tolist(), grids)
"""


def test_on_several_devices_in_another_process(tmp_path):
    own = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    told = own | {"CFLJAX_CACHE": str(tmp_path), "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"}
    said = []
    for more in ((), ("traces nothing",)):
        done = subprocess.run([sys.executable, "-c", TWO, *more], capture_output=True, text=True, env=told)
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout)
    assert said[0] == said[1] and said[0].count("{2}") == 2 and len(set(said[0].splitlines())) == 2
    assert len(list((tmp_path / "compiled" / files.TRACED).glob("*.zip"))) == 1
