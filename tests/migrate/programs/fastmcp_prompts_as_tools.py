# lists: get_prompt list_prompts
# call: list_prompts {} = "[\n  {\n    \"name\": \"explain\",\n    \"description\": \"Explain a word.\",\n    \"arguments\": [\n      {\n        \"name\": \"word\",\n        \"description\": null,\n        \"required\": true\n      },\n      {\n        \"name\": \"lines\",\n        \"description\": null,\n        \"required\": false\n      }\n    ]\n  }\n]"
# call: get_prompt {"name": "explain", "arguments": {"word": "tide"}} = "{\n  \"messages\": [\n    {\n      \"role\": \"user\",\n      \"content\": \"Explain tide in 3 lines.\"\n    }\n  ]\n}"
# becomes: mcp.include(prompt_tools(structured_text=True))
# differs: description differs
from fastmcp import FastMCP
from fastmcp.server.transforms import PromptsAsTools

mcp = FastMCP("words")


@mcp.prompt
def explain(word: str, lines: str = "3") -> str:
    """Explain a word."""
    return f"Explain {word} in {lines} lines."


mcp.add_transform(PromptsAsTools(mcp))
