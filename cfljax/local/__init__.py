"""Training and scoring on the clients' own data."""
