"""From the name of a data set to its files on this machine: downloads, Hugging Face's hub, or
tensorflow-datasets."""

from __future__ import annotations

import contextlib
import functools
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfljax.data import mapped, prepared
from cfljax.data.bounded import ORIGINAL_URLS, PUBLISHED_MD5, check_md5, one_line_reason
from cfljax.data.files import check_free, folders
from cfljax.data.importing import import_data
from cfljax.data.parts import Wanted
from cfljax.errors import DataError, SpecError, suggest
from cfljax.files import cache_folder, write_whole

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_EMNIST_SETS = ("emnist/balanced", "emnist/byclass", "emnist/letters")
COMMON_SETS = (
    "mnist",
    "fashion_mnist",
    "kmnist",
    *_EMNIST_SETS,
    "cifar10",
    "cifar100",
    "svhn_cropped",
)
"""The data sets that `list` offers; any other image classification set of tensorflow-datasets can
be prepared by its name."""
HUB_SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny_imagenet": ("hf:zh-plus/tiny-imagenet", {}),
    "cinic10": ("hf:flwrlabs/cinic10", {}),
    "office_home": ("hf:flwrlabs/office-home", {"user": "domain", "shape": (64, 64)}),
}
"""Name -> the data set of Hugging Face's hub that is imported under it, and how."""
# Seconds to wait for the server
_PATIENCE = 30.0


def prepare(name: str, folder: str | None = None) -> Path:
    """Download the data set and return the folder in which `load` finds it. Well-known sets need no
    TensorFlow."""
    places = [Path(folder).expanduser()] if folder else folders(None)
    check_free(name, places[:1] if name in ORIGINAL_URLS else places, "what is prepared")
    if name in HUB_SETS:
        source, how = HUB_SETS[name]
        ready = mapped.detect(name, places[0] / name)
        return (
            places[0] / name
            if ready
            else import_data(
                source, name, None, Wanted(label="label", **how), folder, replace=False
            )
        )
    if name in ORIGINAL_URLS:
        return download(name, places[0])
    return prepare_by_tfds(name, places[0] if folder else cache_folder() / "tfds")


def download(name: str, folder: Path) -> Path:
    """Download the original files of a well-known set, each compared with its published checksum.
    Files that exist are kept."""
    place = folder / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file_name in PUBLISHED_MD5[name]:
            if not (place / file_name).exists():
                # The part is checked before it gets the name of the file
                check_part = functools.partial(check_md5, name, file_name=file_name)
                fetch(ORIGINAL_URLS[name] + file_name, place / file_name, check_part)
            check_md5(name, place / file_name)
    except (OSError, urllib.error.URLError) as e:
        with contextlib.suppress(OSError):
            # If nothing was downloaded
            place.rmdir()
        why = one_line_reason(
            getattr(e, "reason", e) if isinstance(getattr(e, "reason", None), Exception) else e
        )
        raise DataError(
            f"{name}: cannot be downloaded into {place} ({why}); without a network, copy "
            f"{name}.npz into "
            f"{place.parent}, or the original files ({', '.join(PUBLISHED_MD5[name])}) into {place}"
        ) from e
    return place


def prepare_by_tfds(name: str, folder: Path) -> Path:
    """Prepare a data set as ArrayRecord files by `download_and_prepare` of tensorflow-datasets;
    return its folder."""
    import tensorflow_datasets as tfds

    ready = prepared.version_folder(folder / name.partition(":")[0], name.partition(":")[2])
    if ready:
        prepared.check_format(name, ready)
        return ready
    try:
        builder = tfds.builder(name, data_dir=str(folder))
        _check_reachable(name, builder, folder)
        builder.download_and_prepare(file_format="array_record")
    except tfds.core.DatasetNotFoundError as e:
        known = list(dict.fromkeys([*ORIGINAL_URLS, *COMMON_SETS, *HUB_SETS]))
        raise SpecError(
            f'"{name}": tensorflow-datasets has no such data set{suggest(name, known)}'
        ) from e
    except ModuleNotFoundError as e:
        package = _find_missing(e)
        if package == "tensorflow":
            how = 'pip install ".[tensorflow]" in the checkout'
            raise DataError(
                f"{name}: preparing it needs TensorFlow (reading it does not): {how}"
            ) from e
        raise DataError(
            f"{name}: preparing it needs a package that is not installed "
            f"({package or one_line_reason(e)})"
        ) from e
    except DataError:
        raise
    except Exception as e:
        # Whatever a builder's own code, the network or the disk raise
        raise DataError(
            f"{name}: cannot be prepared in {folder} ({type(e).__name__}: {one_line_reason(e)})"
        ) from e
    return Path(str(builder.data_path))


def _find_missing(error: BaseException | None) -> str:
    """Return the package that could not be imported, from the first error of the chain that names
    it; else ""."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__
    return ""


def _check_reachable(name: str, builder: tfds.core.DatasetBuilder, folder: Path) -> None:
    """Raise a DataError if no host of the downloads can be resolved; tensorflow-datasets would try
    for minutes."""
    downloads = folder / "downloads"
    if urllib.request.getproxies() or (
        downloads.is_dir() and any(f.is_file() for f in downloads.iterdir())
    ):
        return
    hosts = sorted(
        {
            h
            for url in getattr(builder, "url_infos", None) or ()
            if (h := urllib.parse.urlparse(str(url)).hostname)
        }
    )
    for host in hosts:
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, 443)
            return
    if hosts:
        raise DataError(
            f"{name}: there is no network ({hosts[0]} cannot be resolved); run this on a "
            "machine with one and copy the folder, "
            f"or copy a file {name}.npz into {folders(None)[0]}"
        )


def fetch(url: str, file: Path, check: Callable[[Path], None]) -> None:
    """Download the file, which gets its name once `check` has found nothing wrong with it."""
    from tqdm import tqdm

    with write_whole(file) as part:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer, part.open("wb") as f:
            left = int(answer.headers.get("Content-Length") or 0)
            with tqdm(
                total=left or None, unit="B", unit_scale=True, desc=file.name, disable=None
            ) as bar:
                while piece := answer.read(1 << 20):
                    f.write(piece)
                    bar.update(len(piece))
                    left -= len(piece)
        if left > 0:
            raise urllib.error.URLError(f"the connection ended {left} bytes early; start again")
        check(part)
