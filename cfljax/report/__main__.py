"""`python -m cfljax.report`: the command is in cfljax/commands/report.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.cli:run_module")("report")
