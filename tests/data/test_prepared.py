"""Sets prepared by tensorflow-datasets: written and read here, with no network and without
TensorFlow."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cfljax import data
from cfljax.data import bounded, prepare, prepared
from cfljax.data.cifar import COARSE_LABELS
from cfljax.errors import DataError, SpecError

PREPARE = """
import sys

class WithoutTensorFlow:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *more):
        return None if name.partition(".")[0] == "tensorflow" else self.finder.find_spec(name, *more)

sys.meta_path[:] = [WithoutTensorFlow(finder) for finder in sys.meta_path]
import numpy as np, PIL.Image
import tensorflow_datasets as tfds

class Toy:
    VERSION = tfds.core.Version("1.2.0")
    classes, raw = 3, False
    def _info(self):
        image, label = tfds.features.Image(shape=(4, 6, 1)), tfds.features.ClassLabel(num_classes=self.classes)
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"image": image, "label": label}))
    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(10), "test": self._generate_examples(5)}
    def _generate_examples(self, n):
        for i in range(n):
            image = np.full((4, 6), i + 1, np.uint8)
            image[0, 1] = 100
            label = i % 3 + self.classes // 27
            yield i, {"image": image[..., None] if self.raw else PIL.Image.fromarray(image), "label": label}

class ToyShapes(Toy, tfds.core.GeneratorBasedBuilder):
    pass

class ToyArrays(Toy, tfds.core.GeneratorBasedBuilder):
    raw = True

class ToyDeep(Toy, tfds.core.GeneratorBasedBuilder):
    def _info(self):
        image, label = tfds.features.Image(shape=(4, 6, 1), dtype=np.uint16), tfds.features.ClassLabel(num_classes=3)
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"image": image, "label": label}))
    def _generate_examples(self, n):
        for i in range(n):
            yield i, {"image": PIL.Image.fromarray(np.full((4, 6), 300, np.uint16)), "label": i % 3}

class HundredToy(Toy, tfds.core.GeneratorBasedBuilder):
    classes = 100
    def _generate_examples(self, n):
        for i in range(n):
            yield i, {"image": PIL.Image.fromarray(np.full((4, 6), i, np.uint8)), "label": i}

class EmnistToy(Toy, tfds.core.GeneratorBasedBuilder):
    classes = 27
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=c, version="1.2.0") for c in ("letters", "digits")]

from cfljax.commands.cli import main
names = ("toy_shapes", "emnist_toy/letters", "toy_shapes", "toy_arrays", "toy_deep", "hundred_toy")
codes = [main(["data", "prepare", name, "--dir", sys.argv[1]]) for name in names]
from cfljax import data
assert data.load("toy_shapes", path=sys.argv[1]).classes == 3
print(codes)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, str(folder)], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    return folder, done


def test_prepare_and_load_work_without_tensorflow(made):
    folder, done = made
    assert done.stdout.strip().endswith("[0, 0, 0, 4, 0, 0]")
    s = data.load("toy_shapes", path=str(folder))
    assert (
        s.x_train.shape == (10, 4, 6, 1)
        and s.x_train.dtype == np.uint8
        and s.classes == 3
        and len(s.y_test) == 5
    )
    number = s.x_train[:, 1, 1, 0].astype(int) - 1
    np.testing.assert_array_equal(np.sort(number), np.arange(10))
    np.testing.assert_array_equal(s.y_train, number % 3)
    assert (s.x_train[:, 0, 1] == 100).all()


def test_decoded_images_are_kept_until_the_files_change(made, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "MIN_CACHED_SAMPLES", 1)
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "cache"))
    shutil.copytree(made[0] / "toy_shapes", tmp_path / "toy_shapes")
    first = data.load("toy_shapes", path=str(tmp_path))
    (kept,) = (tmp_path / "cache" / "decoded").iterdir()
    with monkeypatch.context() as m:
        m.setattr(prepared, "_read_split", None)  # a second decoding would fail
        second = data.load("toy_shapes", path=str(tmp_path))
    np.testing.assert_array_equal(first.x_train, second.x_train)
    np.testing.assert_array_equal(first.y_test, second.y_test)
    kept.write_bytes(kept.read_bytes()[:500])
    np.testing.assert_array_equal(
        data.load("toy_shapes", path=str(tmp_path)).x_train, first.x_train
    )
    shard = next((tmp_path / "toy_shapes" / "1.2.0").glob("*train*"))
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(DataError, match="train: cannot be read.*prepare it again"):
        data.load("toy_shapes", path=str(tmp_path))


def test_a_builder_that_needs_tensorflow_says_so_in_one_line(made):
    lines = [line for line in made[1].stderr.splitlines() if line.startswith("cfljax")]
    assert lines == [
        "cfljax: toy_arrays: preparing it needs TensorFlow (reading it does not): pip "
        'install ".[tensorflow]" in the checkout'
    ]


