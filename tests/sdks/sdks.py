"""One SDK: `sdks.py SDK GATEWAY`, or `sdks.py SDK -` without configuration, behind the proxy.

Fails when an answer is not what was said.
"""

import json
import os
import sys

sdk, gateway = sys.argv[1:]
configured = gateway != "-"
SAID = 'I am Anna Berg, anna.berg@firm.com, SSN 123-45-6789, and that is "all".'
# The fake provider repeats what it received when asked to.
ECHO = {"x-echo": "1", "x-chunks": "20"}
TOOL = {"type": "object", "properties": {"city": {"type": "string", "description": "for anna.berg@firm.com"}}}


def at(path, otherwise=None):
    return gateway + path if configured else otherwise


def same(got, place):
    assert got == SAID, f"{place}: {got!r}"


def use_openai():
    import openai

    websocket = at("/openai/v1", "").replace("http:", "ws:") or None
    client = openai.OpenAI(base_url=at("/openai/v1"), websocket_base_url=websocket, api_key="k", default_headers=ECHO)
    messages = [{"role": "user", "content": SAID}]
    same(client.chat.completions.create(model="m", messages=messages).choices[0].message.content, "chat")
    stream = client.chat.completions.create(model="m", messages=messages, stream=True)
    same("".join(c.choices[0].delta.content or "" for c in stream if c.choices), "stream")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}]
    called = client.chat.completions.create(model="m", messages=messages, tools=tools, extra_headers={"x-tool": "weather"})
    assert "Paris" in called.choices[0].message.tool_calls[0].function.arguments
    same(client.responses.create(model="m", input=SAID).output_text, "responses")
    with client.responses.stream(model="m", input=SAID) as events:
        deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        same(deltas, "responses, deltas")
        same(events.get_final_response().output_text, "responses, at the end")
    assert len(client.models.list().data) == 2
    realtime(client)
    if not configured:
        return
    translated_openai(openai)
    try:
        client.chat.completions.create(model="m", messages=messages, extra_headers={"content-encoding": "nonsense"})
        raise AssertionError("a body that cannot be read went through")
    except openai.BadRequestError as error:
        assert error.code == "unsupported_content_encoding", error


def realtime(client):
    """The SDK's WebSocket; it takes no proxy, so that it goes through the gateway only."""
    if not configured:
        return
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SAID}]}
    with client.realtime.connect(model="m", extra_headers=ECHO) as connection:
        connection.conversation.item.create(item=item)
        connection.response.create()
        said = ""
        for event in connection:
            if event.type == "response.output_text.delta":
                said += event.delta
            if event.type == "response.done":
                break
    same(said, "realtime")


def use_anthropic():
    import anthropic

    client = anthropic.Anthropic(base_url=at("/anthropic"), api_key="k", default_headers=ECHO)
    ask = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": SAID}], "system": "for anna.berg@firm.com"}
    same(client.messages.create(**ask).content[0].text, "messages")
    with client.messages.stream(**ask) as stream:
        same("".join(stream.text_stream), "stream")
        same(stream.get_final_message().content[0].text, "stream, at the end")
    tools = [{"name": "weather", "input_schema": TOOL}]
    with client.messages.stream(**ask, tools=tools, extra_headers={"x-tool": "weather"}) as stream:
        assert stream.get_final_message().content[-1].input == {"city": "Paris", "days": 3}
    assert client.messages.count_tokens(model="m", messages=ask["messages"]).input_tokens > 0
    if not configured:
        return
    translated_anthropic(anthropic)
    try:
        client.messages.create(**ask, extra_headers={"content-encoding": "nonsense"})
        raise AssertionError("a body that cannot be read went through")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error", error


def raises(kind, status, call, place):
    """The exception that the SDK's users catch."""
    try:
        call()
    except kind as error:
        assert error.status_code == status, f"{place}: {error.status_code}"
        assert error.body, f"{place}: {error!r}"
        return
    raise AssertionError(f"{place}: no {kind.__name__}")


# An answer in JSON, which the fake provider repeats.
PLACE = '{"city": "Paris", "days": 3}'
THOUGHT = "The user wants a short answer."
PNG = "iVBORw0KGgo="


def said(message):
    """A message of the assistant for the history, without what only replies have."""
    return message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)


