"""`python -m cfljax.methods`: the command is in cfljax/commands/methods.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.process:run_module")("methods")
