"""Programs compiled for accelerators that are not there, by the compilers of the extra `aot` (.ci/run installs them): they fit the
chip's memory, and the loop over local steps has neither a loop over clients nor an exchange between devices in it."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GIB = 1 << 30
TARGETS = {
    "h200": ("jax_cuda12_plugin", "gpu", 140 * GIB),
    "v5e": ("libtpu", "tpu", 16 * GIB),
    "v5e:2x2": ("libtpu", "tpu", 16 * GIB),
}
"""Target -> its compiler's package, JAX's name of the platform, bytes of a device."""
SPEC = {
    "data": {"name": "digits", "partition": "rotated", "groups": 4, "clients": 40},
    "model": {"name": "mlp", "hidden": [64]},
    "train": {"rounds": 20, "epochs": 2, "batch": 10, "lr": 0.1, "participation": 0.5, "eval_every": 10},
    "seeds": [0, 1],
}
METHODS = {"fedavg": {}, "ifca": {"clusters": 4}}
STEPS = "local_steps"
"""The named scope of the loop over local steps."""
COLLECTIVES = r" (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast)(-start)?\("
CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)


@pytest.mark.parametrize("target", TARGETS)
def test_programs_compile_for_a_chip_that_is_not_there(target):
    if importlib.util.find_spec(TARGETS[target][0]) is None:
        pytest.skip(f"{TARGETS[target][0]} is not installed")
    more = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    done = subprocess.run([sys.executable, __file__, target], capture_output=True, text=True, env=os.environ | more)
    assert done.returncode == 0, done.stderr[-3000:]


def compiled(target, method):
    """The programs (rounds, evaluation) of a batch of two runs, compiled for the target: the first two that are to be compiled."""
    import jax
    import numpy as np
    from jax.experimental import topologies

    from cfljax.config import read_spec
    from cfljax.devices.machine import describe_machine
    from cfljax.devices.mesh import Shape
    from cfljax.engine import compiling, simulate
    from cfljax.engine.groups import Group, group_width, slice_runs
    from cfljax.experiment import assemble, batching

    _, platform, memory = TARGETS[target]
    if platform == "gpu":
        text = Path(__file__).with_name("h200.txt").read_text()
        devices = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=text).devices[:1]
    else:
        devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[: 4 if ":" in target else 1]
    mesh = Shape(2, 2) if len(devices) > 1 else None
    machine = describe_machine()._replace(
        backend=platform, kind=devices[0].device_kind, devices=len(devices), memory=memory, mesh=mesh, absent=tuple(devices)
    )
    runs = read_spec(SPEC | {"method": {"name": method} | METHODS[method]}).runs()
    (batch,) = batching.batches(runs, len(runs))
    with jax.enable_x64(False), jax.threefry_partitionable(True):
        parts = assemble.assemble(batch.first, batch.width, machine)
        parts = parts._replace(federation=jax.tree.map(np.asarray, parts.federation))
        group = simulate.make_group(parts, batch.seeds, batch.hypers)
        made = []
        compiling.compile_later = lambda f, forms, *_, **__: made.append((f, forms)) or Future()
        group = Group(*slice_runs(tuple(group), 0, group_width(parts, group.keys.shape[0])))
        with contextlib.suppress(InterruptedError):
            compiling.compile_programs(parts, group, parts.federation)
        for f, forms in made[:2]:
            if parts.mesh is None:
                alone = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(devices[:1]), ("alone",)), jax.P())
                forms = jax.tree.map(lambda a, alone=alone: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=alone), forms)
            yield f.lower(*forms).compile()


class Future:
    """A program that is not compiled."""

    def result(self):
        raise InterruptedError


def computations(text):
    """Name of a computation of an optimised module -> its lines."""
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"^(?:ENTRY )?%?([^\s(]+) \(.*\{$", line):
            name = head[1]
            found[name] = []
        elif name is not None:
            found[name].append(line)
    return found


def below(found, name):
    """The lines of a computation and of all that it calls."""
    waiting, seen = [name], {}
    while waiting:
        each = waiting.pop()
        if each in seen or each not in found:
            continue
        seen[each] = found[each]
        for called in CALLED.findall("\n".join(found[each])):
            waiting += re.findall(r"[\w.\-]+", called)
    return [line for lines in seen.values() for line in lines]


def check(target):
    """Compile the programs of each method, and look into them."""
    for method in METHODS:
        rounds, evaluate = compiled(target, method)
        for program in (rounds, evaluate):
            memory = program.memory_analysis()
            assert memory.argument_size_in_bytes + memory.temp_size_in_bytes < TARGETS[target][2] / 10
        found = computations(rounds.as_text())
        loops = [line for lines in found.values() for line in lines if " while(" in line and f"{STEPS}" in line]
        steps = [re.search(r"body=%?([\w.\-]+)", line)[1] for line in loops]
        assert steps, "no loop over local steps"
        for body in steps:
            inside = below(found, body)
            assert not [line for line in inside if re.search(COLLECTIVES, line)]
            nested = [line for line in inside if " while(" in line]
            assert all(STEPS in line for line in nested), nested  # a block of steps inside the loop over blocks
        whole = "\n".join(line for lines in found.values() for line in lines)
        assert bool(re.search(COLLECTIVES, whole)) == (":" in target)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    check(sys.argv[1])
