"""Gemel beside the official SDK and a bare floor, measured in one run: `python -m benchmarks.run`."""
