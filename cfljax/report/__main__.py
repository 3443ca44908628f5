"""`python -m cfljax.report`: the command is in cfljax/commands/report.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.process:run_module")("report")
