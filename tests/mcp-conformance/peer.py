"""An MCP server of both eras with all that the conformance suite asks a server for, made with the SDK of Python."""
import asyncio
import json
import os
import socket

import uvicorn
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
import mcp_types as types

# `modern` or `legacy` leaves the other era out.
ERA = os.environ.get("PEER_ERA", "both")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
bus = InMemorySubscriptionBus()


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def form(message, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(question, tokens):
    message = {"role": "user", "content": {"type": "text", "text": question}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", name={"type": "string"})
CONFIRM = form("Please confirm", ok={"type": "boolean"})
ENUMS = dict(
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={"type": "string", "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "First"), (2, "Second"), (3, "Third"))]},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    titledMulti={"type": "array", "items": {"anyOf": [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in ((1, "First"), (2, "Second"), (3, "Third"))]}},
)
DEFAULTS = dict(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
# Tools that ask before they answer, with all that they ask in each round.
ASKING = {
    "test_input_required_result_elicitation": [{"user_name": NAME}],
    "test_input_required_result_sampling": [{"capital_question": sampling("What is the capital of France?", 100)}],
    "test_input_required_result_list_roots": [{"client_roots": ROOTS}],
    "test_input_required_result_request_state": [{"confirm": CONFIRM}],
    "test_input_required_result_tampered_state": [{"confirm": CONFIRM}],
    "test_input_required_result_multiple_inputs": [
        {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
    ],
    "test_input_required_result_multi_round": [
        {"step1": form("Step 1: What is your name?", name={"type": "string"})},
        {"step2": form("Step 2: What is your favorite color?", color={"type": "string"})},
    ],
    "test_streaming_elicitation": [{"user_name": NAME}],
}
STATELESS_ASKING = {"test_input_required_result_elicitation"}
TOOLS = [
    *ASKING,
    "test_input_required_result_capabilities",
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_error_handling",
    "test_tool_with_progress",
    "test_reconnection",
    "test_missing_capability",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_x_mcp_header",
]
SCHEMAS = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}},
    "test_x_mcp_header": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}


def asked(tool, params):
    """What a tool asks in this round, or nothing if all is answered."""
    rounds = ASKING[tool]
    answers = params.input_responses or {}
    done = int(json.loads(params.request_state)["round"]) if params.request_state else 0
    requests = rounds[done]
    if all(key in answers for key in requests):
        done += 1
        if done == len(rounds):
            return None
        requests = rounds[done]
    else:
        requests = {key: request for key, request in requests.items() if key not in answers}
    result = {"resultType": "input_required", "inputRequests": requests}
    if tool not in STATELESS_ASKING:
        result["requestState"] = json.dumps({"round": done, "tool": tool})
    return result


def capabilities(ctx):
    declared = ctx.session.client_capabilities
    return declared.model_dump(exclude_none=True, by_alias=True) if declared else {}


KINDS = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


def is_modern(ctx):
    return ctx.protocol_version == "2026-07-28"


async def ask_in_session(ctx, request):
    """Asks the client of a session during the call."""
    kind, result_type = KINDS[request["method"]]
    return dumped(await ctx.session.send_request(kind.model_validate(request, by_name=False), result_type))


def dumped(answer):
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


async def ask(ctx, params, request, member, finish):
    """What the client answers to the one request of a tool becomes its result."""
    if member not in capabilities(ctx):
        return text(f"the client has no {member}", isError=True)
    if not is_modern(ctx):
        return text(finish(await ask_in_session(ctx, request)))
    answer = (params.input_responses or {}).get("answer")
    return text(finish(dumped(answer))) if answer else {"resultType": "input_required", "inputRequests": {"answer": request}}


async def call(ctx, params):
    tool, arguments = params.name, params.arguments or {}
    if tool in ASKING and is_modern(ctx):
        return asked(tool, params) or text(f"state-ok {json.dumps({k: dumped(v) for k, v in (params.input_responses or {}).items()})}")
    if tool in ASKING:
        answers = [await asyncio.gather(*(ask_in_session(ctx, request) for request in each.values())) for each in ASKING[tool]]
        return text(f"state-ok {json.dumps(answers)}")
    match tool:
        case "test_input_required_result_capabilities":
            known = {"sampling": ("greeting", sampling("Hello", 50)), "elicitation": ("user_name", NAME), "roots": ("client_roots", ROOTS)}
            requests = dict(known[name] for name in capabilities(ctx) if name in known)
            if not is_modern(ctx):
                return text(json.dumps([await ask_in_session(ctx, request) for request in requests.values()]))
            if not requests or params.input_responses:
                return text("nothing to ask")
            return {"resultType": "input_required", "inputRequests": requests}
        case "test_simple_text":
            return text("This is a simple text response for testing.")
        case "test_image_content":
            return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
        case "test_audio_content":
            return {"content": [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]}
        case "test_embedded_resource":
            resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content."}
            return {"content": [{"type": "resource", "resource": resource}]}
        case "test_multiple_content_types":
            resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}
            return {"content": [
                {"type": "text", "text": "Multiple content types test:"},
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                {"type": "resource", "resource": resource},
            ]}
        case "test_tool_with_logging" | "test_logging_tool":
            for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
                await asyncio.sleep(0.05)
            return text("logged")
        case "test_error_handling":
            return text("This tool intentionally returns an error for testing", isError=True)
        case "test_tool_with_progress":
            for done in (0, 50, 100):
                await ctx.session.report_progress(done, 100)
                await asyncio.sleep(0.05)
            return text("done")
        case "test_reconnection":
            return text("reconnected")
        case "test_missing_capability":
            if "sampling" not in capabilities(ctx):
                raise MCPError(-32021, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
            return text("there is sampling")
        case "test_trigger_tool_change":
            await bus.publish(ToolsListChanged())
            return text("changed")
        case "test_trigger_prompt_change":
            await bus.publish(PromptsListChanged())
            return text("changed")
        case "test_sampling":
            finish = lambda answer: f"LLM response: {answer['content']['text']}"
            return await ask(ctx, params, sampling(arguments.get("prompt", ""), 100), "sampling", finish)
        case "test_elicitation":
            request = form(arguments.get("message", ""), username={"type": "string"}, email={"type": "string"})
            return await ask(ctx, params, request, "elicitation", lambda answer: f"User response: {json.dumps(answer)}")
        case "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums":
            request = form("Please answer", **(DEFAULTS if tool.endswith("defaults") else ENUMS))
            finish = lambda answer: f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"
            return await ask(ctx, params, request, "elicitation", finish)
        case "test_x_mcp_header":
            return text(json.dumps({"region": arguments.get("region"), "headers": {k: v for k, v in ctx.request.headers.items() if k.startswith("mcp-")}}))
    raise MCPError(types.INVALID_PARAMS, f"unknown tool {tool}")


async def list_tools(ctx, params):
    schema = {"type": "object", "properties": {}}
    return {"tools": [{"name": name, "description": f"The tool {name}", "inputSchema": SCHEMAS.get(name, schema)} for name in TOOLS]}


async def list_prompts(ctx, params):
    arguments = {"test_prompt_with_arguments": ["arg1", "arg2"], "test_prompt_with_embedded_resource": ["resourceUri"]}
    names = ["test_simple_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource", "test_prompt_with_image", "test_input_required_result_prompt"]
    listed = lambda name: [{"name": a, "description": a, "required": True} for a in arguments.get(name, [])]
    return {"prompts": [{"name": name, "description": f"The prompt {name}", "arguments": listed(name)} for name in names]}


async def get_prompt(ctx, params):
    arguments = params.arguments or {}
    message = lambda content: {"role": "user", "content": content}
    says = lambda value: message({"type": "text", "text": value})
    match params.name:
        case "test_simple_prompt":
            return {"messages": [says("This is a simple prompt for testing.")]}
        case "test_prompt_with_arguments":
            return {"messages": [says(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]}
        case "test_prompt_with_embedded_resource":
            resource = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content for testing."}
            return {"messages": [message({"type": "resource", "resource": resource}), says("Please process the embedded resource above.")]}
        case "test_prompt_with_image":
            return {"messages": [message({"type": "image", "data": PIXEL, "mimeType": "image/png"}), says("Please analyze the image above.")]}
        case "test_input_required_result_prompt":
            if "user_context" not in (params.input_responses or {}):
                question = form("What context should the prompt use?", context={"type": "string"})
                if not is_modern(ctx):
                    return {"messages": [says(json.dumps(await ask_in_session(ctx, question)))]}
                return {"resultType": "input_required", "inputRequests": {"user_context": question}}
            return {"messages": [says("with context")]}
    raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name}")


async def list_resources(ctx, params):
    listed = [("static-text", "text/plain"), ("static-binary", "image/png"), ("watched-resource", "text/plain")]
    return {"resources": [{"uri": f"test://{name}", "name": name, "description": name, "mimeType": kind} for name, kind in listed]}


async def list_templates(ctx, params):
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "a template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


async def read(ctx, params):
    uri = str(params.uri)
    if uri in ("test://static-text", "test://watched-resource"):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}]}
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        value = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(value)}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def complete(ctx, params):
    return {"completion": {"values": ["paris", "park", "party"], "total": 150, "hasMore": False}}