def place_model():
    from pydantic import BaseModel, ConfigDict

    class Place(BaseModel):
        model_config = ConfigDict(extra="forbid")
        city: str
        days: int

    return Place


def translated_openai(openai):
    """OpenAI's SDK with upstreams of other formats."""
    messages = [{"role": "user", "content": SAID}]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}]
    for upstream in ["claude", "gem", "vgem", "converse", "command", "llama", "vclaude", "gpt", "reasoner", "mistral"]:
        translated_openai_more(openai, upstream, tools)
        client = openai.OpenAI(base_url=at(f"/{upstream}/v1"), api_key="k", max_retries=0)
        answer = client.chat.completions.create(model="m", messages=messages, tools=tools)
        same(answer.choices[0].message.content, f"{upstream}, chat")
        call = answer.choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"city": "Paris", "days": 3}
        history = [*messages, said(answer.choices[0].message), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        client.chat.completions.create(model="m", messages=history, tools=tools)
        options = {"include_usage": True}
        with client.chat.completions.stream(model="m", messages=messages, tools=tools, stream_options=options) as stream:
            final = stream.get_final_completion()
        same(final.choices[0].message.content, f"{upstream}, chat, stream")
        assert final.choices[0].message.tool_calls[0].function.name == "weather" and final.usage.completion_tokens > 0
        same(client.responses.create(model="m", input=SAID).output_text, f"{upstream}, responses")
        with client.responses.stream(model="m", input=SAID) as events:
            for _ in events:
                pass
            response = events.get_final_response()
        same(response.output_text, f"{upstream}, responses, stream")
        assert response.output[-1].type == "function_call" and response.usage.output_tokens > 0


def translated_openai_more(openai, upstream, tools):
    """Parallel calls, images, thoughts, answers in JSON and errors."""
    at_variant = lambda variant: openai.OpenAI(base_url=at(f"/{upstream}-{variant}/v1"), api_key="k", max_retries=0)
    ask = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    parallel = at_variant("parallel")
    message = parallel.chat.completions.create(**ask, tools=tools).choices[0].message
    calls = message.tool_calls
    assert len(calls) == 2 and len({call.id for call in calls}) == 2, f"{upstream}, parallel: {calls}"
    assert all(json.loads(call.function.arguments) == {"city": "Paris", "days": 3} for call in calls)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in calls]
    parallel.chat.completions.create(model="m", messages=[*ask["messages"], said(message), *results, *ask["messages"]], tools=tools)
    with parallel.chat.completions.stream(**ask, tools=tools) as stream:
        assert len(stream.get_final_completion().choices[0].message.tool_calls) == 2, f"{upstream}, parallel, stream"
    answer = parallel.responses.create(model="m", input=SAID)
    assert [item.type for item in answer.output].count("function_call") == 2, f"{upstream}, parallel, responses"

    plain = at_variant("plain")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    parts = [{"type": "text", "text": SAID}, image]
    shown = plain.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
    same(shown.choices[0].message.content, f"{upstream}, image")
    Place = place_model()
    json_ask = {"model": "m", "messages": [{"role": "user", "content": PLACE}]}
    parsed = plain.chat.completions.parse(**json_ask, response_format=Place).choices[0].message.parsed
    assert parsed == Place(city="Paris", days=3), f"{upstream}, parse: {parsed}"
    parsed = plain.responses.parse(model="m", input=PLACE, text_format=Place).output_parsed
    assert parsed == Place(city="Paris", days=3), f"{upstream}, responses, parse: {parsed}"

    thinking = at_variant("thinking")
    if upstream not in ["gpt", "reasoner"]:
        message = thinking.chat.completions.create(**ask, reasoning_effort="low", max_completion_tokens=8000).choices[0].message
        assert message.model_extra["reasoning_content"] == THOUGHT, f"{upstream}, thinking: {message}"
        answer = thinking.responses.create(model="m", input=SAID, reasoning={"effort": "low"}, max_output_tokens=8000)
        summaries = [item.summary[0].text for item in answer.output if item.type == "reasoning"]
        assert summaries == [THOUGHT], f"{upstream}, thinking, responses: {summaries}"

    for variant, kind, status in [
        ("limited", openai.RateLimitError, 429),
        ("overloaded", openai.InternalServerError, 503),
        ("broken", openai.InternalServerError, 500),
    ]:
        client = at_variant(variant)
        # What is not translated has the upstream's own status.
        own = status != 503 or upstream not in ["gpt", "mistral"]
        raises(kind, status if own else 529, lambda: client.chat.completions.create(**ask), f"{upstream}, {variant}")
        own = status != 503 or upstream != "reasoner"
        raises(kind, status if own else 529, lambda: client.responses.create(model="m", input=SAID), f"{upstream}, {variant}")


