"""What a results folder shows: tables, one self-contained page, and figures for papers."""
