# A server that programs start; it is Hinge's own.
from hinge import Server

server = Server("sums")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.resource("place://{city}")
def place(city: str) -> str:
    return "59"


if __name__ == "__main__":
    server.run()
