"""What Hinge has to reach, as ratios of figures from one run. `--check` holds a run against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Floor:
    """In this case, the median ratio of the figure of `name` to the other's must not be above `most`."""

    case: str
    other: str
    most: float
    words: str
    name: str = "hinge"


FLOORS = (
    Floor("http", "mcp", 0.1, "HTTP: CPU per call at most 0.1 of mcp's"),
    Floor("http", "bare", 2.0, "HTTP: at least half of the bare app's rate (CPU per call at most twice its)"),
    Floor("http_token", "hinge", 1.15, "HTTP: a call with an access token at most 1.15 of one without", "hinge token"),
    Floor("stdio_pipelined", "mcp", 0.2, "stdio, 16 in flight: CPU per call at most 0.2 of mcp's"),
    Floor("stdio_pingpong", "mcp", 0.2, "stdio, one at a time: CPU per call at most 0.2 of mcp's"),
    Floor("memory", "mcp", 0.2, "in memory: CPU per call at most 0.2 of mcp's"),
    Floor("cold_start", "mcp", 0.4, "stdio cold start: wall time to the first answer at most 0.4 of mcp's"),
)


#: Short rounds vary more: on a machine that others use too, the same program measured 0.16 to 0.21 where 0.2 is allowed.
QUICK = 1.25


def verdicts(results: Mapping[str, Mapping[str, Any]], slack: float = 1.0) -> list[tuple[Floor, float | None, bool]]:
    """Each floor with the ratio that was measured (None: not measured) and whether it is kept, with `slack` times its limit."""
    found: list[tuple[Floor, float | None, bool]] = []
    for floor in FLOORS:
        row = results.get(floor.case, {}).get(floor.name)
        ratio = row[f"of_{floor.other}"][0] if row and row.get(f"of_{floor.other}") else None
        found.append((floor, ratio, ratio is not None and ratio <= floor.most * slack))
    return found
