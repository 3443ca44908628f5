"""`python -m cfljax.methods`: the command is in cfljax/commands/methods.py."""

import runpy

runpy.run_module("cfljax.commands.methods", run_name="__main__")