def translated_anthropic(anthropic):
    """Anthropic's SDK with upstreams of other formats."""
    ask = {"model": "m", "max_tokens": 4000, "messages": [{"role": "user", "content": SAID}]}
    tools = [{"name": "weather", "input_schema": TOOL}]
    for upstream in ["gpt", "reasoner", "gem", "vgem", "converse", "command", "llama", "vclaude", "mistral"]:
        translated_anthropic_more(anthropic, upstream, ask, tools)
        client = anthropic.Anthropic(base_url=at(f"/{upstream}"), api_key="k", max_retries=0)
        text = lambda message: "".join(b.text for b in message.content if b.type == "text")
        answer = client.messages.create(**ask, tools=tools)
        same(text(answer), f"{upstream}, messages")
        call = answer.content[-1]
        assert answer.stop_reason == "tool_use" and call.input == {"city": "Paris", "days": 3}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        turns = [*ask["messages"], {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        client.messages.create(**{**ask, "messages": turns}, tools=tools)
        with client.messages.stream(**ask, tools=tools) as stream:
            final = stream.get_final_message()
        same(text(final), f"{upstream}, stream")
        assert final.content[-1].input == {"city": "Paris", "days": 3}
        assert final.usage.output_tokens > 0, upstream
        assert client.messages.count_tokens(model="m", messages=turns, tools=tools).input_tokens > 0, upstream


def translated_anthropic_more(anthropic, upstream, ask, tools):
    """Parallel calls, images, thoughts, answers in JSON and errors."""
    at_variant = lambda variant: anthropic.Anthropic(base_url=at(f"/{upstream}-{variant}"), api_key="k", max_retries=0)
    parallel = at_variant("parallel")
    answer = parallel.messages.create(**ask, tools=tools)
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert len(calls) == 2 and len({call.id for call in calls}) == 2, f"{upstream}, parallel: {answer}"
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls]
    user = {"role": "user", "content": [*results, {"type": "text", "text": "And then?"}]}
    turns = [*ask["messages"], {"role": "assistant", "content": answer.content}, user]
    parallel.messages.create(**{**ask, "messages": turns}, tools=tools)
    with parallel.messages.stream(**ask, tools=tools) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content].count("tool_use") == 2, f"{upstream}, parallel, stream: {final}"

    plain = at_variant("plain")
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    parts = [{"type": "text", "text": SAID}, {"type": "image", "source": source}]
    shown = plain.messages.create(**{**ask, "messages": [{"role": "user", "content": parts}]})
    same(shown.content[0].text, f"{upstream}, image")
    Place = place_model()
    # Claude on Vertex gets what the client sent, and this SDK sends a member of a beta.
    if upstream != "vclaude":
        json_ask = {**ask, "messages": [{"role": "user", "content": PLACE}]}
        parsed = plain.beta.messages.parse(**json_ask, output_format=Place).parsed_output
        assert parsed == Place(city="Paris", days=3), f"{upstream}, parse: {parsed}"

    thinking = {"type": "enabled", "budget_tokens": 2048}
    answer = at_variant("thinking").messages.create(**ask, thinking=thinking)
    assert answer.content[0].thinking == THOUGHT, f"{upstream}, thinking: {answer}"
    for variant, kind, status in [
        ("limited", anthropic.RateLimitError, 429),
        ("overloaded", anthropic.APIStatusError, 529),
        ("broken", anthropic.InternalServerError, 500),
    ]:
        client = at_variant(variant)
        raises(kind, status, lambda: client.messages.create(**ask), f"{upstream}, {variant}")


def use_gemini():
    from google import genai

    types = genai.types
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=at("/gemini")))
    same(client.models.generate_content(model="m", contents=SAID).text, "generateContent")
    stream = client.models.generate_content_stream(model="m", contents=SAID)
    same("".join(c.text or "" for c in stream), "streamGenerateContent")
    weather = types.FunctionDeclaration(name="weather", description="for anna.berg@firm.com", parameters_json_schema=TOOL)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[weather])])
    called = client.models.generate_content(model="m", contents=SAID, config=config)
    same(called.function_calls[0].args["said"], "a tool's argument")
    if configured:
        translated_gemini(genai)
        translated_interactions(genai)


