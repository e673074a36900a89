"""The commands of `gemel`: one module each, loaded when it is used."""
