"""`python -m cfljax.sweep`; `cfljax.sweep(...)` works as well, whether or not this module has been imported."""

import runpy

from cfljax.commands.callable_module import make_callable

if __name__ == "__main__":
    runpy.run_module("cfljax.commands.sweep", run_name="__main__")
else:
    make_callable(__name__)
