"""The figures of docs/reliability.md, measured: `python -m drills NAME --count N --seed S`; no
name: all of them."""
