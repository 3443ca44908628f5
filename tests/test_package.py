"""The package as a whole: what imports what, what is imported when, and what must never be in
it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from cfljax.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cfljax"
ORDER = [
    "errors",
    "software",
    "quantity",
    "lazy",
    "types",
    "files",
    "keys",
    "registry",
    "data",
    "federation",
    "models",
    "kernels",
    "devices",
]
ORDER += [
    "local",
    "round",
    "methods",
    "engine",
    "config",
    "experiment",
    "store",
    "results",
    "launch",
    "contract",
    "report",
]
ORDER += ["sinks", "extend", "api", "commands", "script"]
ORDER += ["sweep", "tune", "run", "check", "load", "init"]
"""From the bottom of the house to its top: a module imports from its own package and from those
above it in this list."""


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def part(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rank(name):
    return ORDER.index(name)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "cfljax":
            yield from (f"cfljax.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_imports_go_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imported(path)
        if name.startswith("cfljax.") and name != "cfljax.__version__"
        if rank(name.split(".")[1]) > rank(part(path))
    ]
    assert wrong == []


def test_the_guide_lists_the_packages_in_this_order():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page.partition("\n| package |")[2], re.M)
    listed = [name for row in rows for name in re.findall(r"\w+", row)]
    assert listed == ORDER[: ORDER.index("commands") - 1] + ["api", "commands"]


def reached(module, names):
    """The modules of the package among these imports. `from cfljax.data import arrays` reaches the
    module, not the package."""
    for node in ast.walk(ast.parse(names[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            places = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (
                place if place in names else node.module
                for place in places
                if {place, node.module} & names.keys()
            )


def test_no_modules_import_each_other_in_a_circle():
    dotted = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    names = {name.removesuffix(".__init__"): path for name, path in dotted.items()}
    left = {module: set(reached(module, names)) - {module} for module in names}
    while free := [module for module, needs in left.items() if not needs & left.keys()]:
        for module in free:
            del left[module]
    assert list(left) == [], "each of these imports another of them, at its top or in a function"


def python(code, *flags):
    return subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_is_light():
    heavy = (
        "jax",
        "flax",
        "optax",
        "sklearn",
        "pandas",
        "matplotlib",
        "tensorflow_datasets",
        "tensorflow",
        "scipy",
    )
    assert python(f"import sys, cfljax; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_heavy_packages_wait_until_they_are_used():
    heavy = (
        "flax",
        "optax",
        "sklearn",
        "pandas",
        "matplotlib",
        "tensorflow_datasets",
        "tensorflow",
    )
    everything = [
        "data",
        "models",
        "kernels.host",
        "methods",
        "engine.simulate",
        "experiment.assemble",
        "launch.sweep",
        "extend",
    ]
    code = (
        f"import sys, {', '.join('cfljax.' + m for m in everything)}; print([m for m in {heavy} "
        "if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_sweep_is_a_function_before_and_after_it_is_imported():
    code = """
import cfljax
first = cfljax.sweep
import cfljax.sweep, cfljax.run, cfljax.load, cfljax.init
assert callable(first) and callable(cfljax.sweep) and callable(cfljax.run) and callable(cfljax.load)
from cfljax import sweep
try:
    cfljax.sweep({"data": {"name": "digits"}, "method": [{"name": "fedavgg"}]})
except cfljax.errors.SpecError as error:
    print(error)
"""
    assert 'did you mean "fedavg"?' in python(code)


def test_each_command_is_a_module_too_and_helps_without_warnings():
    code = f"""
import contextlib, io, runpy, sys
for name in {list(COMMANDS)}:
    sys.argv, said = ["", "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(f"cfljax.{{name}}", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        print(name, ended.code, f"python -m cfljax.{{name}}" in said.getvalue())
        print("examples:" in said.getvalue())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.split("\n")[:-1] == [
        line for name in COMMANDS for line in (f"{name} 0 True", "True")
    ]


def without_encoding(path):
    """Lines on which a text file, or the text of another process, is read or written as the locale
    has it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(
            word.arg in ("encoding", None) for word in node.keywords
        ):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        of = getattr(getattr(node.func, "value", None), "id", "")
        words = [
            arg.value
            for arg in node.args
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if any(word.startswith("utf-8") for word in words):
            continue
        text = of not in ("os", "gzip", "tarfile", "Image", "archive") and not any(
            "b" in word for word in words
        )
        if (
            (name == "open" and text)
            or name in ("read_text", "write_text")
            or any(word.arg == "text" for word in node.keywords)
        ):
            yield f"{path.name}:{node.lineno}"


def test_files_are_utf_8_whatever_the_locale():
    assert [line for path in modules() for line in without_encoding(path)] == []


def test_nothing_unsafe_in_the_package():
    unsafe = re.compile(
        r"\bpickle\b(?!s)\.|allow_pickle=True|(?<![\w.])eval\(|(?<![\w.])exec\(|\bdill\b"
    )
    hits = [
        f"{p.name}: {line}"
        for p in modules()
        for line in p.read_text().splitlines()
        if unsafe.search(line)
    ]
    assert hits == []
