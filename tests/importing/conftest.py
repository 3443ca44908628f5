"""A place of their own for the data of each test."""

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "home"))
    return tmp_path
