"""The container does what README's first two commands do, as another user than root, with no more
than the package needs."""

import re
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def test_it_installs_and_starts_as_the_readme_says():
    install, start = re.search(
        r"## Start.*?```\n(.*?)\n(.*?)\n```", (ROOT / "README.md").read_text(), re.S
    ).groups()
    did = {word: rest for word, rest in LINES if word in ("RUN", "CMD", "USER", "FROM")}
    assert did["RUN"].replace("--no-cache-dir ", "") == install
    assert did["CMD"] == str(shlex.split(start)).replace("'", '"')
    assert did["USER"] not in ("root", "0")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r"3\.\d+", did["FROM"])[0]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_its_context_has_what_the_build_reads():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    passed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert passed == {"cfljax", "pyproject.toml", project["readme"], *project["license-files"]}
