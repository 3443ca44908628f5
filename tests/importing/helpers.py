"""What tests of the command `import` share."""

import numpy as np
import pytest
from PIL import Image

from cfljax.commands import cli

RNG = np.random.default_rng(0)


def main(words):
    """The exit code of `cfljax data …`, also where argparse refuses the words."""
    try:
        return cli.main(["data", *words])
    except SystemExit as end:
        return end.code


def imported(*flags):
    assert main(["import", *map(str, flags)]) == 0


def refused(capsys, *flags):
    code = main(["import", *map(str, flags)])
    said = capsys.readouterr().err.strip()
    assert code in (2, 4) and len(said.splitlines()) == 1, said
    return said


def pictures(folder, kinds=("cat", "dog"), n=6, size=(5, 4), mode="RGB", prefix=""):
    for kind in kinds:
        (folder / prefix / kind).mkdir(parents=True)
        for i in range(n):
            form = (*size, 3) if mode == "RGB" else size
            Image.fromarray(RNG.integers(256, size=form, dtype=np.uint8)).save(
                folder / prefix / kind / f"{i}.png"
            )


def table(file, n=60, **columns):
    text = {
        "a": RNG.normal(size=n),
        "b": RNG.integers(9, size=n),
        "label": np.array(["no", "yes"])[np.arange(n) % 2],
    } | columns
    lines = [",".join(text), *(",".join(str(v[i]) for v in text.values()) for i in range(n))]
    file.write_text("\n".join(lines))
    return file


def saved(folder, columns, classes=()):
    """A data set as `save_to_disk` of `datasets` writes it. `columns`: name -> list; `classes`: the
    names of the labels."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(columns)
    if classes:
        made = made.cast_column("label", datasets.ClassLabel(names=list(classes)))
    made.save_to_disk(folder)
