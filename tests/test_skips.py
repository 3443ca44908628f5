"""A test that is skipped without being on the list fails the session."""

import pytest

pytest_plugins = ["pytester"]
LIST = """# why: no compiler here
test_one.py::test_gpu*: needs a GPU
test_whole.py: needs torch
"""


@pytest.mark.parametrize(
    ("reason", "code"), [("needs a GPU of 80 GB", 0), ("broken, see later", 1)]
)
def test_skips_are_held_to_the_list(pytester, reason, code):
    pytester.makeconftest(
        """
        from tests.skips import Skips

        def pytest_configure(config):
            config.pluginmanager.register(Skips(["skips.txt"]), "skips")
        """
    )
    pytester.path.joinpath("skips.txt").write_text(LIST)
    pytester.makepyfile(
        test_one=f"""
        import pytest

        def test_passes(): pass

        @pytest.mark.parametrize("size", [1, 2])
        def test_gpu(size): pytest.skip({reason!r})

        @pytest.mark.xfail
        def test_known(): assert False
        """,
        test_whole='import pytest\npytest.skip("needs torch 3", allow_module_level=True)',
    )
    ran = pytester.runpytest("-p", "no:cacheprovider")
    assert ran.ret == code
    told = [line for line in ran.outlines if reason in line]
    assert len(told) == (0 if code == 0 else 2), ran.outlines
