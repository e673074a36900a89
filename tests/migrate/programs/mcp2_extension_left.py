# only: rewrite
# notes: tools(): register them in `def attach(self, server)`
# notes: methods(): return gemel.Method objects from `def requests(self)`
# notes: claims(): name them in result_types, and write `async def resolve(self, ctx, result)`
# notes: notifications(): return gemel.ClientMethod(name=…, serve=…)
# notes: name_param was left out: write SentMethod(name=…, name_field=…)
from typing import Any, Literal

from mcp.client import Client, ClientExtension, NotificationBinding, ResultClaim
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp.server.mcpserver import MCPServer
from mcp.types import Request, RequestParams, Result

TOOLS: list[ToolBinding] = []


class JobParams(RequestParams):
    job_id: str


class JobRequest(Request[JobParams, Literal["com.example/job"]]):
    method: Literal["com.example/job"] = "com.example/job"
    params: JobParams
    name_param = "jobId"


async def job(ctx: Any, params: JobParams) -> Result:
    return Result()


class Jobs(Extension):
    identifier = "com.example/jobs"

    def tools(self) -> list[ToolBinding]:
        return TOOLS

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("com.example/job", JobParams, job, protocol_versions=frozenset({"2025-11-25"}))]


class JobsClient(ClientExtension):
    identifier = "com.example/jobs"

    def claims(self) -> list[ResultClaim[Any]]:
        return list(self.known)

    def notifications(self) -> list[NotificationBinding[Any]]:
        return [NotificationBinding(method="a/b", params_type=JobParams, handler=print)]


mcp = MCPServer("jobs", extensions=[Jobs()])
client = Client(mcp, extensions=[JobsClient()])
