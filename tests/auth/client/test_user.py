"""Ways in which a person authorizes a client: browser, pasted address, application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gemel import AuthorizationFailed, DefinitionError
from gemel.auth.client.user import Authorizer, BrowserLogin, CallbackLogin, PasteLogin
from tests.auth.hostile.login_urls import REFUSED_LOGIN_URLS
from tests.ports import free_port


def login_url(redirect_uri: str, state: str = "s1", base: str = "https://login.example.com/authorize") -> str:
    query = urlencode({"response_type": "code", "redirect_uri": redirect_uri, "state": state})
    return f"{base}?{query}"


async def fetch(
    url: str, *, method: str = "GET", host: str | None = None, address: str | None = None
) -> tuple[int, str]:
    """One request as a browser sends it; the status and all of the response."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(address or parts.hostname, parts.port)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {host or parts.netloc}\r\n\r\n".encode())
    async with asyncio.timeout(5):
        text = (await reader.read()).decode()
    writer.close()
    return int(text.split()[1]), text


class Page:
    """A browser that the login opens: it visits addresses made of the redirect URI, and notes what comes back."""

    def __init__(self, visits: Callable[[str, str], list[tuple[str, dict[str, str]]]]) -> None:
        self._visits = visits
        self.opened: list[str] = []
        self.answers: list[tuple[int, str]] = []
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()

    async def close(self) -> list[tuple[int, str]]:
        """Wait until all answers are there; return them."""
        async with asyncio.timeout(5):
            await self._done.wait()
        return self.answers

    def open(self, url: str) -> bool:
        self.opened.append(url)
        query = dict(parse_qsl(urlsplit(url).query))
        self._loop.call_soon_threadsafe(lambda: self._start(query["redirect_uri"], query["state"]))
        return True

    def _start(self, redirect_uri: str, state: str) -> None:
        self._task = asyncio.ensure_future(self._visit(redirect_uri, state))

    async def _visit(self, redirect_uri: str, state: str) -> None:
        for url, options in self._visits(redirect_uri, state):
            self.answers.append(await fetch(url, **options))
        self._done.set()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
async def test_the_browser_returns_to_a_server_on_the_loopback_interface(host: str) -> None:
    texts: list[str] = []
    page = Page(lambda uri, state: [(f"{uri}?code=c%26x&state={state}&iss=https%3A%2F%2Flogin.example.com", {})])
    login: Authorizer = BrowserLogin(host=host, open_url=page.open, show=texts.append)
    uri = login.redirect_uri
    assert urlsplit(uri).hostname == host
    assert login.redirect_uri == uri
    redirect = await login.authorize(login_url(uri))
    assert redirect == f"{uri}?code=c%26x&state=s1&iss=https%3A%2F%2Flogin.example.com"
    assert page.opened == [login_url(uri)]
    assert login_url(uri) in texts[0]
    ((status, text),) = await page.close()
    assert status == 200
    assert "content-security-policy: default-src 'none'" in text
    assert "cache-control: no-store" in text
    assert "script" not in text
    assert "c%26x" not in text
    assert "Traceback" not in text
    with pytest.raises(ConnectionRefusedError):
        await fetch(uri)


async def test_localhost_listens_on_ipv4_and_ipv6() -> None:
    login = BrowserLogin(open_url=lambda url: True, show=lambda text: None, timeout=5)
    uri = login.redirect_uri
    task = asyncio.ensure_future(login.authorize(login_url(uri)))
    await asyncio.sleep(0)
    for address in ("127.0.0.1", "::1"):
        assert (await fetch(f"{uri}?code=c&state=other", address=address))[0] == 400
    await fetch(f"{uri}?code=c&state=s1", address="::1")
    assert await task == f"{uri}?code=c&state=s1"


async def test_only_the_answer_of_this_login_is_taken() -> None:
    page = Page(
        lambda uri, state: [
            (f"{uri}?code=evil&state=other", {}),
            (f"{uri}?code=evil", {}),
            (f"{uri}?state={state}", {}),
            (f"{uri}?code=evil&code=evil&state={state}", {}),
            (f"{uri}?code=evil&state={state}&state=other", {}),
            (f"{uri}/x?code=evil&state={state}", {}),
            (f"{uri.replace('callback', 'favicon.ico')}", {}),
            (f"{uri}?code=evil&state={state}", {"host": "evil.example"}),
            (f"{uri}?code=evil&state={state}", {"host": f"evil.example:{urlsplit(uri).port}"}),
            (f"{uri}?code=evil&state={state}", {"method": "POST"}),
            (f"{uri}?code=evil&state={state}", {"method": "HEAD"}),
            (f"{uri}?code=evil&state={state}&{'x=1&' * 60}", {}),
            (f"{uri}?code=good&state={state}", {}),
        ]
    )
    login = BrowserLogin(open_url=page.open, show=lambda text: None)
    redirect = await login.authorize(login_url(login.redirect_uri))
    assert redirect.endswith("?code=good&state=s1")
    statuses = [status for status, _ in await page.close()]
    assert statuses == [400, 400, 400, 400, 400, 404, 404, 421, 421, 405, 405, 400, 200]
    assert not any("evil" in text for _, text in page.answers)


