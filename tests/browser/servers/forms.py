"""A server whose tools have long forms with every kind of field."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta
from pydantic import BaseModel, Field

from gemel import Server

server = Server("forms", version="2.1")


@dataclass
class Line:
    """A line of an invoice."""

    text: str
    amount: Decimal


@server.tool
def file_invoice(
    number: UUID,
    day: dt.date,
    due: dt.datetime,
    total: Decimal,
    customer: str,
    code: Annotated[str, Meta(max_length=20)],
    approver: str | None,
    lines: list[Line] | None = None,
    discount: Decimal | None = None,
    paid: dt.date | None = None,
    reminder: dt.time | None = None,
    kind: Literal["paper", "mail"] | None = None,
    copies: int | None = 1,
    remarks: str | None = None,
) -> dict[str, Any]:
    """Write an invoice to the file; returns what was sent.

    Args:
        number: The number that the customer sees.
        day: The day of the invoice.
        due: When it has to be paid.
        total: The amount.
        customer: Who pays.
        code: A code of the accounts.
        approver: Who has approved it.
        lines: What it is for.
        discount: What is taken off.
        paid: When it was paid.
        reminder: At which time to remind.
        kind: How it is sent.
        copies: How many copies are printed; null for as many as are needed.
        remarks: For the file.
    """
    sent = {"number": number, "total": total, "customer": customer, "discount": discount, "copies": copies}
    return {**sent, "lines": [str(line.amount) for line in lines or ()], "remarks": remarks}


@server.tool
def stamp(
    kind: Literal["paid", "open"],
    urgent: bool,
    text: Annotated[str, Meta(min_length=1)],
    color: Literal["red", "blue"] = "blue",
) -> str:
    """Stamp an invoice."""
    return f"{kind}, {urgent}, {text}, {color}"


class Card(BaseModel):
    """A payment by card."""

    kind: Literal["card"] = "card"
    number: str


class Transfer(BaseModel):
    """A payment by bank."""

    kind: Literal["transfer"] = "transfer"
    iban: str
    day: dt.date


@server.tool
def settle(payment: Annotated[Card | Transfer, Field(discriminator="kind")]) -> str:
    """Pay an invoice."""
    return f"by {payment.kind}"


if __name__ == "__main__":
    server.run()
