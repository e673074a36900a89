"""Assert that hosts can take what a server offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gemel.doctor.check import at_least, examine
from gemel.doctor.hosts import Severity

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods


async def assert_fits_hosts(
    client: ClientMethods, hosts: Iterable[str] = (), *, severity: Severity = "degrades"
) -> None:
    """Fail if hosts don't support what a server offers, as `gemel doctor` finds it.

    Args:
        client: A connected client.
        hosts: Names of hosts, such as "cursor"; all known ones by default.
        severity: What fails: "breaks", or "degrades" and worse.

    Raises:
        AssertionError: With a line for each finding.
        DefinitionError: A host is not known.

    Example:
        >>> async with Client(server) as client:
        ...     await assert_fits_hosts(client, ["claude-desktop", "vscode"])
    """
    findings = at_least(await examine(client, hosts), severity)
    if findings:
        lines = "\n".join(f"  {one.severity}: {one}" for one in findings)
        raise AssertionError(f"hosts don't support what the server offers:\n{lines}")