async def test_an_error_comes_back_and_is_not_shown_on_the_page() -> None:
    page = Page(lambda uri, state: [(f"{uri}?error=access_denied&error_description=bad&state={state}", {})])
    login = BrowserLogin(open_url=page.open, show=lambda text: None)
    redirect = await login.authorize(login_url(login.redirect_uri))
    assert "error=access_denied" in redirect
    assert "denied" not in (await page.close())[0][1]


async def test_nobody_logs_in() -> None:
    texts: list[str] = []
    login = BrowserLogin(open_url=lambda url: False, show=texts.append, timeout=0.05)
    uri = login.redirect_uri
    with pytest.raises(AuthorizationFailed, match=r"Nobody logged in to login\.example\.com within 0\.05 seconds"):
        await login.authorize(login_url(uri))
    assert "open this page in a browser" in texts[0]
    with pytest.raises(ConnectionRefusedError):
        await fetch(uri)


async def test_a_free_port_is_used_again_for_the_next_login() -> None:
    page = Page(lambda uri, state: [(f"{uri}?code=c&state={state}", {})])
    login = BrowserLogin(open_url=page.open, show=lambda text: None)
    uri = login.redirect_uri
    for state in ("a", "b"):
        assert login.redirect_uri == uri
        await login.authorize(login_url(uri, state))


async def test_a_fixed_port_in_use_is_named() -> None:
    port = free_port()
    login = BrowserLogin(host="127.0.0.1", port=port, open_url=lambda url: True)
    assert login.redirect_uri == f"http://127.0.0.1:{port}/callback"
    with pytest.raises(AuthorizationFailed, match=f"port {port} on 127.0.0.1"):
        BrowserLogin(host="127.0.0.1", port=port).redirect_uri  # noqa: B018 - it reserves the port
    login.close()
    other = BrowserLogin(host="127.0.0.1", port=port)
    assert other.redirect_uri
    other.close()


async def test_a_port_that_is_taken_on_ipv6_is_not_used_for_localhost() -> None:
    """Otherwise another program would get the code."""
    with contextlib.closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AuthorizationFailed, match=str(port)):
            BrowserLogin(port=port).redirect_uri  # noqa: B018 - it reserves the port


async def test_the_address_of_the_login_must_name_this_redirect_uri() -> None:
    login = BrowserLogin(open_url=pytest.fail, show=lambda text: None)
    for url in (login_url("http://localhost:1/callback"), login_url(login.redirect_uri, state="")):
        with pytest.raises(AuthorizationFailed, match="another redirect URI"):
            await login.authorize(url)
    login.close()


@pytest.mark.parametrize("url", REFUSED_LOGIN_URLS, ids=range(len(REFUSED_LOGIN_URLS)))
async def test_only_plain_web_addresses_are_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-06: schemes, plain HTTP, control characters, quotes, `$()`; no browser and no program is started."""
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: pytest.fail(str(args)))
    login = BrowserLogin(open_url=pytest.fail, show=pytest.fail)
    query = urlencode({"redirect_uri": login.redirect_uri, "state": "s1"})
    with pytest.raises(AuthorizationFailed, match="is not opened") as caught:
        await login.authorize(f"{url}?{query}")
    message = str(caught.value)
    assert message.isprintable()
    assert message.replace("…", "").isascii()
    assert len(message) < 300
    login.close()


@pytest.mark.parametrize(
    "base", ["https://login.example.com/a", "http://localhost:8080/a", "http://127.0.0.1:1/a", "http://[::1]/a"]
)
async def test_the_default_browser_gets_the_address_as_one_argument(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-06: never through a shell. `$BROWSER` names the program."""
    started: list[tuple[object, object]] = []

    class Started:
        def __init__(self, command: object, shell: bool = False, **options: object) -> None:
            started.append((command, shell))

        def wait(self, timeout: float | None = None) -> int:
            return 0

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", "my-browser")
    login = BrowserLogin(show=lambda text: None, timeout=0.05)
    url = login_url(login.redirect_uri, base=base)
    with pytest.raises(AuthorizationFailed, match="Nobody"):
        await login.authorize(url)
    assert started[0] == (["my-browser", url], False)


