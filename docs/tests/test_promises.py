"""What README and the pages promise is there: commands, flags, extras."""

import re
import tomllib

import pytest

from docs.tests import promises
from docs.tests.promises import PAGES, ROOT

CI = (ROOT / ".ci" / "run").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_flag_of_a_page_exists(page):
    assert promises.wrong(page.name, page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_are_read_without_scrolling(page):
    fenced = re.findall(r"^```(?:bash)?\n(.*?)^```$", page.read_text(), re.M | re.S)
    lines = [line for block in fenced for line in block.splitlines()]
    commands = [line for line in lines if promises.COMMAND.match(line.strip())]
    assert [line for line in commands if len(line) > 80] == []


def test_every_extra_is_installed_by_what_runs_the_tests():
    installed = set(re.findall(r"[\w-]+", " ".join(re.findall(r'"\.\[([^]]+)\]"', CI))))
    extras = set(PROJECT["optional-dependencies"])
    assert extras - installed <= {"tfds", "tensorflow"}  # what they are for is a download
    assert installed <= extras


def test_what_runs_the_tests_runs_readmes_command_and_all_marks():
    readme = (ROOT / "README.md").read_text()
    said = re.search(r'pip install -e "(\.\[[^"]+\])" && pytest', readme)
    assert said and f'-e "{said[1]}"' in CI
    # Between them the parts play every test: what has no mark, what is long, and what is rare
    assert '-m "long and not rare"' in CI and "-m rare" in CI


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
