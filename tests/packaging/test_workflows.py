"""What runs where the project is public: the workflows name what is there, and run on the versions
that are promised."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OTHERS = [
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
]


def read(path):
    return pytest.importorskip("yaml").safe_load(path.read_text())


@pytest.mark.parametrize("path", [*WORKFLOWS, *OTHERS], ids=lambda path: path.name)
def test_every_file_is_yaml(path):
    assert read(path)


def test_no_workflow_needs_a_secret_and_none_may_write_more_than_it_must():
    assert len(WORKFLOWS) == 3
    for path in WORKFLOWS:
        assert "secrets." not in path.read_text() and read(path)["permissions"] == {
            "contents": "read"
        }
        for job in read(path)["jobs"].values():
            assert "timeout-minutes" in job or job.get("continue-on-error")


def test_the_tests_run_on_every_python_that_is_promised():
    promised = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"][
        "matrix"
    ]
    assert matrix["python"] == promised and all(each["tried"] for each in matrix["include"])


def test_extras_and_files_of_the_workflows_exist():
    for path in (*WORKFLOWS, ROOT / ".devcontainer" / "devcontainer.json"):
        text = path.read_text()
        for extras in re.findall(r"\.\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
        for name in re.findall(r"\b(?:tests|docs)/[\w/.]+\.(?:py|md)\b|\.ci/run", text):
            assert (ROOT / name).exists(), name
    json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())


def test_a_release_finds_its_version_in_every_file():
    """Until the changes are complete they stand under "Unreleased"; the workflow of a tag wants
    their version."""
    version = PROJECT["version"]
    for name, *lines in (
        ("pyproject.toml", f'version = "{version}"'),
        ("CITATION.cff", f"version: {version}"),
        ("CHANGELOG.md", f"## {version}", "## Unreleased"),
    ):
        assert set(lines) & set((ROOT / name).read_text().splitlines())
