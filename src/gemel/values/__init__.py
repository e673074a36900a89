"""Python values as JSON and back, the same at every outlet."""
