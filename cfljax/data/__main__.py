"""`python -m cfljax.data`: the command is in cfljax/commands/data.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.process:run_module")("data")
