"""`python -m cfljax.check`; `cfljax.check(...)` works as well, whether or not this module has been
imported."""

from cfljax.commands.process import command_or_function

command_or_function(__name__, "check")
