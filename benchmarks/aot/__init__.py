"""Compiles cfljax's programs for accelerators that are not there, and says what the compiled programs consist of."""
