"""The commands. Each module has `parser(prog)`, its flags, and `run(flags)`, which prints and returns the exit code."""

COMMANDS = {
    "sweep": "run a sweep: methods × data × seeds × numbers",
    "run": "one run",
    "report": "tables, plots and the page of a results folder",
    "load": "the frames of a results folder, its state, its checks",
    "data": "list, prepare, import and describe data sets",
    "methods": "list the methods, or describe one",
}
"""Name -> what the command does."""