UPSTREAMS = ["claude", "gpt", "reasoner", "gem", "vgem", "converse", "command", "llama", "vclaude", "mistral"]


def fails(call, code, place):
    """The exception of Google's and Amazon's SDKs, which have one for all statuses."""
    try:
        call()
    except Exception as error:
        status = getattr(error, "code", None) or getattr(error, "status_code", None) or error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert status == code, f"{place}: {error!r}"
        return
    raise AssertionError(f"{place}: no error")


def translated_gemini(genai):
    """Google's SDK with upstreams of other formats."""
    types = genai.types
    weather = types.FunctionDeclaration(name="weather", parameters=types.Schema(type="OBJECT", properties={"city": types.Schema(type="STRING", nullable=True)}))
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[weather])], max_output_tokens=4000, system_instruction="Be brief.")
    for upstream in UPSTREAMS:
        # A client closes its connections when nothing refers to it.
        variants = ["", "-parallel", "-plain", "-thinking", "-limited", "-overloaded", "-broken"]
        options = lambda variant: types.HttpOptions(base_url=at(f"/{upstream}{variant}"))
        clients = {variant: genai.Client(api_key="k", http_options=options(variant)) for variant in variants}
        at_variant = clients.get
        client = at_variant("")
        answer = client.models.generate_content(model="m", contents=SAID, config=config)
        same("".join(part.text or "" for part in answer.candidates[0].content.parts if not part.thought), f"{upstream}, generateContent")
        call = answer.function_calls[0]
        assert call.args == {"city": "Paris", "days": 3} and answer.usage_metadata.total_token_count > 0, f"{upstream}: {answer}"
        result = types.Part.from_function_response(name="weather", response={"output": "rain"})
        turns = [types.UserContent(SAID), answer.candidates[0].content, types.Content(role="user", parts=[result])]
        client.models.generate_content(model="m", contents=turns, config=config)
        chunks = list(client.models.generate_content_stream(model="m", contents=SAID, config=config))
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        same("".join(part.text or "" for part in parts if not part.thought), f"{upstream}, stream")
        calls = [part.function_call for part in parts if part.function_call]
        assert len(calls) == 1 and calls[0].args == {"city": "Paris", "days": 3}, f"{upstream}, stream: {calls}"
        assert chunks[-1].candidates[0].finish_reason == "STOP", f"{upstream}: {chunks[-1]}"
        assert client.models.count_tokens(model="m", contents=SAID).total_tokens > 0, upstream

        calls = at_variant("-parallel").models.generate_content(model="m", contents=SAID, config=config).function_calls
        assert len(calls) == 2 and len({call.id for call in calls} - {None}) in (0, 2), f"{upstream}, parallel: {calls}"
        plain = at_variant("-plain")
        image = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
        same(plain.models.generate_content(model="m", contents=[SAID, image]).text, f"{upstream}, image")
        Place = place_model()
        asked = types.GenerateContentConfig(response_mime_type="application/json", response_schema={"type": "OBJECT", "properties": {"city": {"type": "STRING"}, "days": {"type": "INTEGER"}}, "required": ["city", "days"]})
        parsed = plain.models.generate_content(model="m", contents=PLACE, config=asked)
        assert Place.model_validate_json(parsed.text) == Place(city="Paris", days=3), f"{upstream}, JSON: {parsed.text}"
        chat = at_variant("-thinking").chats.create(model="m", config=types.GenerateContentConfig(max_output_tokens=8000, thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=2048)))
        thought = [part.text for part in chat.send_message(SAID).candidates[0].content.parts if part.thought and part.text]
        assert upstream in ["gpt", "reasoner"] or thought == [THOUGHT], f"{upstream}, thinking: {thought}"
        # The history has the thought and its signature.
        list(chat.send_message_stream(SAID))
        chat.send_message(SAID)
        for variant, status in [("limited", 429), ("overloaded", 503), ("broken", 500)]:
            status = 529 if status == 503 and upstream == "gem" else status
            fails(lambda: at_variant(f"-{variant}").models.generate_content(model="m", contents=SAID), status, f"{upstream}, {variant}")


