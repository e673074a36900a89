"""The name of the distribution and its version, known without installed metadata: in a zipapp, in a frozen program."""

from typing import Final

#: What package indexes call this project. Whatever is written for others takes the name from here.
DISTRIBUTION: Final = "gemel"

__version__ = "0.1.0"


def requirement(extra: str = "") -> str:
    """Return the requirement on this version and those compatible with it, for projects, bundles and configurations.

    Args:
        extra: The extra that is needed, too.

    Returns:
        A requirement such as `gemel[cli]~=0.1.0`. Before 1.0 a minor version may break what is public, afterwards a major one.
    """
    major, minor, _ = __version__.split(".", 2)
    return f"{_with_extra(extra)}~={__version__ if major == '0' else f'{major}.{minor}'}"


def missing_extra(what: str, extra: str) -> str:
    """Return the text of an error about an extra that is not installed.

    Args:
        what: What can't work without it, with its verb: "JSON Web Tokens need".
        extra: The extra.
    """
    return f"{what} the extra {extra}: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{_with_extra(extra)}'"


def _with_extra(extra: str) -> str:
    return f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
