"""Mutation testing of the kernel: `python -m tools.mutants --help`."""
