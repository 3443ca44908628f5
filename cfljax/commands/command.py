"""What all commands share: exit codes, one-line errors, signals."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn, TextIO

from cfljax.errors import CfljaxError

INTERRUPTED, TERMINATED = 130, 143
PATIENCE = 4.0
"""Seconds between a signal and the end of the process, whatever it is doing."""


MOMENT = 0.05
"""Seconds until a signal that came at a bad moment is answered."""


class Terminated(BaseException):
    """SIGTERM, raised where the program stands so that files are left whole."""


_told: list[str] = []
RAISED: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


def main(run: Callable[[argparse.Namespace], int], parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command: parsed, run, and its mistakes told in one line on standard error."""
    before = {number: signal.signal(number, _answer) for number in RAISED}  # also where a shell starts us in the background
    _end_soon_after_signals()
    others, sys.unraisablehook = sys.unraisablehook, _once_more
    plain, warnings.showwarning = warnings.showwarning, _warn
    take_any_terminal()
    try:
        return _carry_out(run, parser, arguments)
    except CfljaxError as error:
        if os.environ.get("CFLJAX_DEBUG"):
            raise
        return _say(" ".join(str(error).split()), error.exit_code)
    except KeyboardInterrupt:
        _end("stopped; start the same command again to go on", INTERRUPTED)
    except Terminated:
        _end("terminated; start the same command again to go on", TERMINATED)
    except BrokenPipeError:  # the reader of our output has gone: not our mistake
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
        return _say(f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: {' '.join(str(error).split())}", 2)
    finally:
        sys.unraisablehook, warnings.showwarning = others, plain
        for number, handler in before.items():  # what is raised while Python ends would only be shown
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def take_any_terminal() -> None:
    """One that knows no dashes, or no other alphabet, gets question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _carry_out(run: Callable[[argparse.Namespace], int], parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """What a signal may break off: `main` around it catches what is raised here."""
    return run(parser.parse_args(arguments))


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 (as in the module warnings)
    line: str | None = None,
) -> None:
    """Our warnings in one line; those of libraries as Python shows them, but for what JAX says of each program it cannot keep."""
    if "persistent compilation cache" in str(message):
        why = str(message).partition(": ")[2]
        line = f"cfljax: $CFLJAX_CACHE holds compiled programs that cannot be read or written, which are compiled again: {why}"
        if not _told:
            print(line, file=sys.stderr, flush=True)
        _told.append(line)
    elif category.__module__.startswith("cfljax"):
        print(f"cfljax: {message}", file=sys.stderr, flush=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _end(message: str, code: int) -> NoReturn:
    """End at once: an orderly exit would wait for what the device is still computing. Files have been closed on the way here."""
    if threading.current_thread() is threading.main_thread():
        for number in (*RAISED, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C has nothing to add
    if "CFLJAX_WORKER" not in os.environ:
        _say(message, code)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _answer(number: int, frame: FrameType | None) -> None:
    """Raise where the program stands, but not inside an import: modules in C abort when their initialisation is broken off.
    Before and after what the command does, nobody would catch it: then end at once."""
    while frame is not None and frame.f_code is not _carry_out.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib") and _again(number):
            return
        frame = frame.f_back
    if frame is None:
        os._exit(128 + number)
    raise RAISED[number]


def _again(number: int) -> bool:
    """Answer the signal a moment later, where the system has timers."""
    if not hasattr(signal, "setitimer"):
        return False
    signal.signal(signal.SIGALRM, lambda _, frame: _answer(number, frame))
    signal.setitimer(signal.ITIMER_REAL, MOMENT)
    return True


def _once_more(lost: sys.UnraisableHookArgs) -> None:
    """What is raised inside a callback of the garbage collector or a destructor is lost there, without effect."""
    for number, kind in RAISED.items():
        if lost.exc_type is kind and _again(number):
            return
    sys.__unraisablehook__(lost)


def _end_soon_after_signals() -> None:
    """Python answers a signal when the compiled program it waits for returns. Where that takes too long, a thread ends the
    process: nothing that was committed can be lost by it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    codes = {int(signal.SIGINT): INTERRUPTED, int(signal.SIGTERM): TERMINATED}

    def watch() -> None:
        while True:
            number = os.read(read, 1)
            if number and number[0] in codes:
                time.sleep(PATIENCE)
                _end("stopped in the middle of a round; start the same command again to go on", codes[number[0]])

    threading.Thread(target=watch, daemon=True).start()


def _say(message: str, code: int) -> int:
    print(f"cfljax: {message}", file=sys.stderr, flush=True)
    return code


def parser(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    """An argument parser whose help ends in examples; wrong flags exit with 2, in one line."""
    made = _Parser(prog=f"python -m cfljax.{name}", description=about, epilog=f"examples:\n{examples}", add_help=True)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    return made


def fraction(text: str) -> float:
    """The type of a flag that takes an accuracy."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: an accuracy is a fraction above 0 and up to 1, as in 0.9")
    return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}; see --help\n")
