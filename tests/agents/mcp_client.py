"""A real MCP client against `interflow mcp`, over standard input and output, then over HTTP: `mcp_client.py INTERFLOW HOME ADMIN TOKEN`."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

binary, home, admin, token = sys.argv[1:]


async def look(read, write, place):
    async with ClientSession(read, write) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "interflow", hello
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"search_flows", "read_flow", "list_conversations", "read_conversation"} <= names, names
        assert not any(word in name for name in names for word in ("delete", "replay", "prune", "add", "answer")), names
        flows = await session.call_tool("search_flows", {"query": "method:POST", "limit": 3})
        assert not flows.isError and flows.content[0].text, flows
        talks = await session.call_tool("list_conversations", {})
        assert "claude-x" in talks.content[0].text, talks.content[0].text[:400]
        assert "Bearer k" not in flows.content[0].text
        wrong = await session.call_tool("read_flow", {"id": "nothing"})
        assert wrong.isError
    print(f"passed   a client of the SDK {place}")


async def main():
    server = StdioServerParameters(command=binary, args=["--data-dir", home, "mcp"])
    async with stdio_client(server) as (read, write):
        await look(read, write, "over standard input and output")
    async with streamablehttp_client(f"http://{admin}/mcp", headers={"Authorization": f"Bearer {token}"}) as (read, write, _):
        await look(read, write, "over HTTP")


asyncio.run(main())
