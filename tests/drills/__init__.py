"""The figures of docs/reliability.md, measured: `python -m tests.drills NAME --count N --seed S`; no name: all of them."""
