"""`python -m cfljax.methods`: the command is in cfljax/commands/methods.py."""

import importlib

importlib.import_module("cfljax.commands.cli").run_module("methods")
