"""The client of the MCP SDK for Python at the MCP gateway: `mcp_gateway.py GATEWAY SERVER...`; the servers ask it for things."""

import asyncio
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, PromptReference, Root, TextContent

gateway, *servers = sys.argv[1:]
MINE, THEIRS = "anna.berg@firm.com", "bob.stone@example.org"


def redacted(text):
    assert THEIRS not in text and "EMAIL" in text, text
    return text


async def elicit(context, params):
    redacted(params.message)
    if params.mode == "url":
        assert params.url == "https://login.example/start", params
        return ElicitResult(action="accept")
    return ElicitResult(action="accept", content={"mail": MINE})


async def sample(context, params):
    redacted(params.messages[0].content.text)
    return CreateMessageResult(role="assistant", model="mine", content=TextContent(type="text", text=f"Ask {MINE}."))


async def roots(context):
    return ListRootsResult(roots=[Root(uri="file:///srv/work")])


async def use(server):
    changed = asyncio.Event()
    seen = []
    logged = asyncio.Queue()

    async def told(message):
        if "tools/list_changed" in str(getattr(getattr(message, "root", None), "method", "")):
            changed.set()

    async def progress(done, total, message):
        seen.append((done, total, message))

    async with streamablehttp_client(f"{gateway}/mcp") as (read, write, _):
        callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots, "logging_callback": logged.put}
        async with ClientSession(read, write, message_handler=told, **callbacks) as session:
            hello = await session.initialize()
            assert hello.protocolVersion == "2025-11-25", hello
            names = {tool.name for tool in (await session.list_tools()).tools}
            assert f"{server}__ask" in names, names
            call = lambda tool, **more: session.call_tool(f"{server}__{tool}", {}, **more)
            text = lambda result: result.content[0].text
            # What this client sent is its own again.
            assert text(await call("ask")) == f"accept: {MINE}"
            if f"{server}__think" in names:
                assert text(await call("think")) == f"mine: Ask {MINE}."
                assert text(await call("where")).startswith("file:///srv/work")
                assert text(await call("steps", progress_callback=progress)) == "done"
                assert seen == [(1, 2, "step 1"), (2, 2, "step 2")], seen
                assert text(await call("login")) == "accept"
                assert hello.capabilities.completions is not None and hello.capabilities.logging is not None, hello
                prompt = PromptReference(type="ref/prompt", name=f"{server}__greet")
                values = (await session.complete(prompt, {"name": "name", "value": MINE})).completion.values
                assert values[0] == f"{MINE}!" and redacted(values[1]), values
                await session.set_logging_level("error")
                assert text(await call("log")) == "logged"
                message = await asyncio.wait_for(logged.get(), 20)
                assert (message.level, message.logger) == ("error", f"{server}/db") and redacted(message.data), message
            assert text(await call("change")) == "changed"
            await asyncio.wait_for(changed.wait(), 20)
    print(f"passed   the MCP client of Python's SDK, server {server}")


async def main():
    for server in servers:
        await asyncio.wait_for(use(server), 60)


asyncio.run(main())
