"""What commands import, and when."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import lazy
from cfljax.devices.machine import TYPICAL, speed_file
from cfljax.federation.pack import count_bytes
from cfljax.types import Devices, Federation, Pool, Split

PACKAGE = Path(lazy.__file__).parent
SPLIT = "Split(np.arange(4), np.zeros(1), np.full(1, 4), 4)"


def python(code, *flags, env=None):
    found = subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_modules_of_the_package_import_jax_from_one_place():
    """Outside of functions: one may import what JAX itself imports only when asked."""
    for path in set(PACKAGE.rglob("*.py")) - {PACKAGE / "lazy.py"}:
        for node in done_at_import(ast.parse(path.read_text())):
            names = (
                [each.name for each in node.names]
                if isinstance(node, ast.Import)
                else [getattr(node, "module", "")]
            )
            wrong = [
                name
                for name in names
                if str(name).partition(".")[0] in ("jax", "flax", "optax", "chex")
            ]
            assert not wrong, (
                f"{path.relative_to(PACKAGE)} imports {wrong}: take it from cfljax.lazy"
            )


def done_at_import(node):
    """The statements that are executed when a module is imported."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test):
            continue
        yield each
        yield from done_at_import(each)


def test_a_command_waits_with_jax_and_tells_it_then_of_the_packages_classes():
    code = f"""
import sys
import numpy as np
from cfljax import lazy
lazy.wait()
from cfljax import keys, types
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Federation, Split
split, before = {SPLIT}, "jax" in sys.modules or isinstance(np.ones(2), Array)
print(before, len(jax.tree.leaves(split)), "jax" in sys.modules, isinstance(jnp.ones(2), Array), isinstance(np.ones(2), Array))
print(isinstance(jnp.ones(2), jax.Array), int(keys.bits(keys.root(0), 1)[0]), "tree" in dir(jax))
"""
    assert python(code) == [
        "False",
        "3",
        "True",
        "True",
        "False",
        "True",
        str(int(jax.random.bits(jax.random.key(0)))),
        "True",
    ]


def test_any_other_program_finds_the_packages_classes_known_to_jax():
    code = "import numpy as np\nfrom cfljax.types import Array, Split\nimport jax\n"
    assert python(code + f"print(len(jax.tree.leaves({SPLIT})), Array is jax.Array)") == [
        "3",
        "True",
    ]


def test_any_other_program_may_begin_with_any_module(tmp_path):
    assert python("from cfljax import keys; print(keys.root(0).shape)") == ["()"]
    code = (
        "from cfljax.files import use_compilation_cache as use; use(); import jax; "
        "print(jax.config.jax_compilation_cache_dir)"
    )
    own = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    assert python(code, env=own | {"CFLJAX_CACHE": str(tmp_path)}) == [str(tmp_path / "compiled")]


def test_a_commands_plugin_finds_jax_and_the_packages_classes_known_to_it(tmp_path):
    plugin = f"""
import numpy as np
import jax
from cfljax.types import Array, Split
assert len(jax.tree.leaves({SPLIT})) == 3 and isinstance(jax.numpy.ones(2), Array)
assert issubclass(type(jax.numpy.ones(2)), Array) and not issubclass(int, Array)
def f(x: Array | None = None) -> Array: ...
"""
    (tmp_path / "mine.py").write_text(plugin)
    words = [
        "-m",
        "cfljax.sweep",
        "--plugin",
        str(tmp_path / "mine.py"),
        "--set",
        "method=fedavg",
        "--dry-run",
    ]
    found = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "fedavg" in found.stdout, found.stderr


@pytest.mark.parametrize(
    "words",
    [["cfljax.sweep", "--dry-run"], ["cfljax.methods", "ifca"], ["cfljax.commands.cli", "methods"]],
)
def test_what_trains_nothing_imports_neither_jax_nor_what_comes_with_it(words, tmp_path):
    """The second of two starts: the first dry run counts the model's parameters."""
    heavy = (
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "chex",
        "sklearn",
        "scipy",
        "pandas",
        "matplotlib",
        "tensorflow_datasets",
        "pyarrow",
    )
    env = os.environ | {"CFLJAX_CACHE": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-X", "importtime", "-m", *words],
            capture_output=True,
            text=True,
            env=env,
            check=True,
        )
        for _ in "12"
    ]
    imported = {line.rpartition("|")[2].strip() for line in found[1].stderr.splitlines()}
    assert "cfljax.lazy" in imported and not imported & set(heavy)
    assert found[0].stdout == found[1].stdout != ""


