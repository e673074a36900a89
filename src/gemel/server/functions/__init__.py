"""A Python function as JSON Schema, arguments and results. Knows no Context."""
