"""The tests that guard promises (`tests/promises.md`) are there, and every run of the tests carries
them out."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "tests" / "promises.md").read_text()
BETWEEN = r"\n(?:[@ )\]].*\n)*"
"""The other decorators of a function, over any number of lines."""


def faults(page, root):
    """(test, what is wrong with it) of the tests that this page names."""
    found, texts = [], {}
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", page):
        if file not in texts:
            texts[file] = (root / file).read_text() if (root / file).exists() else ""
        if not re.search(rf"^def {name}\(", texts[file], re.M):
            found.append((f"{file}::{name}", "is not there"))
        elif re.search(
            rf"^(@pytest\.mark\.long{BETWEEN}def {name}\(|pytestmark = .*mark\.long)",
            texts[file],
            re.M,
        ):
            found.append((f"{file}::{name}", "is a long one"))
    return found


def test_each_promise_has_a_test_that_every_run_carries_out():
    rows = re.findall(r"^\| [^|]+ \| `\S+\.py::\w+` \|$", PAGE, re.M)
    assert len(rows) > 100 and faults(PAGE, ROOT) == []


def test_a_guard_that_is_gone_or_long_is_found(tmp_path):
    (tmp_path / "tests").mkdir()
    other = '@pytest.mark.parametrize(\n    "x",\n    [1],\n)\n'
    text = f"@pytest.mark.long\n{other}def test_b(x): ...\n\n\n{other}def test_c(x): ...\n"
    (tmp_path / "tests" / "test_a.py").write_text(text)
    (tmp_path / "tests" / "test_d.py").write_text(
        "pytestmark = pytest.mark.long\n\n\ndef test_e(): ...\n"
    )
    told = {
        "test_a.py::test_b": "is a long one",
        "test_d.py::test_e": "is a long one",
        "test_f.py::test_g": "is not there",
    }
    page = " ".join(f"`tests/{each}`" for each in ("test_a.py::test_c", *told))
    assert faults(page, tmp_path) == [(f"tests/{test}", what) for test, what in told.items()]
