"""The papers' tables and figures: specs, records, published numbers, and the programs that compare
them. Not installed."""
