"""WAV files in folders by word: numbers of all widths, channels, lengths, users, and features."""

import wave

import numpy as np
import pytest

from cfljax import data
from cfljax.data.importing_sounds import read_wave
from cfljax.extend import log_mel
from tests.importing.helpers import imported, refused

RNG = np.random.default_rng(3)
RATE = 1000


def written(file, values, width=2, channels=1, rate=RATE):
    """A WAV file of numbers from −1 to 1, f[samples] or f[samples, channels], and what they are
    after rounding."""
    whole = np.rint(np.asarray(values, float).reshape(-1) * 2 ** (8 * width - 1)).astype(np.int64)
    whole = np.clip(whole, -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1)
    content = b"".join(
        int(v + (128 if width == 1 else 0)).to_bytes(width, "little", signed=width > 1)
        for v in whole
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(content)
    return (whole / 2 ** (8 * width - 1)).reshape(-1, channels).mean(1)


def words(folder, speakers=("ann", "bob"), each=4, length=100, form="{word}/{speaker}_{n}.wav"):
    """Two words by each speaker; the sound of each file by its name."""
    made = {}
    for word in ("no", "yes"):
        for speaker in speakers:
            for n in range(each):
                place = form.format(word=word, speaker=speaker, n=n)
                made[place] = written(folder / place, RNG.uniform(-1, 1, length))
    return made


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_numbers_of_all_widths_and_channels_are_read(width, channels, tmp_path):
    values = np.concatenate(
        [[[-1.0] * channels, [0.999999] * channels], RNG.uniform(-1, 1, (20, channels))]
    )
    meant = written(tmp_path / "x.wav", values, width, channels)
    found = read_wave(tmp_path / "x.wav")
    assert found.dtype == np.float32 and found[0] == -1
    np.testing.assert_allclose(found, meant, atol=1e-7)
    np.testing.assert_allclose(found, values.mean(1), atol=1.01 / 2 ** (8 * width - 1))


def test_short_sounds_are_filled_up_with_silence_and_long_ones_cut(home):
    long, short = (
        written(home / "s" / "a" / "1.wav", RNG.uniform(-1, 1, 90)),
        written(home / "s" / "a" / "2.wav", [0.5] * 30),
    )
    written(home / "s" / "b" / "1.wav", [-0.5] * 50)
    written(home / "s" / "b" / "2.wav", [-0.5] * 50)
    imported(home / "s", "--test-fraction", "0.1", "--name", "longest")
    x = data.load("longest").x_train
    assert x.shape == (4, 90) and x.dtype == np.float32
    np.testing.assert_allclose(x[0], long, atol=1e-7)
    np.testing.assert_allclose(x[1], [*short, *[0] * 60], atol=1e-7)
    imported(home / "s", "--seconds", "0.04", "--name", "cut", "--test-fraction", "0.1")
    x = data.load("cut").x_train
    assert x.shape == (4, 40)
    np.testing.assert_allclose(x[:2], [long[:40], [*short, *[0] * 10]], atol=1e-7)


def test_names_of_files_say_who_speaks(home, capsys):
    made = words(home / "speech", speakers=("ann_b", "c"), form="{word}/{speaker}_nohash_{n}.wav")
    imported(home / "speech", "--user-in-name", "{user}_nohash_*", "--test-fraction", "0.25")
    assert "2 users" in (said := capsys.readouterr().out) and 'partition = "user"' in said
    source = data.load("speech")
    assert (
        source.x_train.shape == (12, 100)
        and source.x_test.shape == (4, 100)
        and source.classes == 2
    )
    for side in ("train", "test"):
        x, y, user = (getattr(source, f"{what}_{side}") for what in ("x", "y", "user"))
        for sound, word, speaker in zip(x, y, user, strict=True):
            begin = f"{['no', 'yes'][word]}/{['ann_b', 'c'][speaker]}_"
            assert any(
                np.allclose(sound, meant, atol=1e-7)
                for name, meant in made.items()
                if name.startswith(begin)
            )


def test_folders_by_speaker_and_features(home):
    made = words(home / "s", form="{speaker}/{word}/{n}.WAV")
    imported(home / "s", "--by-user", "--log-mel", "5", "--test-fraction", "0.25")
    source = data.load("s")
    meant = log_mel(np.stack(list(made.values())), RATE, 5)
    both = np.concatenate([source.x_train, source.x_test])
    assert source.x_train.shape == (12, *meant.shape[1:]) and set(source.user_train.tolist()) == {
        0,
        1,
    }
    order = np.lexsort(both.reshape(16, -1).T), np.lexsort(meant.reshape(16, -1).T)
    np.testing.assert_allclose(both[order[0]], meant[order[1]], rtol=1e-5, atol=1e-5)


def test_a_test_folder_and_words_that_are_dropped(home):
    words(home / "s" / "train")
    words(home / "s" / "test", each=1)
    written(home / "s" / "train" / "_noise_" / "long.wav", np.zeros(70 * RATE))
    imported(home / "s", "--drop", "_noise_")
    source = data.load("s")
    assert (
        source.x_train.shape == (16, 100)
        and source.x_test.shape == (4, 100)
        and source.classes == 2
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--user-in-name", "speaker_*"], "must have {user} once"),
        (
            ["--user-in-name", "{user}-*"],
            'ann_0.wav: its name does not have the form of --user-in-name "{user}-*"',
        ),
        (["--user-in-name", "{user}_*", "--by-user"], "leave one of the two out"),
        (["--by-user"], "has no WAV files in folders by class (USER/WORD/x.wav)"),
        (["--seconds", "0"], "--seconds 0: must be a number of seconds above 0"),
        (["--seconds", "nan"], "--seconds nan: must be a number of seconds above 0"),
        (["--log-mel", "-3"], "--log-mel -3: must be a number of bands"),
        (["--log-mel", "40"], "give fewer bands"),
        (["--seconds", "0.01", "--log-mel", "5"], "at least 25 samples"),
        (["--shape", "3x3"], "--shape: has no effect on an import of sounds"),
        (["--kind", "images", "--log-mel", "3"], "--log-mel: has no effect on an import of images"),
    ],
)
def test_mistakes_are_said_in_a_line(flags, said, home, capsys):
    words(home / "s", each=1)
    kind = [] if "--kind" in flags else ["--kind", "sounds"]
    assert said in refused(capsys, home / "s", *kind, *flags)


