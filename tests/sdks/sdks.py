"""One SDK through the gateway: `sdks.py SDK GATEWAY`. Fails when an answer is not what was said."""

import sys

sdk, gateway = sys.argv[1:]
SAID = 'I am Anna Berg, anna.berg@firm.com, SSN 123-45-6789, and that is "all".'
# The fake provider says what it was told when it is asked to.
ECHO = {"x-echo": "1", "x-chunks": "20"}
TOOL = {"type": "object", "properties": {"city": {"type": "string", "description": "for anna.berg@firm.com"}}}


def same(got, place):
    assert got == SAID, f"{place}: {got!r}"


def use_openai():
    import openai

    client = openai.OpenAI(base_url=f"{gateway}/openai/v1", api_key="k", default_headers=ECHO)
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
    try:
        client.chat.completions.create(model="m", messages=messages, extra_headers={"content-encoding": "nonsense"})
        raise AssertionError("a body that cannot be read went through")
    except openai.BadRequestError as error:
        assert error.code == "unsupported_content_encoding", error
    assert len(client.models.list().data) == 2


def use_anthropic():
    import anthropic

    client = anthropic.Anthropic(base_url=f"{gateway}/anthropic", api_key="k", default_headers=ECHO)
    ask = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": SAID}], "system": "for anna.berg@firm.com"}
    same(client.messages.create(**ask).content[0].text, "messages")
    with client.messages.stream(**ask) as stream:
        same("".join(stream.text_stream), "stream")
        same(stream.get_final_message().content[0].text, "stream, at the end")
    tools = [{"name": "weather", "input_schema": TOOL}]
    with client.messages.stream(**ask, tools=tools, extra_headers={"x-tool": "weather"}) as stream:
        assert stream.get_final_message().content[-1].input == {"city": "Paris", "days": 3}
    assert client.messages.count_tokens(model="m", messages=ask["messages"]).input_tokens > 0
    try:
        client.messages.create(**ask, extra_headers={"content-encoding": "nonsense"})
        raise AssertionError("a body that cannot be read went through")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error", error


def use_gemini():
    from google import genai

    client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=f"{gateway}/gemini"))
    same(client.models.generate_content(model="m", contents=SAID).text, "generateContent")
    stream = client.models.generate_content_stream(model="m", contents=SAID)
    same("".join(c.text or "" for c in stream), "streamGenerateContent")


def use_ollama():
    import ollama

    client = ollama.Client(host=f"{gateway}/ollama")
    messages = [{"role": "user", "content": SAID}]
    same(client.chat(model="m", messages=messages).message.content, "chat")
    same("".join(c.message.content for c in client.chat(model="m", messages=messages, stream=True)), "stream")


def use_bedrock():
    import boto3

    keys = {"aws_access_key_id": "other", "aws_secret_access_key": "other", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=gateway, **keys)
    ask = {"modelId": "arn:aws:bedrock:us-east-1:1:inference-profile/m", "messages": [{"role": "user", "content": [{"text": SAID}]}]}
    same(client.converse(**ask)["output"]["message"]["content"][0]["text"], "converse")
    events = client.converse_stream(**ask)["stream"]
    same("".join(e["contentBlockDelta"]["delta"]["text"] for e in events if "contentBlockDelta" in e), "converse-stream")


{"openai": use_openai, "anthropic": use_anthropic, "google.genai": use_gemini, "ollama": use_ollama, "boto3": use_bedrock}[sdk]()
print("fine")
