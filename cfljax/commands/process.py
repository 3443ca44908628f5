"""How every command runs as a process: its exit code, its errors in one line, its answer to
signals."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO

from cfljax import lazy
from cfljax.errors import CfljaxError
from cfljax.files import drop_programs

# Exit codes: 128 + the number of the signal, as shells have it
INTERRUPTED = 130
TERMINATED = 143
# Seconds after which a signal ends the process even in the middle of a computation
PATIENCE = 4.0
# Seconds until a signal is tried again that arrived while an exception could not be raised
RETRY_AFTER = 0.05


class Terminated(BaseException):
    """The process received SIGTERM. Raised where the program stands, so that open files are closed
    on the way out."""


# The warning about the compilation cache, once it has been printed
_warned_of_cache: list[str] = []
UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '([^']+)'")
"""JAX's warning of a compiled program that it cannot read, with the program's name."""
COLLECT_RARELY = (100_000, 50, 100)
"""Thresholds of Python's search for garbage: tracing a program makes many small objects that stay,
and looking through them again and again is a tenth of a start's work."""
RAISED: dict[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}
STOPPED = {
    at: f"{word}; start the same command again to go on"
    for at, word in zip(RAISED, ("stopped", "terminated"), strict=True)
}


class _CallableModule(types.ModuleType):
    def __call__(self, *args: object, **kwargs: object) -> object:
        import cfljax

        # The module has taken the place of the function in the package
        function: Any = cfljax.__getattr__(self.__name__.rpartition(".")[2])
        return function(*args, **kwargs)


def command_or_function(name: str, command: str) -> None:
    """Make the module `name` what it is imported as: run the command if it is `__main__`, else let
    it be called like the function of `cfljax.api` that has its name."""
    if name == "__main__":
        run_module(command)
    else:
        sys.modules[name].__class__ = _CallableModule


def run_module(name: str) -> NoReturn:
    """Run the command as `python -m cfljax.NAME` does, and exit."""
    # In a notebook that runs this module the main module is another: it must not exit
    main_module = getattr(sys.modules["__main__"], "__spec__", None)
    # The main module of a package, as of cfljax.report, is its __main__
    if getattr(main_module, "name", "").removesuffix(".__main__") == f"cfljax.{name}":
        answer_signals()
        lazy.wait()
    sys.exit(run_command(name, f"python -m cfljax.{name}", None))


def run_command(name: str, prog: str, arguments: Sequence[str] | None) -> int:
    """Run a command, which is called `prog`, with these arguments (None: the process's), and return
    its exit code."""
    module = importlib.import_module(f"cfljax.commands.{name}")
    return main(module.run, module.parser(prog), arguments)