def translated_interactions(genai):
    types = genai.types
    tools = [{"type": "function", "name": "weather", "parameters": TOOL}]
    for upstream in UPSTREAMS:
        options = types.HttpOptions(base_url=at(f"/{upstream}"), retry_options=types.HttpRetryOptions(attempts=1))
        client = genai.Client(api_key="k", http_options=options)
        text = lambda steps: "".join(part.text for step in steps if step.type == "model_output" for part in step.content)
        answer = client.interactions.create(model="m", input=SAID, tools=tools, system_instruction="Be brief.")
        same(text(answer.steps), f"{upstream}, interactions")
        call = answer.steps[-1]
        assert answer.status == "requires_action" and call.arguments == {"city": "Paris", "days": 3}, f"{upstream}: {answer}"
        result = {"type": "function_result", "call_id": call.id, "name": "weather", "result": "rain"}
        steps = [step.model_dump(exclude_none=True) for step in answer.steps]
        client.interactions.create(model="m", input=[{"type": "user_input", "content": [{"type": "text", "text": SAID}]}, *steps, result], tools=tools)
        events = list(client.interactions.create(model="m", input=SAID, tools=tools, stream=True))
        deltas = [event.delta for event in events if event.event_type == "step.delta"]
        same("".join(delta.text for delta in deltas if delta.type == "text"), f"{upstream}, interactions, stream")
        arguments = "".join(delta.arguments for delta in deltas if delta.type == "arguments_delta")
        assert json.loads(arguments) == {"city": "Paris", "days": 3}, f"{upstream}, interactions, stream: {arguments}"
        last = [event for event in events if event.event_type == "interaction.completed"][-1].interaction
        assert last.status == "requires_action" and last.usage.total_tokens > 0, f"{upstream}: {last}"
        limited = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=at(f"/{upstream}-limited"), retry_options=types.HttpRetryOptions(attempts=1)))
        fails(lambda: limited.interactions.create(model="m", input=SAID), 429, f"{upstream}, interactions, limited")


def use_ollama():
    import ollama

    client = ollama.Client(host=at("/ollama", "http://ollama.test:11434"))
    messages = [{"role": "user", "content": SAID}]
    same(client.chat(model="m", messages=messages).message.content, "chat")
    same("".join(c.message.content for c in client.chat(model="m", messages=messages, stream=True)), "stream")
    tools = [{"type": "function", "function": {"name": "weather", "description": "a", "parameters": TOOL}}]
    called = client.chat(model="m", messages=messages, tools=tools)
    same(called.message.tool_calls[0].function.arguments["said"], "a tool's argument")


def use_bedrock():
    import boto3

    keys = {"aws_access_key_id": "other", "aws_secret_access_key": "other", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=at(""), **keys)
    ask = {"modelId": "arn:aws:bedrock:us-east-1:1:inference-profile/m", "messages": [{"role": "user", "content": [{"text": SAID}]}]}
    same(client.converse(**ask)["output"]["message"]["content"][0]["text"], "converse")
    events = client.converse_stream(**ask)["stream"]
    same("".join(e["contentBlockDelta"]["delta"]["text"] for e in events if "contentBlockDelta" in e), "converse-stream")
    tools = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": TOOL}}}]}
    content = client.converse(**ask, toolConfig=tools)["output"]["message"]["content"]
    same(content[0]["toolUse"]["input"]["said"], "a tool's argument")
    if configured:
        translated_bedrock(boto3, tools)


