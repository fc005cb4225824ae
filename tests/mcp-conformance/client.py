"""Drives the gateway as a client of the suite's server: `client.py URL` starts an instance with that server, connects to it with the SDK of
Python in a version with sessions, and uses all that it lists. So what the suite's server sees is what the gateway itself does."""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile

import mcp_types as types
from mcp import Client, MCPError

VALUES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def argument(schema):
    kind = schema.get("type", "object")
    return VALUES.get(kind[0] if isinstance(kind, list) else kind)


async def elicited(_context, params):
    properties = params.requested_schema.get("properties", {})
    content = {name: schema.get("default", argument(schema)) for name, schema in properties.items()}
    return types.ElicitResult(action="accept", content=content)


async def use(url):
    calls = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls")
    async with Client(url, mode="legacy", elicitation_callback=elicited) as client:
        listed = (await client.list_tools()).tools
        for tool in listed:
            given = [call["arguments"] for call in calls or [] if call["name"] == tool.name]
            schema = {name: argument(schema) for name, schema in tool.input_schema.get("properties", {}).items()}
            for arguments in given or [schema]:
                await tried(client.call_tool(tool.name, arguments))
        for resource in (await tried(client.list_resources()) or types.ListResourcesResult(resources=[])).resources:
            await tried(client.read_resource(resource.uri))
        for prompt in (await tried(client.list_prompts()) or types.ListPromptsResult(prompts=[])).prompts:
            names = [argument.name for argument in prompt.arguments or []]
            await tried(client.get_prompt(prompt.name, {name: "text" for name in names}))


async def tried(request):
    try:
        return await request
    except MCPError as e:
        print(f"refused: {e}", file=sys.stderr)


def main(server):
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "interflow.toml")
        with open(config, "w") as f:
            f.write(f'[mcp.server.suite]\nurl = "{server}"\nmedia = "pass"\nresults = "off"\narguments = "off"\n')
        any_port = "127.0.0.1:0"
        words = ["run", "--config", config, "--listen-proxy", any_port, "--listen-gateway", any_port, "--listen-admin", any_port]
        environment = {**os.environ, "INTERFLOW_DATA_DIR": os.path.join(folder, "home")}
        process = subprocess.Popen([os.environ["INTERFLOW"], *words], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:
                if found := re.search(r"^ *gateway *(http://[0-9.:]+)", line):
                    return asyncio.run(use(f"{found[1]}/mcp/suite"))
            sys.exit("the gateway did not start")
        finally:
            process.terminate()
            process.wait()


main(sys.argv[1])
