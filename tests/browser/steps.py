"""What a person does on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import Inspected

#: The type of the fixture `open_page`.
Open = Callable[..., "Page"]
VIEWS = (
    *("tools", "resources", "prompts", "apps"),
    *("wire", "compare", "history", "logs", "measures"),
    *("contract", "findings", "connection"),
)


def go(page: Page, place: str) -> None:
    """Go to a view by its address."""
    page.evaluate("(place) => { location.hash = place; }", place)


def go_to(page: Page, view: str) -> None:
    """Go to a view by the navigation."""
    page.get_by_role("navigation").get_by_role("link", name=re.compile(f"^{view}")).click()


def look_at(page: Page, era: str) -> None:
    """Choose an era."""
    page.get_by_role("group", name="Era to look at").get_by_role("button", name=era).click()


def fill(page: Page | Locator, /, **texts: str) -> None:
    """Fill in fields by their names."""
    for name, text in texts.items():
        page.get_by_label(name, exact=True).fill(text)


def run(page: Page, button: str = "Run in 2026") -> Locator:
    """Run what is shown; the panel of the call."""
    page.get_by_role("button", name=button, exact=True).locator("visible=true").click()
    return panel(page)


def panel(page: Page) -> Locator:
    """The panel of the call that is on the screen."""
    return page.get_by_role("region", name="Call", exact=True).locator("visible=true").last


def options(page: Page, box: str) -> Locator:
    """The rows of a list that are drawn."""
    return page.get_by_role("listbox", name=box).get_by_role("option")


def is_unharmed(page: Page, hostile: Inspected) -> None:
    """Nothing of the server ran, became an element, or broke a script of the page."""
    assert page.evaluate("document.title") != "pwned"
    assert (
        page.evaluate(
            "document.querySelectorAll('img[src=x], #views script, #views [onerror], [href^=javascript]').length"
        )
        == 0
    )
    assert not hostile.problems
    hostile.contexts.pop().close()


def violations(page: Page, view: str) -> list[Any]:
    """What axe-core, which is loaded into the page, says about it as it is now."""
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        (view, one["id"], one["help"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]
    ]
