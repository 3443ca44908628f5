"""The benchmark of starts: two versions take turns, and a second start finds the cache of the first."""

from benchmarks import startup


def test_versions_take_turns_and_second_starts_have_the_cache_of_first_ones(tmp_path, monkeypatch):
    asked = []

    def start(package, words, cache):
        asked.append((package, words[0], cache))
        return {"a": (2.0, 3.0), "b": (8.0, 9.0)}[package]

    monkeypatch.setattr(startup, "start", start)
    found = startup.measure({"this": "a", "a7ef2bbd": "b"}, ["run"], 2, tmp_path)
    assert list(map(len, found.values())) == [2] * 8 and [each[0] for each in asked] == [*"abab", *"baba"]
    assert asked[0][2] == asked[2][2] != asked[1][2] and asked[4][2] not in {each[2] for each in asked[:4]}
    assert "| run, second start, processor | 2.00 | 8.00 | 0.25 |" in startup.table(found)
