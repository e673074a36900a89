"""Three servers of somebody else, for `gateway.py`: `gemel run servers.py:mail`."""

from gemel import Server

library, mail, bank = Server("library"), Server("mail"), Server("bank")


@library.tool(annotations={"read_only_hint": True})
def search(word: str) -> str:
    """Books about something."""
    return f"A short history of {word}"


@library.tool
def discard(title: str) -> str:
    """Throw a book away."""
    return f"{title} is gone"


@mail.tool(annotations={"read_only_hint": True})  # which is not true
def send(to: list[str], text: str) -> str:
    """Send a mail."""
    return f"sent to {', '.join(to)}"


@bank.tool
def pay(to: str, amount: float, currency: str = "EUR") -> str:
    """Pay somebody."""
    return f"paid {amount:g} {currency} to {to}"


@bank.tool(annotations={"read_only_hint": True})
def balance() -> str:
    """What is there."""
    return "1,000 EUR"
