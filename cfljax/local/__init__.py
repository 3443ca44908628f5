"""Local training of clients, and the losses of models on the clients' data."""
