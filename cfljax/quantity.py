"""What a number of the history means."""

from __future__ import annotations

from typing import NamedTuple


class Quantity(NamedTuple):
    """How figures, tables and pages name a number. It is declared where the number is made.

    Example:
        ```python
        diagnostics = {"crowd": Quantity("clients of the largest cluster", "share")}
        ```
    """

    label: str
    """Few words, for an axis or a menu."""
    unit: str = ""
    """"share" (from 0 to 1, drawn in per cent), "bytes", or a unit that stands behind the label,
    such as "s"; "": a plain number."""

    @property
    def words(self) -> str:
        """Return the label, with a unit that is to be read."""
        read = self.unit not in ("", "share", "bytes")
        return f"{self.label} ({self.unit})" if read else self.label
