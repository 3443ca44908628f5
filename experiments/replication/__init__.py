"""Our results beside published ones. Enters: results folders and TOML files of published numbers.
Leaves: a Markdown page."""
