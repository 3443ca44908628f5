"""What examples of the differential drill raise that have nothing to compare."""


class Unfit(Exception):
    """Nothing to compare: options that exclude each other, or a run that fails in both ways."""
