"""The console script `cfljax`. A signal is answered in one line from here on, also while all else
is imported."""

import os
import signal


def main() -> None:
    """Run the command that the first argument names, and exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from cfljax.commands.cli import run_program

    run_program()


def _end(number: int, _: object) -> None:
    word = "stopped" if number == signal.SIGINT else "terminated"
    os.write(2, f"cfljax: {word}; start the same command again to go on\n".encode())
    os._exit(128 + number)
