"""The cache folder, and files that are whole or not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cfljax.data.files import folders, prepared_folders
from cfljax.devices.machine import speed_file
from cfljax.files import cache_folder, drop_oldest, lock_in_cache, write_whole
from tests.patience import PATIENCE

PLACES = [
    ("~/mine", "home/mine"),
    ("/somewhere", "/somewhere"),
    ("", "xdg/cfljax"),
    (None, "xdg/cfljax"),
]


@pytest.mark.parametrize("named, place", PLACES)
def test_the_cache_is_one_folder_for_everything(named, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.delenv("CFLJAX_CACHE") if named is None else monkeypatch.setenv(
        "CFLJAX_CACHE", named
    )
    wanted = tmp_path / place
    assert cache_folder() == wanted and speed_file("cpu").parent == wanted
    assert folders(None) == [wanted / "data"] and prepared_folders(None)[0] == wanted / "tfds"


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "kept"
    with write_whole(file) as part:
        part.write_text("first")
        assert part.parent == tmp_path and not file.exists()
    with pytest.raises(RuntimeError), write_whole(file) as part:
        part.write_text("second, and")
        raise RuntimeError
    assert file.read_text() == "first" and list(Path(tmp_path).iterdir()) == [file]


def test_the_programs_that_were_not_used_for_longest_go_first(tmp_path):
    for age, name in enumerate(("new-cache", "used-cache", "old-cache", "oldest-cache", "locks")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    os.utime(tmp_path / "oldest-cache", (2000, 0))  # it was read
    drop_oldest(tmp_path, 400)
    assert len(list(tmp_path.iterdir())) == 5
    drop_oldest(tmp_path, 350)
    assert {file.name for file in tmp_path.iterdir()} == {
        "new-cache",
        "used-cache",
        "oldest-cache",
        "locks",
    }
    drop_oldest(tmp_path, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["locks"]


A_RUN = (
    "import cfljax; cfljax.run(data={'name': 'blobs', 'samples': 40, 'clients': 2}, "
    "model='mclr', rounds=1)"
)


def with_cache(folder):
    """The environment of a process whose cache folder is this one, with its programs."""
    own = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return own | {"CFLJAX_CACHE": str(folder)}


def test_a_run_from_python_keeps_its_programs(tmp_path):
    subprocess.run([sys.executable, "-c", A_RUN], env=with_cache(tmp_path), check=True)
    assert list((tmp_path / "compiled").glob("*-cache"))


A_COMMAND = """
import argparse, os, sys
import jax, numpy
from cfljax.commands import process
from cfljax.files import programs_folder, use_compilation_cache

def damaged(x):
    return x + x

def sound(x):
    return 2 * x

def whole():
    return sorted(file.name for file in programs_folder().glob("*-cache") if file.stat().st_size > 20)

def run(flags):
    use_compilation_cache()
    jax.jit(damaged)(numpy.ones(3)), jax.jit(sound)(numpy.ones(3))
    before, files = whole(), list(programs_folder().glob("jit_damaged-*"))
    for file in files:
        os.truncate(file, 20)
    jax.clear_caches()
    jax.jit(damaged)(numpy.ones(3))
    print(len(files), whole() == before)
    return 0

sys.exit(process.main(run, argparse.ArgumentParser()))
"""


def test_a_command_says_that_a_program_is_damaged_and_writes_it_anew(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", A_COMMAND],
        capture_output=True,
        text=True,
        env=with_cache(tmp_path),
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and done.stdout == "1 True\n", done.stderr
    assert done.stderr.count("cannot be read or written") == 1 == len(done.stderr.splitlines())


def test_who_keeps_no_programs_finds_no_files_of_them(tmp_path):
    subprocess.run(
        [sys.executable, "-c", A_RUN],
        cwd=tmp_path,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": ""},
        check=True,
    )
    assert not list(tmp_path.iterdir())


def test_a_disk_on_which_nothing_can_be_locked_keeps_programs_all_the_same(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(file, how):
        raise OSError("Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr("cfljax.files.programs_folder", lambda: tmp_path)
    with lock_in_cache("abcdef"):
        assert (tmp_path / "locks" / "ab").exists()
