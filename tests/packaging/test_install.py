"""What is built can be installed and used: types for users, metadata, wheel and sdist on every
Python that is supported."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import cfljax

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXAMPLE = """
import dataclasses

import cfljax
from cfljax.types import Method


@dataclasses.dataclass(frozen=True)
class Config:
    pull: float = cfljax.option(1.0, "how far", low=0, traced=True)


@cfljax.register_method("typed", Config)
def make(config: Config, model: object, solver: object) -> Method:
    raise cfljax.SpecError("not today")


@cfljax.register_metric("half")
def half(seen: object) -> float:
    return 0.5


result: cfljax.Result = cfljax.run("fedavg", data={"name": "digits"}, rounds=2, lr=0.1, seed=0)
best: float = result.summary["accuracy_max"]
results: cfljax.Results = cfljax.sweep("spec.toml", out="results/x", sets=["train.lr=0.1,0.2"])
again = cfljax.load("results/x")
for each in again:
    print(each.method, each.labels, again.to_pandas())
"""


def test_names_of_the_package_exist():
    assert set(cfljax.__all__) <= set(dir(cfljax)) and all(
        getattr(cfljax, name) is not None for name in cfljax.__all__
    )
    assert cfljax.__version__ == PROJECT["version"] and (ROOT / "cfljax" / "py.typed").exists()


@pytest.mark.long
def test_a_users_program_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(EXAMPLE)
    flags = [
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        "--cache-dir",
        os.devnull,
        str(tmp_path / "program.py"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


def test_every_extra_names_what_its_error_message_promises():
    extras = PROJECT["optional-dependencies"]
    said = {word for path in (ROOT / "cfljax").rglob("*.py") for word in _extras(path.read_text())}
    assert {"import", "privacy", "ray", "{sink}"} <= said <= {*extras, "{sink}"}
    assert {"tensorboard", "wandb"} <= set(extras)


def test_groups_are_the_extras_of_their_names():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert set(groups) == {"test", "dev", "docs"} and all(
        PROJECT["optional-dependencies"][name] == groups[name] for name in groups
    )


def test_all_that_is_imported_is_declared():
    where = {"PIL": "pillow", "sklearn": "scikit-learn"}
    declared = {
        name_of(each)
        for each in PROJECT["dependencies"] + sum(PROJECT["optional-dependencies"].values(), [])
    }
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "cfljax").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    packages = (
        {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names) - {"cfljax"}
    )
    packages.remove("typing_extensions")  # for type checkers alone, which bring it
    assert {"jax", "PIL"} <= packages
    assert {
        where.get(package, package.replace("_", "-")) for package in packages
    } - declared == set()


def name_of(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].replace("_", "-")


def _extras(text):
    return re.findall(r'pip install "\.\[([^\]]+)\]"', text)


def python(version):
    found = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
            f"versions/{version}.*/bin/python"
        )
    )
    return str(found[-1]) if found else shutil.which(f"python{version}")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, made in a copy of the sources."""
    place = tmp_path_factory.mktemp("build")
    ignored = shutil.ignore_patterns(
        ".git", ".*_cache", ".hypothesis", "build", "*.egg-info", "__pycache__", "records"
    )
    shutil.copytree(ROOT, place / "src", ignore=ignored)
    environment = place / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    run = [str(environment / "bin" / "python"), "-m"]
    subprocess.run([*run, "pip", "install", "-q", "build"], check=True)
    subprocess.run(
        [*run, "build", "-q", "--outdir", str(place / "dist"), str(place / "src")],
        check=True,
        cwd=place,
    )
    return place / "dist"


@pytest.mark.long
def test_the_wheel_has_what_it_needs_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "cfljax/py.typed",
        "cfljax/config/quickstart.toml",
        "cfljax/report/web/page.html",
        "cfljax/sinks/services.py",
    ):
        assert name in names
    assert {
        str(path.relative_to(ROOT))
        for kind in ("py", "toml")
        for path in (ROOT / "cfljax").rglob(f"*.{kind}")
    } <= set(names)
    assert {n.split("/")[0] for n in names} == {
        "cfljax",
        next(n.split("/")[0] for n in names if ".dist-info/" in n),
    }


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_it_installs_and_runs_in_a_clean_environment(built, version, kind, tmp_path):
    interpreter = python(version)
    if interpreter is None:
        pytest.skip(f"there is no Python {version}")
    if kind == "tar.gz" and version != "3.12":
        pytest.skip("the sdist is tried on one")
    (package,) = built.glob(f"*.{kind}")
    environment = tmp_path / "env"
    subprocess.run([interpreter, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(environment / "bin" / "pip"), "install", "-q", str(package)], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CFLJAX", "XLA"))}
    clean["CFLJAX_CACHE"] = str(tmp_path / "cache")

    def command(*words):
        done = subprocess.run(
            [str(environment / "bin" / words[0]), *words[1:]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=clean,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert command("cfljax", "--version") == f"cfljax {PROJECT['version']}\n"
    assert "ifca" in command("python", "-m", "cfljax.methods") and "_shtab_cfljax()" in command(
        "cfljax", "completion", "bash"
    )
    flags = [
        "--set",
        "method=fedavg",
        "--set",
        "seeds=0:1",
        "--set",
        "train.rounds=1",
        "--set",
        "data.clients=4",
    ]
    assert "1 done" in command("cfljax", "sweep", *flags, "--out", "r")
    assert (tmp_path / "r" / "report" / "index.html").exists()
