"""How soon `gemel dev` paints its page on loopback: `python -m benchmarks.page`. Needs Chromium and Playwright."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS, WEATHER, chromium, inspecting

#: Milliseconds that are aimed at.
LIMIT = 300
PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  const [paint] = list.getEntriesByName("first-contentful-paint");
  if (paint) resolve(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
TOOLS = """() => new Promise((resolve) => {
  const look = () => document.querySelector("gemel-tools .row") ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
})"""


def measure(rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the navigation of an empty browser context to the first paint, and to the first tool."""
    program = chromium()
    if program is None:
        raise SystemExit("no browser: Chromium is not in PATH, and CHROMIUM is not set")
    times: dict[str, list[float]] = {"first contentful paint": [], "first tool in the list": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        with inspecting(browser, WEATHER, "--no-reload") as inspected:
            inspected.open().context.close()  # the server is connected, and its files are read
            for _ in range(rounds):
                page = inspected.open("#/tools", eras=0)
                times["first contentful paint"].append(page.evaluate(PAINT))
                times["first tool in the list"].append(page.evaluate(TOOLS))
                inspected.contexts.pop().close()
        browser.close()
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="pages that are opened (default: 20)")
    rounds = parser.parse_args(arguments).rounds
    for name, values in measure(rounds).items():
        values.sort()
        print(f"{name}: median {statistics.median(values):.0f} ms, fastest {values[0]:.0f}, slowest {values[-1]:.0f}")
    print(f"{rounds} pages, each in a browser context without cache; the first paint is to come within {LIMIT} ms")


if __name__ == "__main__":
    main()
