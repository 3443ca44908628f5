"""What XLA makes of a round on a chip that need not be there: memory, kernels that a local step
starts, bytes that they write, and read and write.

    # W1, W2, W3 and Q; 1, 64 and 256 runs; for an H200 and a TPU v5e
    python -m benchmarks.compiled --json benchmarks/results/compiled.json
    python -m benchmarks.compiled --workloads QI --targets h200 --runs 2,8

It needs the compilers of the chips: `pip install -e ".[aot]"` for TPUs; for GPUs the packages that
`.ci/run` installs, without what they depend on. Each program is compiled in a process of its own,
which computes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.markdown import markdown
from benchmarks.measure import write_rows

GIB = 1 << 30
TARGETS = {
    "h200": ("jax_cuda12_plugin", "gpu", 140 * GIB),
    "v5e": ("libtpu", "tpu", 16 * GIB),
    "v5e:2x2": ("libtpu", "tpu", 16 * GIB),
}
"""Target -> its compiler's package, JAX's name of the platform, bytes of a device."""
STEPS = "local_steps"
"""The named scope of the loop over local steps."""
CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
NO_KERNEL = {
    "parameter",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "constant",
    "after-all",
    "iota",
    "partition-id",
}
PARTS = ("gather", "dynamic-slice", "slice")
"""Operations that read a part of their first operand."""
INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)")
BITS = {"pred": 8, "bf16": 16, "f16": 16} | {
    f"{kind}{bits}": bits for kind in "suf" for bits in (8, 16, 32, 64)
}
Row = dict[str, Any]


def compile_programs(target: str, spec: Row) -> Iterator[Any]:
    """Yield the programs of a batch of all runs of a spec, compiled for the target: rounds, then
    evaluation."""
    import jax
    import numpy as np
    from jax.experimental import topologies

    from cfljax.config import read_spec
    from cfljax.devices.machine import describe_machine
    from cfljax.devices.mesh import Shape
    from cfljax.engine import groups, program
    from cfljax.engine.groups import Group, group_width, slice_runs
    from cfljax.experiment import assemble, batching

    _, platform, memory = TARGETS[target]
    if platform == "gpu":
        text = Path(__file__).with_name("h200.txt").read_text()
        devices = topologies.get_topology_desc(
            platform="cuda", topology="1x1x1", target_config=text
        ).devices[:1]
    else:
        devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[
            : 4 if ":" in target else 1
        ]
    mesh = Shape(2, 2) if len(devices) > 1 else None
    machine = describe_machine()._replace(
        backend=platform,
        kind=devices[0].device_kind,
        devices=len(devices),
        memory=memory,
        mesh=mesh,
        absent=tuple(devices),
    )
    runs = read_spec(spec).runs()
    (batch,) = batching.make_batches(runs, len(runs))
    with jax.enable_x64(False), jax.threefry_partitionable(True):
        parts = assemble.assemble(batch.first, batch.width, machine)
        parts = parts._replace(federation=jax.tree.map(np.asarray, parts.federation))
        group = groups.make_group(parts, batch.seeds, batch.hypers)
        made: list[tuple[Any, Any]] = []
        program.compile_later = lambda f, forms, *_, **__: made.append((f, forms)) or Later()  # type: ignore[func-returns-value]
        group = Group(*slice_runs(tuple(group), 0, group_width(parts, group.keys.shape[0])))
        with contextlib.suppress(InterruptedError):
            program.compile_programs(parts, group, parts.federation)
        for f, forms in made[:2]:
            if parts.mesh is None:
                alone = jax.sharding.NamedSharding(
                    jax.sharding.Mesh(np.array(devices[:1]), ("alone",)), jax.P()
                )
                forms = jax.tree.map(
                    lambda a, alone=alone: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=alone),
                    forms,
                )
            yield f.lower(*forms).compile()


class Later:
    """A program that is not compiled."""

    def result(self) -> None:
        raise InterruptedError


def computations(text: str) -> dict[str, list[str]]:
    """Return name of a computation of an optimised module -> its lines."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if head := re.match(r"^(?:ENTRY )?%?([^\s(]+) \(.*\{$", line):
            name = head[1]
            found[name] = []
        elif name is not None:
            found[name].append(line)
    return found


def below(found: dict[str, list[str]], name: str) -> list[str]:
    """Return the lines of a computation and of all that it calls."""
    waiting, seen = [name], {}
    while waiting:
        each = waiting.pop()
        if each in seen or each not in found:
            continue
        seen[each] = found[each]
        for called in CALLED.findall("\n".join(found[each])):
            waiting += re.findall(r"[\w.\-]+", called)
    return [line for lines in seen.values() for line in lines]


def step_bodies(found: dict[str, list[str]]) -> list[str]:
    """Return the names of the bodies of loops over local steps."""
    loops = [
        line for lines in found.values() for line in lines if " while(" in line and STEPS in line
    ]
    return [match[1] for line in loops if (match := re.search(r"body=%?([\w.\-]+)", line))]


def innermost(found: dict[str, list[str]], bodies: list[str]) -> set[str]:
    """Return the bodies of those loops in these bodies, or these bodies, that have no loop in
    them."""
    last = set()
    for name in bodies:
        loops = [line for line in below(found, name) if " while(" in line]
        inside = [match[1] for line in loops if (match := re.search(r"body=%?([\w.\-]+)", line))]
        last |= innermost(found, inside) if inside else {name}
    return last


class Instruction(NamedTuple):
    """A line of a computation."""

    name: str
    shape: str
    operation: str
    operands: list[str]
    calls: str | None  # The computation of a fusion


def parse(lines: list[str]) -> list[Instruction]:
    """Return the instructions of a computation."""
    found = []
    for line in lines:
        if match := INSTRUCTION.match(line):
            name, shape, operation, rest = match.groups()
            inside = rest[: rest.find(")")]
            # Constants and parameters have a value in place of operands
            operands = [
                word.split()[-1].removeprefix("%")
                for word in re.sub(r"/\*.*?\*/|\{[^}]*\}", "", inside).split(",")
                if word.strip() and operation not in ("constant", "parameter")
            ]
            if operation == "parameter":
                operands = [inside]
            calls = re.search(r"calls=%?([\w.\-]+)", line)
            found.append(Instruction(name, shape, operation, operands, calls and calls[1]))
    return found


def size_of(shape: str) -> int:
    """Return the bytes of a shape or a tuple of shapes."""
    shapes = re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(BITS.get(kind, 0) * _product(sizes) for kind, sizes in shapes) // 8


def kernels(lines: list[str]) -> list[tuple[str, int]]:
    """Return (operation, bytes of its result) of the instructions of a computation that a device is
    asked to start."""
    return [(each.operation, size_of(each.shape)) for each in parse(lines) if _starts(each)]


def _starts(each: Instruction) -> bool:
    return each.operation not in NO_KERNEL and not each.operation.endswith("-done")


def bytes_accessed(found: dict[str, list[str]], name: str) -> int:
    """Return the bytes that the kernels of a computation read and write. Of an array of which a
    kernel gathers or slices a part, the part is read; what it reads twice counts once."""
    body = parse(found[name])
    sizes = {each.name: size_of(each.shape) for each in body}
    total = 0
    for each in filter(_starts, body):
        read: Counter[str] = Counter()
        for at, operand in enumerate(each.operands):
            if each.calls is not None:
                read[operand] += bytes_read(found, each.calls, at)
            else:
                part = each.operation in PARTS and at == 0
                read[operand] += size_of(each.shape) if part else sizes.get(operand, 0)
        total += size_of(each.shape)
        total += sum(min(size, sizes.get(operand, 0)) for operand, size in read.items())
    return total


def bytes_read(found: dict[str, list[str]], name: str, number: int) -> int:
    """Return the bytes that a fusion reads of its parameter: all of it, unless it takes parts
    only."""
    body = parse(found.get(name, []))
    own = next(
        (e for e in body if e.operation == "parameter" and e.operands == [str(number)]), None
    )
    if own is None:
        return 1 << 62
    same, total = {own.name}, 0
    for each in body:
        for at, operand in enumerate(each.operands):
            if operand not in same or each.operation == "parameter":
                continue
            if each.operation in ("bitcast", "reshape"):
                same.add(each.name)
            elif each.operation in PARTS and at == 0:
                total += size_of(each.shape)
            elif each.calls is not None:
                total += bytes_read(found, each.calls, at)
            else:
                return size_of(own.shape)
    return min(total, size_of(own.shape))


def _product(sizes: str) -> int:
    total = 1
    for size in filter(None, sizes.split(",")):
        total *= int(size)
    return total


def look(target: str, workload: str, runs: int) -> Row:
    """Compile the rounds of a workload and count what its innermost loop over steps does."""
    from benchmarks.accelerator_pieces import ALL
    from benchmarks.shared import data_folder

    with tempfile.TemporaryDirectory() as folder:
        data, _ = data_folder(ALL[workload], Path(folder))
        spec = ALL[workload].spec(20, data) | {"seeds": list(range(runs))}
        about = {"target": target, "workload": workload, "runs": runs}
        try:
            program = next(compile_programs(target, spec))
        except Exception as error:  # of XLA's own kind
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return about | {"reason": "does not fit"}
    memory, found = program.memory_analysis(), computations(program.as_text())
    steps = [
        (bytes_accessed(found, name), kernels(found[name]))
        for name in innermost(found, step_bodies(found))
    ]
    accessed, started = max(steps, key=lambda step: step[0])
    used = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return about | {
        "kernels_per_step": len(started),
        "bytes_per_step": sum(size for _, size in started),
        "accessed_per_step": accessed,
        "memory": used,
    }


def show(rows: list[Row]) -> str:
    """Return the rows as a table."""
    head = (
        "chip",
        "workload",
        "runs",
        "kernels a step",
        "MB written a step",
        "MB accessed a step",
        "memory, MB",
    )
    cells = []
    for r in rows:
        figures = ["–"] * 4
        if "reason" not in r:
            megabytes = (
                r[name] / 1e6 for name in ("bytes_per_step", "accessed_per_step", "memory")
            )
            figures = [str(r["kernels_per_step"]), *(f"{each:.3g}" for each in megabytes)]
        else:
            figures[-1] = r["reason"]
        cells.append((r["target"], r["workload"], r["runs"], *figures))
    return markdown(head, cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="W1,W2,W3,Q")
    parser.add_argument("--targets", default="h200,v5e", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--runs", default="1,64,256", help="runs side by side")
    parser.add_argument("--json", type=Path, help="add the rows to this file")
    given = parser.parse_args()
    if "," not in given.workloads + given.targets + given.runs and os.environ.get(
        "CFLJAX_COMPILED_ALONE"
    ):
        print(json.dumps(look(given.targets, given.workloads, int(given.runs))))
        return 0
    rows = json.loads(given.json.read_text()) if given.json and given.json.is_file() else []
    for target in given.targets.split(","):
        for workload in given.workloads.split(","):
            for runs in given.runs.split(","):
                new = in_a_process(target, workload, runs)
                key = [new[name] for name in ("target", "workload", "runs")]
                rows = [row for row in rows if [row["target"], row["workload"], row["runs"]] != key]
                rows.append(new)
                write_rows(rows, given.json)
    print(show(rows))
    return 0


def in_a_process(target: str, workload: str, runs: str) -> Row:
    """Return what `look` says, from a process whose own device is the CPU."""
    words = ["--targets", target, "--workloads", workload, "--runs", runs]
    more = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "CFLJAX_COMPILED_ALONE": "1",
    }
    command = [sys.executable, "-m", "benchmarks.compiled", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | more)
    if done.returncode:
        raise SystemExit(f"{target}, {workload}, {runs} runs: {done.stderr.strip()[-2000:]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    sys.exit(main())