def translated_bedrock(boto3, tools):
    """Amazon's SDK with upstreams of other formats."""
    from botocore import UNSIGNED
    from botocore.config import Config

    def at_variant(variant):
        config = Config(retries={"max_attempts": 1}, signature_version=UNSIGNED)
        client = boto3.client("bedrock-runtime", endpoint_url=at(f"/{upstream}{variant}"), config=config, region_name="us-east-1")
        # As it sends AWS_BEARER_TOKEN_BEDROCK, but by HTTPS only.
        client.meta.events.register("before-send.bedrock-runtime", lambda request, **_: request.headers.update(Authorization="Bearer k"))
        return client

    message = {"role": "user", "content": [{"text": SAID}]}
    ask = {"modelId": "m", "messages": [message], "system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 4000}}
    text = lambda content: "".join(block.get("text", "") for block in content)
    for upstream in [name for name in UPSTREAMS if name != "converse"]:
        client = at_variant("")
        answer = client.converse(**ask, toolConfig=tools)
        content = answer["output"]["message"]["content"]
        same(text(content), f"{upstream}, converse")
        call = content[-1]["toolUse"]
        assert answer["stopReason"] == "tool_use" and call["input"] == {"city": "Paris", "days": 3}, f"{upstream}: {answer}"
        assert answer["usage"]["totalTokens"] > 0, f"{upstream}: {answer}"
        result = {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "rain"}]}}
        turns = [message, answer["output"]["message"], {"role": "user", "content": [result]}]
        client.converse(**{**ask, "messages": turns}, toolConfig=tools)
        events = list(client.converse_stream(**ask, toolConfig=tools)["stream"])
        deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
        same(text(deltas), f"{upstream}, converse-stream")
        arguments = "".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta)
        assert json.loads(arguments) == {"city": "Paris", "days": 3}, f"{upstream}, converse-stream: {arguments}"
        assert events[-2]["messageStop"]["stopReason"] == "tool_use" and events[-1]["metadata"]["usage"]["totalTokens"] > 0, events[-2:]
        counted = client.count_tokens(modelId="m", input={"converse": {"messages": [message]}})
        assert counted["inputTokens"] > 0, f"{upstream}: {counted}"
        image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}}
        shown = at_variant("-plain").converse(**{**ask, "messages": [{"role": "user", "content": [{"text": SAID}, image]}]})
        same(text(shown["output"]["message"]["content"]), f"{upstream}, image")
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
        answer = at_variant("-thinking").converse(**ask, additionalModelRequestFields=thinking)
        thought = answer["output"]["message"]["content"][0].get("reasoningContent", {}).get("reasoningText", {})
        assert upstream in ["gpt"] or thought["text"] == THOUGHT, f"{upstream}, thinking: {answer}"
        turns = [message, answer["output"]["message"], message]
        at_variant("-thinking").converse(**{**ask, "messages": turns}, additionalModelRequestFields=thinking)
        for variant, status in [("limited", 429), ("overloaded", 503), ("broken", 500)]:
            fails(lambda: at_variant(f"-{variant}").converse(**ask), status, f"{upstream}, {variant}")


def use_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    tools = [{"type": "function", "function": {"name": "weather", "description": "for anna.berg@firm.com", "parameters": TOOL}}]
    ask = {"messages": [{"role": "user", "content": SAID}], "api_key": "k", "extra_headers": ECHO}
    for model, base in [("openai/m", at("/openai/v1")), ("anthropic/m", at("/anthropic"))]:
        own = {"model": model, "api_base": base, "max_tokens": 99, **ask}
        same(litellm.completion(**own).choices[0].message.content, model)
        stream = litellm.completion(**own, stream=True)
        same("".join(c.choices[0].delta.content or "" for c in stream), f"{model}, stream")
        called = litellm.completion(**{**own, "extra_headers": {**ECHO, "x-tool": "weather"}}, tools=tools)
        arguments = called.choices[0].message.tool_calls[0].function.arguments
        assert json.loads(arguments)["city"] == "Paris", arguments


def use_langchain():
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str, days: int) -> str:
        """The weather, for anna.berg@firm.com."""
        return f"{city} {days}"

    def models(headers):
        yield ChatOpenAI(model="m", api_key="k", base_url=at("/openai/v1"), default_headers=headers)
        base = {"base_url": gateway + "/anthropic"} if configured else {}
        yield ChatAnthropic(model="m", api_key="k", default_headers=headers, **base)

    for chat in models(ECHO):
        same(chat.invoke(SAID).text, type(chat).__name__)
        same("".join(piece.text for piece in chat.stream(SAID)), f"{type(chat).__name__}, stream")
    for chat in models({**ECHO, "x-tool": "weather"}):
        call = chat.bind_tools([weather]).invoke(SAID).tool_calls[0]
        assert call["args"] == {"city": "Paris", "days": 3}, call


USES = {
    "openai": use_openai,
    "anthropic": use_anthropic,
    "google.genai": use_gemini,
    "boto3": use_bedrock,
    "ollama": use_ollama,
    "litellm": use_litellm,
    "langchain_openai": use_langchain,
}
USES[sdk]()
print("fine")
