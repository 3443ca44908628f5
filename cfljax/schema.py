"""`python -m cfljax.schema`: the command is in cfljax/commands/schema.py."""

from pkgutil import resolve_name

resolve_name("cfljax.commands.process:run_module")("schema")
