# A server that programs start; it is Gemel's own.
from gemel import Server

server = Server("sums")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.resource("place://{city}")
def place(city: str) -> str:
    return "59"


if __name__ == "__main__":
    server.run()
