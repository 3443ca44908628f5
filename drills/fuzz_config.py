"""A coverage-guided fuzz of the config parser: any file and any flags end in runs or in a SpecError
of one line.

    pip install atheris
    python -m drills.fuzz_config CORPUS -max_total_time=600

Arguments are libFuzzer's: a folder for what it finds worth keeping, and its options. Crashes become
cases of tests/hostile.
"""

import sys
import tempfile
from pathlib import Path

import atheris

from drills import common

with atheris.instrument_imports(include=["cfljax.config", "cfljax.registry.options", "tomllib"]):
    from cfljax.config import grid, values
    from cfljax.errors import SpecError
    from tests.config.small import read
    from tests.config.test_malformed import CASES, FLAGS

for module in (grid, values):
    module.MAX_RUNS = 2000  # a grid of a million runs is allowed and takes its time
PLACE = Path(tempfile.mkdtemp(prefix="cfljax-fuzz-")) / "spec.toml"
HEAD = b'data = "digits"\nmethod = ["ifca", "fedavg"]\n'


def one(data: bytes) -> None:
    """A byte that says what: a whole file, a file whose beginning is good, or flags on a good
    file."""
    kind, body = data[:1], data[1:]
    flags: list[str] = []
    if kind < b"\x50":
        PLACE.write_bytes(body)
    elif kind < b"\xa0":
        PLACE.write_bytes(HEAD + body)
    else:
        PLACE.write_bytes(HEAD)
        flags = body.decode("utf-8", "replace").split("\0")[:4]
    try:
        read(str(PLACE), *flags).runs()
    except SpecError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 1000, repr(message)
        message.encode()


def seeds(folder: Path) -> None:
    """The flags and some tables of the tests of malformed specs, to start from."""
    from cfljax.registry.options import show

    folder.mkdir(parents=True, exist_ok=True)
    texts = [b"\xff" + flag.encode() for flag, *_ in FLAGS]
    for table, *_ in CASES:
        lines = [f"{key} = {show(value)}" for key, value in table.items() if isinstance(key, str)]
        texts.append(b"\0" + "\n".join(lines).encode("utf-8", "replace")[:4000])
    for number, text in enumerate(texts):
        (folder / f"case{number}").write_bytes(text)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        seeds(Path(sys.argv[1]))
    atheris.Setup([*sys.argv, "-max_len=2000", "-timeout=120", common.memory_limit(2000)], one)
    atheris.Fuzz()