async def nothing(ctx, params):
    return types.EmptyResult()


def typed(handler, result_type):
    """A handler whose dictionaries become the types of the SDK, which add what a version needs."""
    async def run(ctx, params):
        result = await handler(ctx, params)
        if isinstance(result, dict):
            kind = types.InputRequiredResult if result.get("resultType") == "input_required" else result_type
            return kind.model_validate(result, by_name=False)
        return result
    return run


hints = {method: CacheHint(ttl_ms=60_000, scope="public") for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")}
server = Server(
    "peer",
    version="1",
    instructions="A server for tests.",
    cache_hints=hints,
    on_list_tools=typed(list_tools, types.ListToolsResult),
    on_call_tool=typed(call, types.CallToolResult),
    on_list_prompts=typed(list_prompts, types.ListPromptsResult),
    on_get_prompt=typed(get_prompt, types.GetPromptResult),
    on_list_resources=typed(list_resources, types.ListResourcesResult),
    on_list_resource_templates=typed(list_templates, types.ListResourceTemplatesResult),
    on_read_resource=typed(read, types.ReadResourceResult),
    on_completion=typed(complete, types.CompleteResult),
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_set_logging_level=nothing,
    on_subscriptions_listen=ListenHandler(bus),
    get_tool_input_schema=SCHEMAS.get,
)
server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="peer"))


async def app(scope, receive, send):
    """Refuses what the era that is left out would take."""
    headers = dict(scope.get("headers", []))
    is_modern = headers.get(b"mcp-protocol-version") == b"2026-07-28"
    if scope["type"] == "http" and (ERA, is_modern) in (("legacy", True), ("modern", False)):
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"unsupported protocol version"})
        return
    await inner(scope, receive, send)


inner = server.streamable_http_app()
if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print("listening on %s:%d" % listener.getsockname(), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
