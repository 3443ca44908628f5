"""The board: which methods are good at which differences between clients, on settings that a seed
draws from a stated space."""
