"""`python -m cfljax.data`: the command is in cfljax/commands/data.py."""

import runpy

runpy.run_module("cfljax.commands.data", run_name="__main__")