def test_emnist_is_turned_upright_and_its_letters_begin_at_zero(made, tmp_path):
    shutil.copytree(made[0] / "emnist_toy", tmp_path / "emnist")
    s = data.load("emnist/letters:1.2.0", path=str(tmp_path))
    assert s.x_train.shape == (10, 6, 4, 1) and (s.x_train[:, 1, 0] == 100).all()
    assert s.classes == 26


def test_cifar100_has_its_coarse_labels(made, tmp_path):
    shutil.copytree(made[0] / "hundred_toy", tmp_path / "cifar100")
    assert data.load("cifar100", path=str(tmp_path)).coarse.tolist() == COARSE_LABELS.tolist()
    assert data.load("hundred_toy", path=str(made[0])).coarse is None


def test_a_set_with_parts_wants_one_named(made):
    with pytest.raises(DataError, match="has parts; name one: emnist_toy/letters"):
        data.load("emnist_toy", path=str(made[0]))


def change(source, target, file, edit):
    shutil.copytree(source, target / "toy_shapes")
    path = target / "toy_shapes" / "1.2.0" / file
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_images_of_16_bits_are_refused_and_not_cut_to_8(made):
    with pytest.raises(DataError, match="toy_deep.*images are uint16; only images of 8 bits"):
        data.load("toy_deep", path=str(made[0]))


def test_a_tfrecord_folder_says_what_to_do(made, tmp_path):
    change(
        made[0] / "toy_shapes",
        tmp_path,
        "dataset_info.json",
        lambda c: c.update(fileFormat="tfrecord"),
    )
    with pytest.raises(DataError, match="is prepared as tfrecord.*prepare toy_shapes --dir"):
        data.load("toy_shapes", path=str(tmp_path))


def test_a_class_of_somebody_else_is_not_imported(made, tmp_path):
    def edit(content):
        content["featuresDict"]["features"]["image"]["pythonClassName"] = "antigravity.Image"

    change(made[0] / "toy_shapes", tmp_path, "features.json", edit)
    with pytest.raises(DataError, match="names the class antigravity.Image"):
        data.load("toy_shapes", path=str(tmp_path))
    assert "antigravity" not in sys.modules


def test_damaged_prepared_files_are_one_line(made, tmp_path):
    shutil.copytree(made[0] / "toy_shapes", tmp_path / "toy_shapes")
    folder = tmp_path / "toy_shapes" / "1.2.0"
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as JSON"):
        data.load("toy_shapes", path=str(tmp_path))


def test_more_samples_than_the_files_can_hold_are_refused(made, tmp_path):
    def edit(content):
        content["splits"][0]["shardLengths"] = ["1000000000000"]

    change(made[0] / "toy_shapes", tmp_path, "dataset_info.json", edit)
    with pytest.raises(
        DataError, match="train: does not fit into memory|has .* of 1000000000000 examples"
    ):
        data.load("toy_shapes", path=str(tmp_path))


@pytest.fixture
def originals(tmp_path, monkeypatch):
    """A 'home page' on this disk."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.gz").write_bytes(b"content")
    monkeypatch.setitem(prepare.ORIGINAL_URLS, "mnist", home.as_uri() + "/")
    monkeypatch.setitem(
        bounded.PUBLISHED_MD5, "mnist", {"a.gz": "9a0364b9e99bb480dd25e1f0284c8555"}
    )
    return home


def test_original_files_are_downloaded_whole_and_kept(originals, tmp_path):
    place = prepare.prepare("mnist", str(tmp_path / "data"))
    assert (place / "a.gz").read_bytes() == b"content" and place == tmp_path / "data" / "mnist"
    (originals / "a.gz").unlink()
    prepare.prepare("mnist", str(tmp_path / "data"))


def test_a_wrong_or_missing_download_leaves_nothing(originals, tmp_path):
    (originals / "a.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match="is not the published mnist file"):
        prepare.prepare("mnist", str(tmp_path / "data"))
    (originals / "a.gz").unlink()
    with pytest.raises(DataError, match="mnist: cannot be downloaded.*copy mnist.npz"):
        prepare.prepare("mnist", str(tmp_path / "data"))
    assert not [f for f in (tmp_path / "data").rglob("*") if f.is_file()]


def test_without_a_network_prepare_says_so_at_once(tmp_path, monkeypatch):
    def offline(*_):
        raise OSError("no such host")

    monkeypatch.setattr("socket.getaddrinfo", offline)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(DataError, match="svhn_cropped: there is no network.*cannot be resolved"):
        prepare.prepare("svhn_cropped", str(tmp_path))


def test_an_unknown_name_is_bad_input(tmp_path):
    with pytest.raises(
        SpecError,
        match='"cifar11": tensorflow-datasets has no such data set; did you mean "cifar100?"',
    ):
        prepare.prepare("cifar11", str(tmp_path))
