"""Carrying out batches: here, or elsewhere."""