async def test_without_a_display_no_browser_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.open", pytest.fail)
    texts: list[str] = []
    login = BrowserLogin(show=texts.append, timeout=0.05)
    with pytest.raises(AuthorizationFailed):
        await login.authorize(login_url(login.redirect_uri))
    assert texts[0].startswith("To log in to login.example.com, open this page")


# ---------------------------------------------------------------- pasted addresses


class Keyboard:
    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.shown: list[str] = []

    async def read(self, prompt: str) -> str | None:
        return self._lines.pop(0) if self._lines else None


async def test_the_address_of_the_redirect_is_pasted() -> None:
    uri = "http://localhost:8765/callback"
    keyboard = Keyboard("", f"{uri}?code=c&state=other", f"  {uri}?code=c&state=s1 ")
    login: Authorizer = PasteLogin(read=keyboard.read, show=keyboard.shown.append)
    assert await login.authorize(login_url(uri)) == f"{uri}?code=c&state=s1"
    assert login_url(uri) in keyboard.shown[0]
    assert "begins with" in keyboard.shown[1]
    assert "another login" in keyboard.shown[2]


@pytest.mark.parametrize(
    "line",
    [
        "https://evil.example/callback?code=c&state=s1",
        "http://localhost:8765/callback/../x?code=c&state=s1",
        "http://localhost:8765/callbackx?code=c&state=s1",
        "http://localhost:8765/callback#code=c&state=s1",
        "http://localhost:8765/callback?code=c&state=s1#x",
        "http://localhost:8765/callback?code=c&state=s1&state=s1",
        "http://localhost:8765/callback?state=s1",
        "http://LOCALHOST:8765/callback?code=c&state=s1",
        "c",
        "http://localhost:8765/callback?code=c&state=s1&x=" + "a" * 20_000,
    ],
)
async def test_other_pasted_addresses_are_refused(line: str) -> None:
    keyboard = Keyboard(*[line] * 10)
    login = PasteLogin(read=keyboard.read, show=keyboard.shown.append)
    with pytest.raises(AuthorizationFailed, match="no address of the redirect was pasted"):
        await login.authorize(login_url(login.redirect_uri))
    assert len(keyboard.shown) == 1 + 5
    assert not any("code=c" in text for text in keyboard.shown[1:])


async def test_nobody_pastes_anything() -> None:
    async def never(prompt: str) -> str | None:
        await asyncio.Event().wait()
        return None

    login = PasteLogin(read=never, show=lambda text: None, timeout=0.05)
    with pytest.raises(AuthorizationFailed, match=r"within 0\.05 seconds"):
        await login.authorize(login_url(login.redirect_uri))
    with pytest.raises(AuthorizationFailed, match="no address"):
        await PasteLogin(read=Keyboard().read, show=lambda text: None).authorize(login_url(login.redirect_uri))


# ---------------------------------------------------------------- the application


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_application_authorizes(is_async: bool) -> None:
    uri = "https://app.example.com/oauth/callback"

    def plain(url: str) -> str:
        return f"{uri}?code=c&state={dict(parse_qsl(urlsplit(url).query))['state']}"

    async def waiting(url: str) -> str:
        return plain(url)

    login: Authorizer = CallbackLogin(waiting if is_async else plain, redirect_uri=uri)
    assert await login.authorize(login_url(uri)) == f"{uri}?code=c&state=s1"


async def test_an_answer_of_another_login_is_refused() -> None:
    uri = "https://app.example.com/oauth/callback"
    login = CallbackLogin(lambda url: f"{uri}?code=secret-code&state=other", redirect_uri=uri)
    with pytest.raises(AuthorizationFailed, match="another login") as caught:
        await login.authorize(login_url(uri))
    assert "secret-code" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["http://app.example.com/callback", "app:/callback", "https://app.example.com/?x=1", "https:///x", "https://[x"],
)
def test_redirect_uris_are_local_or_https(uri: str) -> None:
    with pytest.raises(DefinitionError, match="redirect_uri"):
        CallbackLogin(lambda url: url, redirect_uri=uri)
    with pytest.raises(DefinitionError, match="redirect_uri"):
        PasteLogin(redirect_uri=uri)


@pytest.mark.parametrize(
    "options", [{"host": "0.0.0.0"}, {"host": "example.com"}, {"path": "callback"}, {"path": "/a?b"}]
)
def test_the_callback_server_is_local(options: dict[str, str]) -> None:
    with pytest.raises(DefinitionError):
        BrowserLogin(**options)  # type: ignore[arg-type]  # as in a table
