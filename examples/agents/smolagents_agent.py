from smolagents import CodeAgent, InferenceClientModel, Model

from gemel.adapters import smolagents
from gemel.sync import Client


def main(model: Model | None = None) -> None:
    with Client("weather_server.py") as client:
        agent = CodeAgent(tools=smolagents.tools(client), model=model or InferenceClientModel())
        print(agent.run("What will the weather be in Oslo?"))


if __name__ == "__main__":
    main()
