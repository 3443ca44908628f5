"""The list of faults that tests must notice, and how it is drawn and found again."""

import ast
import json

import pytest

from drills import mutants

LISTED = json.loads(mutants.LIST.read_text())
CODE = """
class Sum:
    def of(self, a: int | None, b):
        if a is not None and not b:
            raise ValueError(f"{a + 1} is wrong")
        return jnp.where(a < b, jnp.maximum(a, 2), -b.sum(axis=1, keepdims=True))
"""


def changed(text):
    return {
        (place.function, place.operator, ast.unparse(place.node), ast.unparse(place.after))
        for place in mutants.places(ast.parse(text))
    }


def test_what_can_be_changed_in_a_function():
    whole = "jnp.where(a < b, jnp.maximum(a, 2), -b.sum(axis=1, keepdims=True))"
    assert changed(CODE) == {
        ("Sum.of", *each)
        for each in [
            ("and/or", "a is not None and (not b)", "a is not None or not b"),
            ("compare", "a is not None", "a is None"),
            ("not", "not b", "b"),
            (
                "swap",
                whole,
                "jnp.where(a < b, -b.sum(axis=1, keepdims=True), jnp.maximum(a, 2))",
            ),
            ("compare", "a < b", "a <= b"),
            ("twin", "jnp.maximum(a, 2)", "jnp.minimum(a, 2)"),
            ("constant", "2", "3"),
            ("sign", "-b.sum(axis=1, keepdims=True)", "b.sum(axis=1, keepdims=True)"),
            ("keyword", "b.sum(axis=1, keepdims=True)", "b.sum(axis=1)"),
            ("keyword", "b.sum(axis=1, keepdims=True)", "b.sum(keepdims=True)"),
        ]
    }


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(CODE)
    return tmp_path / "a.py"


def test_a_fault_is_found_in_another_layout_and_its_neighbours_stay(package):
    fault = next(each for each in mutants.candidates(package) if each["before"] == "a < b")
    assert mutants.mutated(fault) == CODE.replace("a < b", "(a <= b)")
    package.write_text("# é\n\n" + CODE.replace("a < b", "(\n            a  <  b)"))
    assert "(a <= b))" in mutants.mutated(fault)
    package.write_text(CODE.replace("a < b", "a < c"))
    with pytest.raises(LookupError, match=r"Sum.of has no `a < b` any more"):
        mutants.mutated(fault)


def test_the_list_is_long_and_mostly_of_what_defaults_do_not_reach():
    assert len(LISTED) >= 100
    assert sum(not each["default"] for each in LISTED) >= len(LISTED) / 2
    equivalent = [each["equivalent"] for each in LISTED if "equivalent" in each]
    assert len(equivalent) <= 5 and all(len(why) > 20 for why in equivalent)


def test_the_faults_of_the_list_are_still_there():
    """Code moves on; once too many are gone, others are to be drawn."""
    gone = []
    for fault in LISTED:
        try:
            compile(mutants.mutated(fault), fault["file"], "exec")
        except LookupError:
            gone.append(fault["function"])
    assert len(gone) <= len(LISTED) / 10, gone


def test_the_nearest_tests_come_first():
    fault = {"file": "cfljax/store/summary.py", "function": "summarise"}
    assert mutants.nearest(fault)[0] == "tests/store/test_summary.py"