def test_files_that_do_not_fit_are_named(home, capsys):
    written(home / "s" / "a" / "1.wav", [0.1] * 40)
    other = home / "s" / "a" / "2.wav"
    written(other, [0.1] * 40, rate=500)
    assert f"{other}: has 500 samples a second" in refused(capsys, home / "s")
    other.write_bytes(b"RIFF but no more")
    assert f"{other}: cannot be read as WAV" in refused(capsys, home / "s")
    whole = bytearray((home / "s" / "a" / "1.wav").read_bytes())
    whole[20] = 3  # floats
    other.write_bytes(whole)
    assert "save it as plain PCM" in refused(capsys, home / "s")
    written(other, np.zeros(61 * RATE))
    assert f"{other}: lasts 61 s" in refused(capsys, home / "s")
    other.unlink()
    (home / "s" / "a" / "1.wav").rename(home / "s" / "a" / "1.flac")
    assert "1.flac is none: convert such files first" in refused(
        capsys, home / "s", "--kind", "sounds"
    )


def test_a_header_that_claims_too_much_takes_no_memory(home):
    meant = written(home / "s" / "a" / "1.wav", [0.25] * 40)
    for name in ("a/1.wav", "a/2.wav", "b/1.wav", "b/2.wav"):
        whole = bytearray((home / "s" / "a" / "1.wav").read_bytes())
        whole[40:44] = (1 << 31).to_bytes(4, "little")  # the size of its samples
        (home / "s" / name).parent.mkdir(exist_ok=True)
        (home / "s" / name).write_bytes(whole)
    imported(home / "s", "--test-fraction", "0.1", "--seconds", "0.04")
    np.testing.assert_allclose(data.load("s").x_train[0], meant)
