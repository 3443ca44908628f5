"""How long a test waits for what must come: no test measures speed."""

PATIENCE = 600
"""Seconds for a process to end, on two cores that others use, too."""
