"""`python -m cfljax.init`: the command is in cfljax/commands/init.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.process:run_module")("init")
