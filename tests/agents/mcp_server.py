"""An MCP server of the SDK that asks its client for things: `mcp_server.py stdio`, or `mcp_server.py http` on a free port."""

import socket
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import Completion, SamplingMessage, TextContent
from pydantic import BaseModel

MAIL = "bob.stone@example.org"


class Address(BaseModel):
    mail: str


server = FastMCP("asks")


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit(f"Forward to {MAIL}?", schema=Address)
    return f"{answer.action}: {answer.data.mail if answer.action == 'accept' else 'nothing'}"


@server.tool()
async def think(ctx: Context) -> str:
    said = SamplingMessage(role="user", content=TextContent(type="text", text=f"Who is {MAIL}?"))
    answer = await ctx.session.create_message(messages=[said], max_tokens=9)
    return f"{answer.model}: {answer.content.text}"


@server.tool()
async def where(ctx: Context) -> str:
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def steps(ctx: Context) -> str:
    for step in (1, 2):
        await ctx.report_progress(step, 2, f"step {step}")
    return "done"


@server.tool()
async def change(ctx: Context) -> str:
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool()
async def log(ctx: Context) -> str:
    for level in ("info", "error"):
        await ctx.session.send_log_message(level, f"asked {MAIL}", logger="db", related_request_id=ctx.request_id)
    return "logged"


@server.tool()
async def login(ctx: Context) -> str:
    answer = await ctx.elicit_url(f"Log in as {MAIL}", "https://login.example/start", "login-1")
    return answer.action


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}"


@server.completion()
async def complete(ref, argument, context):
    return Completion(values=[f"{argument.value}!", MAIL])


@server._mcp_server.set_logging_level()
async def set_level(level) -> None:
    pass


if sys.argv[1] == "http":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server.settings.port = free.getsockname()[1]
    print(f"listening on 127.0.0.1:{server.settings.port}", flush=True)
    server.run("streamable-http")
else:
    server.run("stdio")
