"""`python -m cfljax.data`: the command is in cfljax/commands/data.py."""

import importlib

importlib.import_module("cfljax.commands.cli").run_module("data")
