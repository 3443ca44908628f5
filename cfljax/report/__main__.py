"""`python -m cfljax.report`: the command is in cfljax/commands/report.py."""

import runpy

runpy.run_module("cfljax.commands.report", run_name="__main__")
