"""Two servers for `host.py`: `library` supports only the handshake era, `cafe` adds a tool while it runs.

gemel run examples/host_servers.py:library
gemel run examples/host_servers.py:cafe --http
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gemel import Context, Declined, PeerError, Server

library = Server("library", version="1.0", eras="2025")
cafe = Server("cafe", version="1.0")


@dataclass
class Loan:
    """The form that the reader fills in."""

    weeks: Literal["one", "two", "four"] = "two"
    reminder: bool = True


@library.tool(annotations={"read_only_hint": True})
def search(word: str) -> list[str]:
    """Books about something.

    Args:
        word: The topic.
    """
    return [f"A short history of {word}", f"{word.capitalize()} for beginners"]


@library.tool
async def borrow(ctx: Context, title: str) -> str:
    """Take a book home; the reader is asked for how long."""
    try:
        loan = await ctx.elicit(f"For how long do you want {title!r}?", Loan)
    except Declined as left:
        return f"{title!r} stays here: {left.action}"
    return f"{title!r} is yours for {loan.weeks} weeks{', and we remind you' if loan.reminder else ''}."


@library.tool(annotations={"read_only_hint": True})
async def recommend(ctx: Context, reader: str) -> str:
    """A book for a reader, found by the model of the host."""
    try:
        answer = await ctx.sample(f"Name one book for {reader}.", max_tokens=50)
    except PeerError:
        return "No idea: the model must not be asked."
    return f"Try {answer.text}"


@library.prompt
def review(title: str) -> str:
    """Ask for a review of a book."""
    return f"Write a short review of {title!r}."


@cafe.tool("search", annotations={"read_only_hint": True})
def menu(word: str) -> list[str]:
    """Dishes with something in them."""
    return [f"{word} soup", f"{word} pie"]


@cafe.tool
async def open_kitchen(ctx: Context) -> str:
    """From now on one can order."""

    @cafe.tool
    def order(dish: str, plates: int = 1) -> str:
        """Order a dish."""
        return f"{plates} × {dish}, coming up."

    await ctx.info("the kitchen is open")
    return "One can order now."
