"""`python -m cfljax.report`: the command is in cfljax/commands/report.py."""

import importlib

importlib.import_module("cfljax.commands.cli").run_module("report")
