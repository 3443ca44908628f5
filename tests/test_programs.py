"""The limit of programs that a test function may compile."""

import jax
import numpy as np

from tests.programs import Programs, exceeding, lowered, needed_by, read_list, write_list


def test_parameters_count_together_and_methods_of_the_contract_one_by_one():
    programs = {"a.py::f[x]": 3, "a.py::f[y]": 4, "c.py::g[fedavg]": 3, "c.py::g[ifca]": 5}
    needed = needed_by(programs, lambda nodeid: nodeid.startswith("c.py"))
    assert needed == {"a.py::f": 7, "c.py::g": 5}


def test_a_function_may_need_six_programs_or_what_the_list_says_and_half_as_many_again():
    needed = {"f": 12, "g": 13, "h": 30, "i": 31}
    assert exceeding({"h": 20, "i": 20}, needed) == [
        "g: 13 programs, 6 allowed",
        "i: 31 programs, 20 allowed",
    ]


def test_the_list_only_shrinks():
    allowed = {"tests/f": 20, "tests/g": 20, "tests/h": 20, "tests/gone": 20, "docs/other": 20}
    needed = {"tests/f": 12, "tests/g": 6, "tests/h": 44, "tests/new": 30}
    others = {"tests/gone": 20, "docs/other": 20}
    assert lowered(allowed, needed, ["tests"]) == {"tests/f": 15, "tests/h": 20, "docs/other": 20}
    assert lowered(allowed, needed, []) == {"tests/f": 15, "tests/h": 20, **others}
    assert lowered(None, needed, []) == {"tests/f": 15, "tests/h": 45, "tests/new": 30}


def test_the_list_is_read_as_it_was_written(tmp_path):
    assert read_list(tmp_path / "no.txt") == (None, None)
    allowed = {"tests/a.py::f": 15, "tests/b.py::g": 120}
    write_list(allowed, tmp_path / "list.txt")
    assert read_list(tmp_path / "list.txt") == (jax.__version__, allowed)


def test_a_program_counts_once_and_again_after_it_is_forgotten(request):
    counter = Programs(request.config, lambda nodeid: False, lambda nodeid: "")
    double, x = jax.jit(lambda x: 2 * x), np.ones(7)
    double(x), double(x)
    assert counter.count == 1
    double.clear_cache()
    double(x)
    assert counter.count == 2
