"""What Gemel has to reach, as ratios of figures from one run. `--check` holds a run against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.stores import redis_program


@dataclass(frozen=True)
class Floor:
    """In this case, the median ratio of the figure of `name` to the other's must not be above `most`.

    With `above`, it is not the ratio, but how many microseconds it is above the other's. Without another it is microseconds of
    CPU.
    """

    case: str
    other: str
    most: float
    words: str
    name: str = "gemel"
    above: bool = False
    #: Whether the ratio depends on the processor: what a small program gains by a fast one, a larger one may not.
    varies: bool = False

    @property
    def binding(self) -> bool:
        """Whether `--check` fails if it is missed: not for microseconds, and what else depends on the machine."""
        return bool(self.other) and not self.above and not self.varies


#: Work that users would recognise, by the peer that does it, too; not measured with --quick.
_ALL = ("model", "report", "progress", "jwt", "list", "visits", "foreign")
_ROWS = {"mcp": _ALL, "fastmcp": (*_ALL, "proxy", "gateway")}

FLOORS = (
    Floor("http", "mcp", 0.1, "HTTP: CPU per call at most 0.1 of mcp's"),
    Floor("http", "bare", 2.0, "HTTP: at least half of the bare app's rate (CPU per call at most twice its)"),
    Floor("http", "gemel_repeated", 1.25, "HTTP: calls that vary at most 1.25 of one that is repeated"),
    Floor(
        "http",
        "raw",
        3.4,
        "HTTP: at least 0.29 of the raw protocol's rate (CPU per call at most 3.4 times its)",
        varies=True,
    ),
    Floor(
        "workers",
        "gemel",
        1.11,
        "Two workers: at least 1.8 times the calls for the same CPU time of each core (CPU per call at most 1.11)",
        "gemel, two workers",
    ),
    Floor("fan_out", "", 15.0, "Fan-out: at most 15 µs of CPU for each of 1,000 streams"),
    Floor("http_text", "raw", 1.3, "HTTP: a result of 1 MB of text at most 1.3 of what decoding and encoding take"),
    Floor("http_session", "mcp_json", 0.13, "HTTP session, JSON: CPU per call at most 0.13 of mcp's with JSON"),
    Floor("http_session", "mcp", 0.06, "HTTP session, event stream: at most 0.06 of mcp's", "gemel events"),
    Floor("http_token", "gemel", 1.15, "HTTP: a call with an access token at most 1.15 of one without", "gemel token"),
    *(
        floor
        for store, above in (("sqlite", 7.0), ("redis", 5.0))  # a file is looked at
        for floor in (
            Floor("session", "gemel", 2.0, f"HTTP session: a call over {store} at most 2 of memory", f"gemel {store}"),
            Floor(
                "fan_out",
                "gemel",
                above,
                f"Fan-out: a notification over {store} at most {above:g} µs of CPU above memory",
                f"gemel {store}",
                above=True,
            ),
        )
    ),
    Floor("stdio_pipelined", "mcp", 0.04, "stdio, 16 in flight: CPU per call at most 0.04 of mcp's"),
    Floor("stdio_pingpong", "mcp", 0.2, "stdio, one at a time: CPU per call at most 0.2 of mcp's"),
    Floor(
        "client", "bare", 40.0, "client over HTTP: at most 40 µs of CPU above a raw POST on its connections", above=True
    ),
    Floor("memory", "mcp", 0.2, "in memory: CPU per call at most 0.2 of mcp's"),
    Floor("cold_start", "mcp", 0.4, "stdio cold start: wall time to the first answer at most 0.4 of mcp's"),
    *(
        Floor(case, peer, 0.4, f"{case}: CPU time at most 0.4 of {peer}'s")
        for peer, cases in _ROWS.items()
        for case in cases
    ),
)


#: Short rounds vary more: on a machine that others use too, the same program measured 0.16 to 0.21 where 0.2 is allowed.
QUICK = 1.25


def verdicts(results: Mapping[str, Mapping[str, Any]], slack: float = 1.0) -> list[tuple[Floor, float | None, bool]]:
    """Each floor with what was measured (None: not measured) and whether it is kept, with `slack` times its limit.

    Without a Redis on this machine its floors are left out.
    """
    judged: list[tuple[Floor, float | None, bool]] = []
    for floor in FLOORS:
        if floor.name == "gemel redis" and redis_program() is None:
            continue
        row = results.get(floor.case, {}).get(floor.name)
        figure = f"{'above' if floor.above else 'of'}_{floor.other}" if floor.other else "cpu_us"
        reached = row[figure][0] if row and row.get(figure) else None
        judged.append((floor, reached, reached is not None and reached <= floor.most * slack))
    return judged
