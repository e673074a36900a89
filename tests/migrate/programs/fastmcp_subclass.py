# lists: greet
# call: greet {"name": "Ann"} = Hello, Ann
# read: sub://one = 1
# becomes: class Greeter(Server):
# becomes: self.tool(self.greet)
from fastmcp import FastMCP


class Greeter(FastMCP):
    def __init__(self, word: str) -> None:
        super().__init__(
            "greeter",
            instructions="Greets.",
            mask_error_details=True,
        )
        self.word = word
        self.add_tool(self.greet)

        @self.resource("sub://one")
        def one() -> str:
            return "1"

    def greet(self, name: str) -> str:
        """Greet somebody."""
        return f"{self.word}, {name}"


mcp = Greeter("Hello")
