"""Code mode: a model writes programs that call tools, in place of a list of all tools. See `mode.py`."""
