"""The site is built without a warning, has all pages, and its search finds them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import blocks

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_site_has_every_page_and_its_search_finds_what_is_on_them(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    expected = {
        "spec.html": "straggler_work", "commands.html": "--retry-failed", "methods.html": "scaffold", "names.html": "dirichlet",
        "metrics.html": "accuracy_worst10", "experiments.html": "Sent140", "speed.html": "FedJAX",
        "faq.html": "participant", "changes.html": "FedNova", "reference.html": "least_loss",
    }  # fmt: skip
    for page, word in expected.items():
        assert (tmp_path / page).exists()
        assert any(entry["location"].startswith(page) and word in entry["title"] + entry["text"] for entry in found), page
    cells = {page.name: set(re.findall(r"<t[dh] ([^>]*)>", page.read_text())) for page in tmp_path.rglob("*.html")}
    assert {name: found for name, found in cells.items() if not all(each.startswith(("style=", "class=")) for each in found)} == {}
    for word in blocks.SEARCHED:
        assert any(word in (entry["title"] + entry["text"]).lower() for entry in found), word
    assert (tmp_path / "speed.png").exists() and (tmp_path / "gallery" / "picture.png").exists()
