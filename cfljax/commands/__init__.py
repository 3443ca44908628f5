"""The commands: what people type, and what it prints."""
