"""From samples to figures: medians, ratios taken within one round, and the table."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.cases import Case, Sample
from benchmarks.installing import ROOT

#: Where tables are written with `--write`.
PAGE = ROOT / "docs" / "performance.md"

#: Cases with one contestant that the others are compared with. Gemel itself: what a token, a backend or another worker changes.
BASES = dict.fromkeys(("http_token", "session", "workers", "fan_out", "tasks", "steps"), "gemel") | {"client": "bare"}
#: Contestants that the others are compared with, where they take part.
COMPARED = ("mcp", "mcp JSON", "FastMCP", "FastMCP JSON", "bare", "raw")
#: The samples of a case: contestant to one sample per round.
Rounds = Mapping[str, Sequence[Sample]]


def compared(case: Case, sample: Sample) -> float:
    """The figure of a sample that is compared: seconds of CPU, or of wall time, per call."""
    return (sample.cpu if case.compared == "cpu" else sample.seconds) / sample.calls


def ratios(case: Case, rounds: Rounds, name: str, to: str) -> list[float]:
    """One contestant's figure over another's, round by round: what disturbs a round disturbs both."""
    pairs = zip(rounds[name], rounds[to], strict=True)
    return [compared(case, mine) / compared(case, other) for mine, other in pairs if compared(case, other)]


def differences(case: Case, rounds: Rounds, name: str, to: str) -> list[float]:
    """How many microseconds one contestant's figure is above another's, round by round."""
    pairs = zip(rounds[name], rounds[to], strict=True)
    return [(compared(case, mine) - compared(case, other)) * 1e6 for mine, other in pairs]


def summary(case: Case, rounds: Rounds) -> dict[str, dict[str, Any]]:
    """Per contestant: medians, spread, and the ratios to the official SDK and to the floor, as plain data."""
    rows: dict[str, dict[str, Any]] = {}
    base = BASES.get(case.key)
    for name, samples in rounds.items():
        row: dict[str, Any] = {
            "calls": sum(sample.calls for sample in samples),
            "per_second": spread([sample.calls / sample.seconds for sample in samples]),
            "cpu_us": spread([sample.cpu / sample.calls * 1e6 for sample in samples]),
            "wall_ms": spread([sample.seconds / sample.calls * 1e3 for sample in samples]),
        }
        for key in samples[0].extra:
            row[key] = spread([sample.extra[key] for sample in samples])
        for other in {*(name.lower() for name in COMPARED), "gemel repeated", base or "bare"}:
            if other in rounds and other != name:
                row[f"of_{other.replace(' ', '_')}"] = spread(ratios(case, rounds, name, other))
        if case.rated and name != "bare":
            pairs = zip(samples, rounds["bare"], strict=True)
            row["rate_of_bare"] = spread([one.calls / one.seconds / (bare.calls / bare.seconds) for one, bare in pairs])
        if base is not None and name != base:
            row[f"above_{base}"] = spread(differences(case, rounds, name, base))
        rows[name] = row
    return rows


def spread(values: Sequence[float]) -> list[float]:
    """Median, least and greatest."""
    return [median(values), min(values), max(values)] if values else []


def table(case: Case, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The lines of one case, for people and for a README: a Markdown table."""
    one_shot = case.one_shot
    heads = ["", "wall ms" if one_shot else "calls/s", "CPU ms" if one_shot else "CPU µs/call"]
    others = tuple(other for other in COMPARED if other.lower() in rows)
    base = BASES.get(case.key)
    if base is not None:
        others = (base,)
    heads += [f"× {other}" for other in others]
    heads += [f"µs above {base}"] if base is not None else []
    heads += ["calls/s × bare"] if case.rated else []
    heads += ["peak MB"] if one_shot else []
    lines = [f"**{case.title}**", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for name, row in rows.items():
        cells = [name]
        if one_shot:
            cells += [_range(row["wall_ms"], "{:.0f}"), _range([value / 1e3 for value in row["cpu_us"]], "{:.0f}")]
        else:
            cells += [f"{row['per_second'][0]:,.0f}", _range(row["cpu_us"], "{:.1f}")]
        cells += [_ratios(row.get(f"of_{other.lower().replace(' ', '_')}")) for other in others]
        cells += [_range(row.get(f"above_{base}"), "{:.1f}")] if base is not None else []
        cells += [_ratios(row.get("rate_of_bare"))] if case.rated else []
        cells += [f"{row['peak_mb'][0]:.0f}"] if one_shot else []
        lines.append(_line(cells))
    return "\n".join(lines)


def today() -> str:
    """When and where something was measured, for below its table."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{time.strftime('%Y-%m-%d')}, {machine}, load average {os.getloadavg()[0]:.0f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _range(values: Sequence[float] | None, form: str) -> str:
    return _spread_out([form.format(value) for value in values or ()])


def _ratios(values: Sequence[float] | None) -> str:
    """Ratios in two digits: another run changes the third."""
    return _spread_out([two_digits(value) for value in values or ()])


def two_digits(value: float) -> str:
    """A number with its first two digits: 0.026, 1.0, 16, 130."""
    return f"{value:#.2g}" if value < 9.95 else f"{float(f'{value:.2g}'):.0f}"


def _spread_out(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    middle, least, most = texts
    return middle if least == most else f"{middle} ({least}–{most})"
