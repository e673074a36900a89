"""Numbers that are read for a Decimal keep their digits, whichever library reads them and wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest
from pydantic import Field
from typing_extensions import TypedDict

from gemel import Client, Server
from gemel.server.functions.json_schema import SchemaWriter
from gemel.server.functions.values import value_type
from gemel.values.reading import read_as

DIGITS = "12345678901234567.89"
EXACT = Decimal(DIGITS)

Price = Annotated[Decimal, Field(ge=0, decimal_places=2)]


class Order(pydantic.BaseModel):
    price: Price
    rate: float = 0.0
    parts: list[Order] = []
    taxes: dict[str, Price | None] = {}


class Renamed(pydantic.BaseModel):
    price: Price = Field(alias="Price")
    cost: Price = Field(default=Decimal(0), validation_alias=pydantic.AliasChoices("cost", "costs"))


class Hidden(pydantic.BaseModel):
    price: Annotated[Price, pydantic.WithJsonSchema({"type": "number"})]


class Cat(pydantic.BaseModel):
    kind: Annotated[str, Field(pattern="^cat$")]
    price: Price


class Dog(pydantic.BaseModel):
    kind: Annotated[str, Field(pattern="^dog$")]
    weight: float


class Row(TypedDict):
    price: Price


class Pair(NamedTuple):
    name: str
    price: Price


@dataclass
class Data:
    price: Price


@dataclass
class Plain:
    price: Decimal


class Struct(msgspec.Struct):
    price: Decimal


def price(value: Any) -> Any:
    return value.price


CASES: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (Decimal, DIGITS, lambda value: value),
    (Plain, f'{{"price": {DIGITS}}}', price),
    (Struct, f'{{"price": {DIGITS}}}', price),
    (Price, DIGITS, lambda value: value),
    (list[Price], f"[1, {DIGITS}]", lambda value: value[1]),
    (set[Price], f"[{DIGITS}]", min),
    (tuple[str, Price], f'["a", {DIGITS}]', lambda value: value[1]),
    (tuple[Price, ...], f"[1, 2, {DIGITS}]", lambda value: value[2]),
    (dict[str, Price], f'{{"a": {DIGITS}}}', lambda value: value["a"]),
    (Order, f'{{"price": {DIGITS}}}', price),
    (Order, f'{{"price": 1, "parts": [{{"price": {DIGITS}}}]}}', lambda value: value.parts[0].price),
    (Order, f'{{"price": 1, "taxes": {{"vat": {DIGITS}}}}}', lambda value: value.taxes["vat"]),
    (Renamed, f'{{"Price": {DIGITS}}}', price),
    (Renamed, f'{{"Price": 1, "costs": {DIGITS}}}', lambda value: value.cost),
    (Hidden, f'{{"price": {DIGITS}}}', price),
    (Cat | Dog, f'{{"kind": "cat", "price": {DIGITS}}}', price),
    (Row, f'{{"price": {DIGITS}}}', lambda value: value["price"]),
    (Data, f'{{"price": {DIGITS}}}', price),
    (Pair, f'["tea", {DIGITS}]', price),
]


@pytest.mark.parametrize(("kind", "text", "part"), CASES)
def test_arguments_and_results(kind: Any, text: str, part: Callable[[Any], Any]) -> None:
    argument = value_type(kind, SchemaWriter(reading=True)).read(text.encode())
    assert (type(part(argument)), part(argument)) == (Decimal, EXACT)
    result = read_as(kind, text.encode())
    assert (type(part(result)), part(result)) == (Decimal, EXACT)


def test_other_numbers_stay_what_they_are() -> None:
    order = read_as(Order, f'{{"price": {DIGITS}, "rate": {DIGITS}}}'.encode())
    assert (order.price, order.rate) == (EXACT, float(DIGITS))
    assert read_as(Cat | Dog, f'{{"kind": "dog", "weight": {DIGITS}}}'.encode()).weight == float(DIGITS)
    assert read_as(Price, b"0.30") == Decimal("0.3")


@pytest.mark.parametrize("text", ["1e99999999999999999999", f"{DIGITS}x", f'{{"price": {DIGITS}'])
def test_what_no_decimal_is_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of pydantic
        read_as(Price, text.encode())


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN", "Infinity", "-Infinity", "1E+6145", "1E-6145"])
async def test_decimals_out_of_range_are_neither_read_nor_sent(text: str) -> None:
    server: Server[Any] = Server("prices")

    @server.tool
    def take(prices: list[Plain]) -> str:
        return str(prices)

    @server.tool
    def give() -> Decimal:
        return Decimal(text)

    async with Client(server) as client:
        taken = await client.call_tool("take", {"prices": [{"price": "1"}, {"price": text}]}, raise_on_error=False)
        assert taken.is_error
        assert f'prices[1].price: expected decimal string like "1.50", got string "{text}"' in taken.text
        assert (await client.call_tool("give", raise_on_error=False)).is_error


async def test_a_number_out_of_range_is_refused() -> None:
    server: Server[Any] = Server("prices")

    @server.tool
    def take(price: Decimal) -> str:
        return str(price)

    async with Client(server) as client:
        assert (await client.call_tool("take", {"price": msgspec.Raw(b"1e6144")})).text == "1E+6144"
        assert (await client.call_tool("take", {"price": msgspec.Raw(b"1e6145")}, raise_on_error=False)).is_error


def test_limits_hold_for_all_digits() -> None:
    with pytest.raises(pydantic.ValidationError, match="2 decimal places"):
        read_as(Price, b"1.00000000000000000001")
