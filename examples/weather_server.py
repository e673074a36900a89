"""A minimal server with one tool. Run it with `gemel run examples/weather_server.py`, or run this file."""

from gemel import Server

server = Server("weather", version="1.0")


@server.tool
def forecast(city: str, days: int = 3) -> list[str]:
    """The weather of the coming days in a city."""
    return [f"{city}, day {day}: sunny" for day in range(1, days + 1)]


if __name__ == "__main__":
    server.run()
