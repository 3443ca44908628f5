"""What README and the pages promise is there, and something runs it: commands, flags, exit codes,
options, variables, extras."""

import dataclasses
import re
import tomllib

import pytest

from cfljax.commands.cli import COMMANDS
from cfljax.config.train import Train
from cfljax.data import SOURCES
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS
from drills.__main__ import DRILLS
from tests.docs import promises
from tests.docs.promises import PAGES, ROOT

CI = (ROOT / ".ci" / "run").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BENCHMARKS = [
    path.stem
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "parse_args" in path.read_text()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_flag_of_a_page_exists(page):
    assert promises.wrong(page.name, page.read_text()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_a_command_is_run(name):
    owner = "data" if name == "init" else name  # it has the flags of `data import`
    assert promises.unrun_flags(owner, promises.flags(f"cfljax.{name}"), promises.runs()) == []


def test_every_exit_code_of_the_pages_is_run():
    codes = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "commands.md").read_text(), re.M)
    assert len(codes) == 7
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    compared = r"(code|main\(.*\)|run\(.*\)|load\(.*\)) == \(?%s\b|SIG\w+\"?, %s\)"
    assert [
        code
        for code in codes
        if not any(re.search(compared % (code, code), text) for text in texts)
    ] == []


@pytest.mark.parametrize(
    "registry", [METHODS, PARTITIONS, SOURCES, MODELS], ids=["method", "partition", "data", "model"]
)
def test_every_option_is_run(registry):
    ours = [name for name in registry if registry.origin(name) is None]
    named = {
        name: [field.name for field in dataclasses.fields(registry.entry(name).options)]
        for name in ours
    }
    assert [
        each
        for name, options in named.items()
        for each in promises.unrun(name, options, promises.runs())
    ] == []


def test_every_option_of_training_is_run():
    names = [field.name for field in dataclasses.fields(Train)]
    assert [
        name
        for name in names
        if not any(promises.has(text.replace(".", " "), name) for text in promises.runs())
    ] == []


def test_every_variable_of_the_environment_is_run():
    said = {name for page in PAGES for name in re.findall(r"\bCFLJAX_[A-Z]+\b", page.read_text())}
    assert {"CFLJAX_DATA", "CFLJAX_CACHE", "CFLJAX_DEBUG"} <= said
    assert [
        name
        for name in sorted(said)
        if not any(promises.has(text, name) for text in promises.runs())
    ] == []


def test_every_drill_and_benchmark_is_run():
    assert [
        name
        for name in DRILLS
        if not any("drills" in text and name in text for text in promises.runs())
    ] == []
    tests = tuple(path.read_text() for path in (ROOT / "tests" / "benchmarks").glob("*.py"))
    assert [
        name for name in BENCHMARKS if not any(promises.has(text, name) for text in tests)
    ] == []


def test_every_extra_is_installed_by_what_runs_the_tests():
    installed = set(re.findall(r"[\w-]+", " ".join(re.findall(r'"\.\[([^]]+)\]"', CI))))
    extras = set(PROJECT["optional-dependencies"])
    assert extras - installed <= {"tfds", "tensorflow"}  # what they are for is a download
    assert installed <= extras


def test_what_runs_the_tests_runs_the_long_ones_and_names_the_slowest():
    readme = (ROOT / "README.md").read_text()
    said = re.search(r'pip install -e "(\.\[[^"]+\])" && pytest', readme)
    assert said and f'-e "{said[1]}"' in CI
    assert "-m long" in CI and "--durations=20" in CI


def test_a_promise_that_is_not_kept_is_found():
    block = "```\ncfljax run fedavg --seed two\npython -m drills.kill --kount 3\n```\n"
    page = f"Say `cfljax sweep --fast`, `cfljax swoop`, `… --nowhere` or\n{block}"
    assert promises.wrong("page", page) == [
        "page:3: cfljax.run refuses fedavg --seed two",
        "page:4: drills.kill has no --kount",
        "page:1: cfljax.sweep has no --fast",
        "page:1: there is no command cfljax.swoop",
        "page:1: nothing has --nowhere",
    ]
    right = (
        "`cfljax sweep SPEC.toml --dry-run`, `--set`\n```\npython -m cfljax.run fedavg --seed 2 "
        "\\\n    --quiet\n```\n"
    )
    assert promises.wrong("page", right) == []


def test_what_nothing_runs_is_found():
    import ast

    used = promises.words(
        ast.parse(
            'def test():\n    "--quiet"\n    run(["sweep", "--dry-run"], mu=1, method="fedprox")'
        )
    )
    assert promises.unrun_flags("sweep", frozenset({"--dry-run", "--quiet", "--dry"}), (used,)) == [
        "--dry",
        "--quiet",
    ]
    assert promises.unrun_flags("load", frozenset({"--dry-run"}), (used,)) == ["--dry-run"]
    assert promises.unrun("fedprox", ["mu", "average"], (used,)) == ["fedprox.average"]
    assert promises.unrun("ifca", ["mu"], (used,)) == ["ifca.mu"]
