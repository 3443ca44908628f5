"""`python -m cfljax.load`; `cfljax.load(...)` works, too, whether or not this package has been imported."""

from cfljax.callable_module import make_callable

make_callable(__name__)
