"""Rounds: the recipes on which methods are built, and the parts of a round that several share."""
