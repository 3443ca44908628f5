"""Play specs with whichever cfljax is first on the path, by its public interface alone: a job per line of standard input.

A job is a spec with `file`, the npz file for its arrays; each is answered by a line.
`python worker.py FOLDER`: the folder that the package must be in.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import cfljax
from cfljax.config import plugins
from cfljax.federation import PARTITIONS

PATIENCE = 600
"""Seconds that a sweep may take until it has written a checkpoint."""


@cfljax.register_data("coarse")
def coarse(_, rng):
    """Blobs of twelve classes with three coarse labels, of six users."""
    of = np.arange(12) // 4
    centres = rng.standard_normal((3, 8))[of] + 0.5 * rng.standard_normal((12, 8))
    y, user = np.arange(960) % 12, np.arange(960) // 12 % 6
    x = (centres[y] + 0.5 * rng.standard_normal((960, 8)) + 0.2 * user[:, None]).astype(np.float32)
    return _in_parts({"x": x, "y": y, "y_coarse": of[y], "user": user})


@cfljax.register_data("sentences")
def sentences(_, rng):
    """Sentences of six tokens and the next one, of six users with two grammars."""
    user = np.arange(360) % 6
    follow = np.stack([rng.permutation(7), rng.permutation(7)])
    x = [rng.integers(7, size=360)]
    for _ in range(6):
        x.append(np.where(rng.random(360) < 0.9, follow[user % 2, x[-1]], rng.integers(7, size=360)))
    return _in_parts({"x": np.stack(x[:6], axis=1).astype(np.float32), "y": x[6], "user": user})


@cfljax.register_data("embedded")
def embedded(_, rng):
    """The same sentences, a unit vector for each token."""
    arrays = {name: array.astype(np.int32) for name, array in sentences(_, rng).items()}
    return arrays | {"table": np.eye(7, dtype=np.float32)}


if "overlap" not in PARTITIONS:  # a plug-in since, with `imbalance`
    plugins.load([str(Path(__file__).parents[2] / "experiments" / "recipes.py")])


def _in_parts(arrays):
    """Make a fifth of the samples the test set."""
    test = np.arange(len(arrays["y"])) // 12 % 5 == 0
    return {f"{name}_{part}": a[rows] for name, a in arrays.items() for part, rows in (("train", ~test), ("test", test))}


def play(job):
    """Return the arrays of a spec by name, or {"refused": …} where it is no valid one, {"failed": …} where it ends otherwise."""
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            return play_run(job["run"], Path(folder)) if "run" in job else play_sweep(job, Path(folder))
    except cfljax.CfljaxError as error:
        return {"refused": np.asarray(" ".join(str(error).split()))}
    except ImportError:  # of a package that is not installed: no answer, so that nothing is recorded
        raise
    except Exception as error:
        traceback.print_exc()
        return {"failed": np.asarray(" ".join(f"{type(error).__name__}: {error}".split())[:500])}


def play_run(run, folder):
    """Return the arrays of a run. The model that it starts from, if it is to be one that was begun, is what FedAvg makes of it."""
    model = {name: value for name, value in run["model"].items() if name in ("name", "hidden")}
    if "weights" in run["model"]:
        begun = folder / "begun.safetensors"
        cfljax.run("fedavg", run["data"], model, train={"rounds": 2, "lr": 0.1, "plan": run["train"]["plan"]}).export(begun)
        run = run | {"model": run["model"] | {"weights": str(begun)}}
    return arrays_of(cfljax.run(**run))


def play_sweep(job, folder):
    """Return the arrays of all runs of a sweep, which is stopped some times where the job says so."""
    spec, out = folder / "spec.toml", folder / "out"
    spec.write_text(job["sweep"])
    for finished in range(job.get("stops", 0)):
        stop(spec, out, finished)
    results = cfljax.sweep(spec, out, quiet=True, keep="models")
    table = results.to_pandas()
    arrays = {"runs": np.asarray(len(table))}
    for row in table.to_dict("records"):
        varied = "-".join(f"{row[name]}" for name in ("method", "seed", *results.varying()) if name in row)
        arrays |= {f"{varied}/{name}": array for name, array in arrays_of(results[row["run"]]).items()}
    return arrays


def stop(spec, out, finished):
    """Start a sweep and terminate it when so many runs are finished and it has written a checkpoint of the next one."""
    command = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        spec,
        "--out",
        out,
        "--keep",
        "models",
        "--quiet",
        "--no-report",
        "--workers",
        "1",
    ]
    begin = time.time()
    process = subprocess.Popen(command, env=os.environ | {"CFLJAX_CHECKPOINT": "0"}, stdout=sys.stderr)
    while process.poll() is None and time.time() < begin + PATIENCE:
        kept = [file for file in out.glob("checkpoints/*") if file.stat().st_mtime > begin]
        if kept and len(cfljax.load(out)) >= finished:
            process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.02)
    if process.wait(60) != 143:
        raise RuntimeError(f"the sweep was to be terminated, and ended with {process.returncode}")


def arrays_of(result):
    """Return all that a result says, as arrays: history, labels, accuracies, models, diagnostics, summary and status."""
    arrays = {**result.arrays, "status": result.status}
    arrays |= {f"summary/{name}": "None" if value is None else value for name, value in result.summary.items()}
    return {name: np.asarray(value) for name, value in arrays.items()}


def write(file, arrays):
    """Write an npz file completely or not at all."""
    part = Path(f"{file}.part")
    with part.open("wb") as opened:
        np.savez(opened, **arrays)
    part.replace(file)


def main():
    """Answer jobs until there are no more."""
    if Path(cfljax.__file__).parents[1] != Path(sys.argv[1]).resolve():
        sys.exit(f"played would be {cfljax.__file__}, and not the package in {sys.argv[1]}")
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing that is printed is an answer
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        write(job["file"], play(job))
        print("played", file=answers, flush=True)


if __name__ == "__main__":
    main()