def main(
    run: Callable[[argparse.Namespace], int],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None = None,
) -> int:
    """Parse the arguments, run the command, and return its exit code. An error is one line on
    standard error."""
    # This also replaces SIG_IGN, which a shell sets for background jobs
    before = {number: signal.signal(number, _answer) for number in RAISED}
    stop_watching = _end_soon_after_signals()
    unraisablehook = sys.unraisablehook
    sys.unraisablehook = _raise_again
    thresholds = gc.get_threshold()
    gc.set_threshold(*COLLECT_RARELY)
    showwarning = warnings.showwarning
    warnings.showwarning = _warn
    replace_unknown_characters()
    try:
        return _carry_out(run, parser, arguments)
    except CfljaxError as error:
        if os.environ.get("CFLJAX_DEBUG"):
            raise
        for line in error.lines:
            _say(line, error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        _end(STOPPED[signal.SIGINT], INTERRUPTED)
    except Terminated:
        _end(STOPPED[signal.SIGTERM], TERMINATED)
    # The program that reads the output has ended, as in `cfljax … | head`
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _say("out of memory; run fewer clients or a smaller model", 1)
    except OSError as error:
        if os.environ.get("CFLJAX_DEBUG"):
            raise
        return _say(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 3)
    except RuntimeError as error:
        if os.environ.get("CFLJAX_DEBUG") or "Unable to initialize backend" not in str(error):
            raise
        return _say(
            f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: {' '.join(str(error).split())}",
            2,
        )
    finally:
        sys.unraisablehook = unraisablehook
        warnings.showwarning = showwarning
        gc.set_threshold(*thresholds)
        stop_watching()
        # While Python shuts down an exception of these handlers would only print a traceback
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def answer_signals() -> None:
    """Answer signals from here on, also while modules are imported."""
    for number in RAISED:
        signal.signal(number, _answer)


def replace_unknown_characters() -> None:
    """Print question marks instead of characters that the encoding of the terminal lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _carry_out(
    run: Callable[[argparse.Namespace], int],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
) -> int:
    """Do the part of `main` that a signal may interrupt: `main` catches the exceptions that
    `_answer` raises in here."""
    flags = parser.parse_args(arguments)
    try:
        code = run(flags)
    except CfljaxError as error:
        if getattr(flags, "json", False):
            from cfljax.commands.as_json import write_error

            print(write_error(error), flush=True)
        raise
    sys.stdout.flush()
    return code


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 (as in the module warnings)
    line: str | None = None,
) -> None:
    """Print warnings of cfljax in one line, JAX's warnings about its compilation cache once, and
    others as Python does."""
    if "persistent compilation cache" in str(message):
        why = str(message).partition(": ")[2]
        line = (
            "cfljax: compiled programs in $CFLJAX_CACHE cannot be read or written, so programs "
            f"are compiled again: {why}"
        )
        if not _warned_of_cache:
            print(line, file=sys.stderr, flush=True)
        _warned_of_cache.append(line)
        if damaged := UNREADABLE.match(str(message)):
            drop_programs(damaged[1])
    elif category.__module__.startswith("cfljax"):
        print(f"cfljax: {message}", file=sys.stderr, flush=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _end(message: str, code: int) -> NoReturn:
    """Exit at once. An orderly exit would wait for the computation on the device; files have been
    closed on the way here."""
    if threading.current_thread() is threading.main_thread():
        for number in (*RAISED, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])):
            # A second Ctrl-C must not interrupt the end
            signal.signal(number, signal.SIG_IGN)
    if "CFLJAX_WORKER" not in os.environ:
        _say(message, code)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _answer(number: int, frame: types.FrameType | None) -> None:
    """Handle a signal: raise its exception where the program stands. Inside an import it is
    postponed, as modules written in C abort when their initialisation is interrupted. Outside of
    `_carry_out` nobody would catch it, so the process exits."""
    while frame is not None and frame.f_code is not _carry_out.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib") and _retry(number):
            return
        frame = frame.f_back
    if frame is None:
        _end(STOPPED[number], 128 + number)
    raise RAISED[number]


def _retry(number: int) -> bool:
    """Handle the signal again in RETRY_AFTER seconds; return False if the system has no timers."""
    if not hasattr(signal, "setitimer"):
        return False
    signal.signal(signal.SIGALRM, lambda _, frame: _answer(number, frame))
    signal.setitimer(signal.ITIMER_REAL, RETRY_AFTER)
    return True


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Handle a signal again whose exception was lost: Python drops what is raised in a destructor
    or a garbage collection."""
    for number, kind in RAISED.items():
        if lost.exc_type is kind and _retry(number):
            return
    sys.__unraisablehook__(lost)


def _end_soon_after_signals() -> Callable[[], None]:
    """Start a thread that ends the process PATIENCE seconds after a signal. Python itself handles a
    signal only when the compiled program that it waits for returns. Committed results are not
    lost. Return the function that stops the thread: a process that goes on after the command, as a
    notebook or a test does, answers signals in its own way."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    returned = threading.Event()

    def watch() -> None:
        # Nothing is read once the other end is closed
        while number := os.read(read, 1):
            if number[0] in RAISED and not returned.wait(PATIENCE):
                _end(
                    "stopped in the middle of a round; start the same command again to go on",
                    128 + number[0],
                )
        os.close(read)

    def stop() -> None:
        returned.set()
        signal.set_wakeup_fd(before)
        os.close(write)

    threading.Thread(target=watch, daemon=True).start()
    return stop


def _say(message: str, code: int) -> int:
    print(f"cfljax: {message}", file=sys.stderr, flush=True)
    return code
