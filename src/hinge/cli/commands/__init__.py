"""The commands of `hinge`: one module each, loaded when it is used."""
