"""The compiled round, and a batch of runs from its start to its end."""
