"""Which committed records a mended fault concerns, by the commits that computed them."""

import subprocess

import pytest

from cfljax.store.errata import read_errata
from experiments import errata


@pytest.fixture(scope="module")
def history():
    try:
        errata.has_mend("HEAD", "HEAD")
    except (LookupError, OSError):
        pytest.skip("this is no git repository")
    shallow = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(shallow, capture_output=True, text=True, check=True).stdout.strip() == "true":
        pytest.skip("the repository has no earlier commits")


@pytest.mark.usefixtures("history")
def test_each_mend_is_a_commit_of_this_repository():
    assert [each.id for each in read_errata() if not errata.has_mend("HEAD", each.mended)] == []


@pytest.mark.usefixtures("history")
def test_a_record_is_concerned_until_its_commit_has_the_mend():
    fesem = next(each for each in read_errata() if each.id == "fesem-centre")
    record = {"config": {"method": {"name": "fesem"}}, "versions": {"cfljax": "0.1.0"}}
    assert errata.concerns(fesem, record | {"git": None})
    assert errata.concerns(fesem, record | {"git": {"commit": f"{fesem.mended}~1"}})
    assert not errata.concerns(fesem, record | {"git": {"commit": fesem.mended}})


@pytest.mark.usefixtures("history")
def test_records_of_sent140_are_older_than_the_mend_of_its_words():
    concerned = {"fedgroup_table3_sent140", "fedgroup_table3_sent140_fesem"}
    found = errata.find_errata()
    assert concerned <= set(found)
    assert "fedgroup_table3_femnist_mlp_fesem" not in found
