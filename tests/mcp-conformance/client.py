"""Drives the gateway as a client of the suite's server: `client.py URL` starts an instance with that server, connects to it with the SDK of
Python in a version with sessions, and uses all that it lists. So what the suite's server sees is what the gateway itself does. In the scenarios
of authorization, it opens the links of the gateway as the user's browser would."""
import asyncio
import html
import http.cookiejar
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import mcp_types as types
from mcp import Client, MCPError

CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
URL_REQUIRED = -32042
VALUES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def argument(schema):
    kind = schema.get("type", "object")
    return VALUES.get(kind[0] if isinstance(kind, list) else kind)


async def elicited(_context, params):
    properties = params.requested_schema.get("properties", {})
    content = {name: schema.get("default", argument(schema)) for name, schema in properties.items()}
    return types.ElicitResult(action="accept", content=content)


def browse(link):
    """Opens a link for an account, and allows what is asked."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    try:
        page = browser.open(link).read().decode()
        token = html.unescape(re.search('name="token" value="([^"]*)"', page)[1])
        origin = "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(link))
        form = urllib.parse.urlencode({"token": token, "action": "connect"}).encode()
        page = browser.open(urllib.request.Request(link.split("?")[0], form, {"Origin": origin})).read().decode()
        # From here the authorization server sends it back to the gateway.
        page = browser.open(html.unescape(re.search('content="0;url=([^"]*)"', page)[1])).read().decode()
    except urllib.error.HTTPError as e:
        page = e.read().decode()
    print(re.sub("<[^>]+>", " ", page.split("<body>")[1]).strip(), file=sys.stderr)


async def use(url):
    calls = CONTEXT.get("toolCalls")
    async with Client(url, mode="legacy", elicitation_callback=elicited) as client:
        listed = (await client.list_tools()).tools
        for _ in range(3):
            if [tool.name for tool in listed] != ["connect_account"]:
                break
            await tried(lambda: client.call_tool("connect_account"))
            listed = (await client.list_tools()).tools
        for tool in [tool for tool in listed if tool.name != "connect_account"]:
            given = [call["arguments"] for call in calls or [] if call["name"] == tool.name]
            schema = {name: argument(schema) for name, schema in tool.input_schema.get("properties", {}).items()}
            for arguments in given or [schema]:
                await tried(lambda: client.call_tool(tool.name, arguments))
        for resource in (await tried(client.list_resources) or types.ListResourcesResult(resources=[])).resources:
            await tried(lambda: client.read_resource(resource.uri))
        for prompt in (await tried(client.list_prompts) or types.ListPromptsResult(prompts=[])).prompts:
            names = [argument.name for argument in prompt.arguments or []]
            await tried(lambda: client.get_prompt(prompt.name, {name: "text" for name in names}))


async def tried(request):
    for _ in range(4):
        try:
            return await request()
        except MCPError as e:
            print(f"refused: {e}", file=sys.stderr)
            links = (e.data or {}).get("elicitations", []) if e.code == URL_REQUIRED else []
            for link in links:
                await asyncio.to_thread(browse, link["url"])
            if not links:
                return None


def authorization_server(server):
    """The metadata of the authorization server, which the operator has to know for a grant without a user."""
    def document(url, kind):
        parts = urllib.parse.urlsplit(url)
        path = f"/.well-known/{kind}{parts.path.rstrip('/')}"
        return json.load(urllib.request.urlopen(urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))))
    [issuer] = document(server, "oauth-protected-resource")["authorization_servers"]
    return document(issuer, "oauth-authorization-server")


def main(server):
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "interflow.toml")
        with open(config, "w") as f:
            f.write(f'[mcp.server.suite]\nurl = "{server}"\nmedia = "pass"\nresults = "off"\narguments = "off"\n')
            if os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/"):
                own = {"client_id": "https://conformance-test.local/client-metadata.json", "grant": "authorization_code"}
                own.update({name: CONTEXT[name] for name in ["client_id", "client_secret", "issuer"] if name in CONTEXT})
                if "private_key_pem" in CONTEXT:
                    found = authorization_server(server)
                    own.update({"grant": "client_credentials", "private_key": CONTEXT["private_key_pem"]})
                    own.update({"token_url": found["token_endpoint"], "issuer": found["issuer"]})
                if "valid_jwt" in CONTEXT:
                    own.update({"grant": "jwt_bearer", "workload_token": CONTEXT["valid_jwt"]})
                    own.update({"token_url": authorization_server(server)["token_endpoint"]})
                f.write("oauth = { " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in own.items()) + " }\n")
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
