"""The commands. Each module has `parser(prog)`, its flags, and `run(flags)`, which prints and returns the exit code."""
