"""What a person does at the pages of the authorization server."""

from __future__ import annotations

from dataclasses import dataclass

from tests.auth.real.browser import Page, PageError

STEPS = 6
"""More pages than any login has."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who logs in.

    Attributes:
        name: The name at the authorization server, which takes any password.
        consents: Whether the person consents there.
        allows: Whether the person allows the application at the page of an OAuth proxy of ours.
    """

    name: str = "ada"
    consents: bool = True
    allows: bool = True

    def authorize(self, page: Page, url: str, callback: str) -> str:
        """Open an authorization URL, log in, consent or refuse. Returns the URL of the client that the browser came to.

        Args:
            page: A tab. One that has logged in before need not do it again.
            url: The authorization URL.
            callback: How the client's URL begins. Nobody need listen there.
        """
        page.open(url)
        for _ in range(STEPS):
            if page.url.startswith(callback):
                return page.url
            self._answer(page)
        raise PageError(f"the login did not come to {callback} {page}")

    def enter_code(self, page: Page, url: str, code: str) -> str:
        """Open the page for device codes, enter the code, log in, consent. Returns the text of the last page."""
        page.open(url)
        page.fill("input[name=user_code]", code)
        for _ in range(STEPS):
            if not page.has("button[type=submit]"):
                return page.text
            self._answer(page)
        raise PageError(f"the device code was not accepted {page}")

    def _answer(self, page: Page) -> None:
        if page.has("input[name=login]"):  # its button is clicked below
            page.fill("input[name=login]", self.name)
            page.fill("input[name=password]", "any")
        if page.has("button[name=decision]"):
            page.click(f"button[name=decision][value={'allow' if self.allows else 'deny'}]")
        elif page.has("input[name=prompt][value=consent]") and not self.consents:
            page.click("a[href$='/abort']")
        else:
            page.click("button[type=submit]")
