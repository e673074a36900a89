"""A server on standard input and output that goes wrong at one step, in the way that its first argument says.

Runs as `python -I -S server.py PLAN`: the standard library only, so that it starts at once and does what it is told to the
byte. The plan is JSON: `era`, `step`, `does` (a list of the words below), and `journal`, a file that gets a line per run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

META = "io.modelcontextprotocol/"
EMPTY = {"type": "object"}
CAPABILITIES = {"tools": {"listChanged": True}}
ME = {"name": "faulty", "version": "1"}
TOOLS = [
    {"name": "echo", "inputSchema": EMPTY},
    {"name": "ask", "inputSchema": EMPTY},
    {"name": "read", "inputSchema": EMPTY, "annotations": {"readOnlyHint": True}},
]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"message": "Who?", "requestedSchema": FORM}


def write(text: str | bytes) -> None:
    """Bytes to standard output, at once."""
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data) :]


def line(message: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


class Server:
    """One conversation. Each message that is answered is a step; the reply is one line."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.era: str = plan["era"]
        self.step: str = plan.get("step", "")
        self.does: list[str] = plan.get("does", [])
        self.journal: str = plan.get("journal", "")
        self.runs: list[str] = []
        #: The call in which a question is open.
        self.asking: Any = None

    def serve(self) -> None:
        for text in sys.stdin.buffer:
            for step, reply, message in self.take(json.loads(text)):
                if step == self.step:
                    self.step = ""
                    Mishap(reply, message, owed=message.get("id") if step != "answer" else self.asking).happen(
                        self.does
                    )
                elif reply:
                    write(reply + "\n")

    def take(self, message: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The step that a message is, and the line that answers it in good order."""
        method, params = message.get("method"), message.get("params", {})
        if method is None:
            if message.get("id") == "q":
                yield "answer", self.outcome(message), message
        elif method == "notifications/initialized":
            yield "initialized", "", message
        elif method == "subscriptions/listen":
            tag = {"_meta": {META + "subscriptionId": message["id"]}, "notifications": params["notifications"]}
            yield "listen", line({"method": "notifications/subscriptions/acknowledged", "params": tag}), message
        elif "id" in message:
            step, reply = self.answer(message, method, params)
            yield step, reply, message

    def answer(self, message: dict[str, Any], method: str, params: dict[str, Any]) -> tuple[str, str]:
        request = message["id"]
        known = {"server/discover": "2026", "initialize": "2025"}
        if method in known:
            if known[method] != self.era:
                error = {"code": -32601, "message": "Method not found"}
                return "", line({"id": request, "error": error})
            return method.removeprefix("server/"), self.result(request, self.hello(params))
        if method == "tools/list":
            return "list", self.result(request, {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"})
        if method == "tools/call":
            return self.call(request, params)
        return "", self.result(request, {})

    def call(self, request: Any, params: dict[str, Any]) -> tuple[str, str]:
        arguments = params.get("arguments", {})
        self.note(f"{params['name']} {json.dumps(arguments)}" + (" again" if "inputResponses" in params else ""))
        self.asking = request
        if params["name"] != "ask":
            step = "read" if params["name"] == "read" else "call" if not arguments.get("n") else "other"
            return step, self.result(request, {"content": [text(json.dumps(arguments))]})
        if self.era == "2025":
            return "question", line({"id": "q", "method": "elicitation/create", "params": QUESTION})
        if "inputResponses" in params:
            said = params["inputResponses"]["q"]["content"]["name"]
            return "answer", self.result(request, {"content": [text(said)]})
        asked = {"q": {"method": "elicitation/create", "params": {"mode": "form", **QUESTION}}}
        return "question", self.result(request, {"resultType": "input_required", "inputRequests": asked})

    def note(self, run: str) -> None:
        """A tool runs."""
        self.runs.append(run)
        if self.journal:
            with open(self.journal, "a", encoding="utf-8") as journal:
                journal.write(run + "\n")

    def outcome(self, message: dict[str, Any]) -> str:
        """The call's own answer, after the client's to our question."""
        if "error" in message:
            return line({"id": self.asking, "error": {"code": 8, "message": "no answer"}})
        return self.result(self.asking, {"content": [text(message["result"]["content"]["name"])]})

    def hello(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.era == "2026":
            versions = [params["_meta"][META + "protocolVersion"]]
            return {"supportedVersions": versions, "capabilities": CAPABILITIES, "ttlMs": 0, "cacheScope": "private"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": ME}

    def result(self, request: Any, result: dict[str, Any]) -> str:
        if self.era == "2026":
            result = {"resultType": "complete", "_meta": {META + "serverInfo": ME}, **result}
        return line({"id": request, "result": result})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class Mishap:
    """What happens instead of one reply. Each word of a plan is a method, `-` written as `_`."""

    def __init__(self, reply: str, message: dict[str, Any], owed: Any) -> None:
        self.reply = reply
        self.id = owed
        self.token = message.get("params", {}).get("_meta", {}).get("progressToken")

    def happen(self, words: list[str]) -> None:
        for word in words:
            getattr(self, word.replace("-", "_"))()

    # ---------------------------------------------------------------- writing

    def whole(self) -> None:
        write(self.reply + "\n")

    def half(self) -> None:
        write(self.reply[: len(self.reply) // 2])

    def unended(self) -> None:
        write(self.reply)

    def newline(self) -> None:
        write("\n")

    def changed(self, **members: Any) -> None:
        """The reply with other members; None takes one away."""
        message = {**json.loads(self.reply), **members}
        write(json.dumps({key: value for key, value in message.items() if value is not None}) + "\n")

    def other_id(self) -> None:
        self.changed(id=999)

    def id_as_text(self) -> None:
        self.changed(id=str(self.id))

    def id_as_float(self) -> None:
        write(self.reply.replace(f'"id": {self.id}', f'"id": {self.id}.5') + "\n")

    def null_result(self) -> None:
        self.bare("null")

    def list_result(self) -> None:
        self.bare("[1]")

    def bare(self, result: str) -> None:
        write(f'{{"jsonrpc": "2.0", "id": {json.dumps(self.id)}, "result": {result}}}\n')

    def no_result(self) -> None:
        self.changed(result=None, method=None, params=None)

    def both(self) -> None:
        self.changed(error={"code": 1, "message": "no"})

    def error(self) -> None:
        write(line({"id": self.id, "error": {"code": 7, "message": "no"}}) + "\n")

    def error_without_id(self) -> None:
        write(line({"id": None, "error": {"code": 7, "message": "no"}}) + "\n")

    def error_with_text_code(self) -> None:
        write(line({"id": self.id, "error": {"code": "seven", "message": "no"}}) + "\n")

    def unknown_type(self) -> None:
        self.bare('{"resultType": "surprise"}')

    def number_type(self) -> None:
        self.bare('{"resultType": 5}')

    def unreadable_questions(self) -> None:
        self.bare('{"resultType": "input_required", "inputRequests": 5}')

    def deep(self) -> None:
        self.bare('{"x": ' + "[" * 50_000 + "]" * 50_000 + "}")

    def huge(self) -> None:
        """Ten megabytes more than was wanted."""
        message = json.loads(self.reply)
        message.setdefault("result", {})["extra"] = "x" * 10_000_000
        write(json.dumps(message) + "\n")

    def noise(self) -> None:
        write("Listening on port 8080 …\n\n\x1b[32mready\x1b[0m\n")
        write('[INFO] ready\n{"level": "info", "msg": "ready", "id": 1}\n[12, 0]\n')

    def binary(self) -> None:
        write(bytes(range(11, 256)) + b"\n")

    def bad_utf8(self) -> None:
        write(self.reply.encode().replace(b'"2.0"', b'"2.0", "x": "\xff\xfe"') + b"\n")

    def bom(self) -> None:
        write(b"\xef\xbb\xbf" + self.reply.encode() + b"\n")

    def batch(self) -> None:
        write(f"[{self.reply}]\n")

    def many_notifications(self) -> None:
        params = {"level": "info", "data": "x" * 100}
        write((line({"method": "notifications/message", "params": params}) + "\n") * 5_000)

    def progress(self) -> None:
        params = {"progressToken": self.token, "progress": 1}
        write(line({"method": "notifications/progress", "params": params}) + "\n")

    def broken_notifications(self) -> None:
        """Nobody waits for what they say."""
        for members in ({"method": "notifications/message", "params": None}, {"method": 5}):
            write(line(members) + "\n")

    def request(self) -> None:
        """A question that nobody declared."""
        write(line({"id": "s", "method": "sampling/createMessage", "params": {}}) + "\n")

    # ---------------------------------------------------------------- ending

    def exit(self) -> None:
        print("I give up", file=sys.stderr, flush=True)
        os._exit(3)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def close_output(self) -> None:
        os.close(1)

    def close_input(self) -> None:
        os.close(0)
        time.sleep(100)

    def leave_a_child(self) -> None:
        """The process is gone, but somebody still holds its output."""
        subprocess.Popen(["sleep", "100"])
        os._exit(4)


if __name__ == "__main__":
    Server(json.loads(sys.argv[1])).serve()
