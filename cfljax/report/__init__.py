"""Reports on results folders. Enters: folders as sweeps write them. Leaves: tables, one HTML page,
and figures for papers.

The data pass the modules in this order: `configurations` groups the runs, `comparison` makes the
table's numbers, `curves` and `run_pictures` what figures draw, `report_data` all of these together;
`tables`, `page` (with `page_data`) and `figures` (with `figure_panels`) render them, `write` writes
the files.
"""
