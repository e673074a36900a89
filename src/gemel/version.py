"""The version of this package, known without installed metadata: in a zipapp, in a frozen program."""

__version__ = "0.1.0"
