"""CONTRIBUTING names files and functions that are there, and a run passes them in the order that it
says."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from docs.tests.promises import ROOT
from tests.blocks import blocks

PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text()
WAYS = ("The way of the learning rate", "The way of one client's sample")
FOLLOW = """
import json, sys, threading
wanted, calls = {tuple(each) for each in json.loads(sys.argv[1])}, []

def note(frame, event, _):
    if event == "call":
        code = frame.f_code
        name = code.co_filename.rpartition("/cfljax/")[2], code.co_qualname
        if name in wanted and (not calls or calls[-1] != name):
            calls.append(name)

threading.setprofile(note), sys.setprofile(note)
from cfljax.commands import cli
code = cli.main(sys.argv[2:])
sys.setprofile(None)
print(json.dumps(calls), file=sys.stderr)
sys.exit(code)
"""


def rows(title):
    """(file, function) of each row of a section's table."""
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", section, re.M)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The functions of both tables in the order in which the command of the page calls them."""
    command = next(block.text for block in blocks(PAGE) if block.text.startswith("cfljax run"))
    wanted = json.dumps([row for title in WAYS for row in rows(title)])
    folder = tmp_path_factory.mktemp("way")
    words = [sys.executable, "-c", FOLLOW, wanted, *shlex.split(command)[1:], "--quiet"]
    # A program that is taken from a cache is traced all the same, but machines that have measured
    # their speed choose by it how to train
    kept = os.environ | {"CFLJAX_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=kept, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stderr.splitlines()[-1])]


@pytest.mark.parametrize("title", WAYS)
def test_a_run_passes_the_functions_of_the_table_in_their_order(title, calls):
    assert len(rows(title)) > 20
    left = iter(calls)
    missed = next((row for row in rows(title) if row not in left), None)
    assert missed is None, f"{missed}: not called after the function above it"


def test_each_file_that_the_page_names_is_there():
    for name in re.findall(r"`((?:\w+/)+\w+\.\w+)`", TEXT):
        assert "NAME" in name or any((at / name).exists() for at in (ROOT, ROOT / "cfljax")), name


def bound_in(body):
    """The names that statements define."""
    for node in body:
        targets = getattr(node, "targets", [getattr(node, "target", node)])
        yield from (getattr(each, "name", getattr(each, "id", "")) for each in targets)


def test_each_class_and_constant_that_the_page_names_is_there():
    known = set()
    for path in (ROOT / "cfljax").rglob("*.py"):
        body = ast.parse(path.read_text()).body
        known |= set(bound_in(body))
        for node in body:
            if isinstance(node, ast.ClassDef):
                known |= {f"{node.name}.{name}" for name in bound_in(node.body)}
    named = re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", TEXT)
    assert len(named) > 20
    assert [each for each in named if not each.endswith(".md") and each not in known] == []
