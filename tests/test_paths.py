"""The cache folder, and files that are whole or not there."""

from pathlib import Path

import pytest

from cfljax.data.files import folders, prepared_folders
from cfljax.devices.machine import speed_file
from cfljax.files import cache_folder, written_whole

PLACES = [("~/mine", "home/mine"), ("/somewhere", "/somewhere"), ("", "xdg/cfljax"), (None, "xdg/cfljax")]


@pytest.mark.parametrize("named, place", PLACES)
def test_the_cache_is_one_folder_for_everything(named, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.delenv("CFLJAX_CACHE") if named is None else monkeypatch.setenv("CFLJAX_CACHE", named)
    wanted = tmp_path / place
    assert cache_folder() == wanted and speed_file().parent == wanted
    assert folders(None) == [wanted / "data"] and prepared_folders(None)[0] == wanted / "tfds"


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "kept"
    with written_whole(file) as part:
        part.write_text("first")
        assert part.parent == tmp_path and not file.exists()
    with pytest.raises(RuntimeError), written_whole(file) as part:
        part.write_text("second, and")
        raise RuntimeError
    assert file.read_text() == "first" and list(Path(tmp_path).iterdir()) == [file]
