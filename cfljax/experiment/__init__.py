"""From the configuration of a run to the parts that compute it."""
