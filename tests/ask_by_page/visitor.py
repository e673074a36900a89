"""A person with a browser without scripts: reads a page as labelled controls, fills them in, presses a button."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx

_VOID = {"input", "meta"}


@dataclass
class Control:
    """One named control of a form: what it is called, what it is set to, what can be chosen."""

    name: str
    kind: str
    label: str = ""
    value: str = ""
    checked: bool = False
    #: Values by what people read.
    options: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str | None] = field(default_factory=dict)


class Page(HTMLParser):
    """A page that was received."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status = response.status_code
        self.headers = response.headers
        self.url = str(response.url)
        self.html = response.text
        self.controls: list[Control] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._labels: dict[str, str] = {}
        self._texts: list[str] = []
        self._label: str | None = None
        self._label_text = ""
        self._legend: str | None = None
        self._group = ""
        self._option: tuple[Control, str] | None = None
        self._area: Control | None = None
        self.feed(response.text)
        for control in self.controls:
            control.label = control.label or self._labels.get(str(control.attributes.get("id")), "")

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    def control(self, label: str) -> Control:
        """The control that people know by this label."""
        return next(one for one in self.controls if _plain(one.label) == label)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        name = given.get("name") or ""
        if tag == "label":
            self._label, self._label_text = given.get("for") or "", ""
        elif tag == "legend":
            self._legend = ""
        elif tag in ("input", "select", "textarea") and name:
            made = Control(name, given.get("type") or tag, value=given.get("value") or "", attributes=given)
            made.checked = "checked" in given
            self.controls.append(made)
            if made.kind == "checkbox" and self._label == "":
                made.label = "\0"  # its label is around it
            if tag == "textarea":
                self._area = made
        elif tag == "option":
            select = self.controls[-1]
            self._option = (select, given.get("value") or "")
            if "selected" in given:
                select.value = given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            if self._label:
                self._labels[self._label] = self._label_text
            elif self.controls and self.controls[-1].label == "\0":
                self.controls[-1].label = self._label_text
                self.controls[-1].options = {"in": self._group}
            self._label = None
        elif tag == "legend":
            self._group, self._legend = self._legend or "", None
        elif tag == "option":
            self._option = None
        elif tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._label is not None:
            self._label_text += data
        if self._legend is not None:
            self._legend += data
        if self._option is not None:
            select, value = self._option
            select.options[data] = value
        elif self._area is not None:
            self._area.value += data.removeprefix("\n")
        elif self.lasttag != "style":
            self._texts.append(data)


def _plain(label: str) -> str:
    return " ".join(label.replace("(optional)", "").split())


class Visitor:
    """A browser. `app` serves all addresses; without one they are reached over the network."""

    def __init__(self, app: Any = None, **headers: str) -> None:
        transport = None if app is None else httpx.ASGITransport(app=app)
        self.web = httpx.AsyncClient(transport=transport, headers=headers)

    async def __aenter__(self) -> Visitor:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.web.aclose()

    async def open(self, url: str) -> Page:
        return Page(await self.web.get(url, follow_redirects=True))

    async def answer(self, url: str, fields: dict[str, Any] | None = None, *, action: str = "accept") -> Page:
        """Open a page, fill it in and press a button. A field is known by its label; lists are boxes that are ticked."""
        return await self.send(await self.open(url), fields, action=action)

    async def send(self, page: Page, fields: dict[str, Any] | None = None, *, action: str = "accept") -> Page:
        assert page.status in (200, 422), (page.status, page.text)
        given = dict(fields or {})
        pairs: list[tuple[str, str]] = [("action", action)]
        for control in page.controls:
            label, value = _plain(control.label), control.value
            if control.kind == "checkbox":
                group = _plain(control.options.get("in", ""))
                ticked = control.checked
                if isinstance(given.get(group), list):
                    ticked = label in given[group]
                elif label in given:
                    ticked = bool(given[label])
                if ticked:
                    pairs.append((control.name, control.value))
                continue
            if label in given:
                value = control.options[given[label]] if control.kind == "select" else str(given[label])
            pairs.append((control.name, value))
        origin = str(httpx.URL(page.url).copy_with(path="/", query=None)).rstrip("/")
        body = urlencode(pairs)
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": origin,
            "sec-fetch-site": "same-origin",
        }
        return Page(await self.web.post(page.url, content=body, headers=headers))


def link_in(text: str) -> str:
    """The link that a result gives the model."""
    found = re.search(r"https?://\S+/ask/\S+", text)
    assert found is not None, text
    return found[0]


def name_in(text: str) -> str:
    """What names the call of an anonymous caller, in a result for the model."""
    found = re.search(r"'_call': '([^']+)'", text)
    assert found is not None, text
    return found[1]