def test_who_only_watches_the_workers_of_a_sweep_does_without_jax(tmp_path, monkeypatch):
    """Where the machine's speed and the model's size are known. The workers import it."""
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path))
    speed_file("cpu").write_text(json.dumps(TYPICAL._asdict()))
    words = [
        "-X",
        "importtime",
        "-m",
        "cfljax.sweep",
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "2",
    ]
    for each in ("method=fedavg", "data=blobs", "model=mclr", "seeds=0,1", "train.rounds=1"):
        words += ["--set", each]
    for last in ("--dry-run", "--quiet"):
        found = subprocess.run(
            [sys.executable, *words, last], capture_output=True, text=True, check=False
        )
    imported = {line.rpartition("|")[2].strip() for line in found.stderr.splitlines()}
    assert found.returncode == 0 and "2 runs computed" in found.stdout, found.stderr
    assert "cfljax.launch.sweep" in imported and "jax" not in imported


def test_what_is_a_tree_for_jax_keeps_its_static_fields():
    leaves, form = jax.tree.flatten(Split(np.arange(4), np.zeros(1), np.full(1, 4), 4, shared=True))
    again = jax.tree.unflatten(form, leaves)
    assert len(leaves) == 3 and again.longest == 4 and again.shared
    assert len({jax.tree.structure(Split(*leaves, each)) for each in (4, 5)}) == 2
    pool = Pool(np.zeros((4, 2)), np.zeros(4), np.zeros(()), np.ones(()))
    whole = Federation(
        pool,
        again,
        again,
        *(np.zeros(1) for _ in range(3)),
        devices=Devices(np.zeros(1)),
        classes=2,
    )
    assert len(jax.tree.leaves(whole)) == 4 + 2 * 3 + 3 + 1 and count_bytes(whole) == sum(
        leaf.nbytes for leaf in jax.tree.leaves(whole)
    )


def test_a_form_is_given_once_at_the_first_call():
    calls = []

    @lazy.jit(static_argnums=1)
    def power(x, n):
        """x to the n."""
        calls.append(n)
        return x**n

    assert (power.__name__, power.__doc__, calls) == ("power", "x to the n.", [])
    assert [float(power(2.0, n)) for n in (3, 3, 2)] == [8, 8, 4] and calls == [3, 2]
    power.forget()
    assert float(power(2.0, 3)) == 8 and calls == [3, 2, 3]


def test_a_form_of_a_form_is_both():
    @lazy.custom_jvp()
    def double(x):
        return 2 * x

    double.defjvp(lambda primals, tangents: (double(primals[0]), 7 * tangents[0]))
    both = lazy.jit()(double)
    assert (
        float(both(1.0)) == 2
        and float(jax.grad(both)(1.0)) == 7
        and "stablehlo" in both.made.lower(1.0).as_text()
    )


def test_rules_are_those_that_were_given():
    @lazy.custom_vjp(nondiff_argnums=(1,))
    def twice(x, factor):
        return 2 * x * factor

    twice.defvjp(
        lambda x, factor: (twice(x, factor), x), lambda factor, x, change: (100 * factor * change,)
    )

    @lazy.custom_jvp()
    def thrice(x):
        return 3 * x

    @thrice.defjvp
    def _(primals, tangents):
        return thrice(primals[0]), 7 * tangents[0]

    @lazy.custom_vmap()
    def most(x):
        return x

    @most.def_vmap
    def _(size, mapped, x):
        return jnp.full(size, jnp.max(x)), mapped[0]

    assert float(twice(1.0, 5)) == 10 and float(jax.grad(twice)(1.0, 5)) == 500
    assert float(thrice(1.0)) == 3 and float(jax.grad(thrice)(1.0)) == 7
    assert jax.vmap(most)(jnp.arange(3.0)).tolist() == [2, 2, 2] and float(most(1.0)) == 1
