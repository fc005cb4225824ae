"""Agents' talks with one SDK through the gateway: `talk.py SDK GATEWAY`. Tools in parallel, thoughts, streams, a stream that is cut
off, errors, a sub-agent, a history that is made shorter."""

import concurrent.futures
import json
import sys

sdk, gateway = sys.argv[1:]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def use_anthropic():
    import anthropic

    client = anthropic.Anthropic(base_url=f"{gateway}/anthropic", api_key="k", max_retries=0)
    tools = [{"name": "weather", "input_schema": SCHEMA}, {"name": "Task", "input_schema": {"type": "object"}}]

    def say(history, session="0a0b0c0d-1111-2222-3333-444455556666", **more):
        ask = {"model": "claude-x", "max_tokens": 200, "system": [{"type": "text", "text": "Be brief."}], "messages": history,
               "metadata": {"user_id": f"user_session_{session}"}, **more}
        with client.messages.stream(**ask) as stream:
            message = stream.get_final_message()
        content = [b.model_dump(exclude_none=True) for b in message.content]
        history.append({"role": "assistant", "content": content})
        return content

    def result(history, calls, text):
        results = [{"type": "tool_result", "tool_use_id": c["id"], "content": text} for c in calls if c["type"] == "tool_use"]
        history.append({"role": "user", "content": results})

    history = [{"role": "user", "content": "Use the tools for the weather"}]
    calls = say(history, tools=tools)
    result(history, calls, "sunny")
    say(history, tools=tools)
    history.append({"role": "user", "content": "Now think about the tax"})
    say(history, tools=tools, thinking={"type": "enabled", "budget_tokens": 1024})
    history.append({"role": "user", "content": "Please delegate the counting"})
    calls = say(history, tools=tools)
    say([{"role": "user", "content": "Count the callers of total()"}], tools=tools[:1])
    result(history, calls, "there are four")
    say(history, tools=tools)
    try:
        say(history + [{"role": "user", "content": "this will fail"}], tools=tools)
        raise AssertionError("an error was expected")
    except anthropic.APIStatusError as error:
        assert error.status_code == 529, error
    try:
        say(history + [{"role": "user", "content": "this will be cut off somewhere"}], tools=tools)
    except Exception:
        pass
    # Whole answers, and a system prompt that is a text.
    client.messages.create(model="claude-x", max_tokens=9, system="text", messages=[{"role": "user", "content": "plain words"}],
                           metadata={"user_id": "user_session_99999999-1111-2222-3333-444455556666"})
    # The history is made shorter, as agents do when it grows too long.
    summary = [{"role": "user", "content": "This session is being continued. Summary: the weather is sunny."}]
    say(summary, tools=tools)
    # Two agents at once, each with a session of its own.
    def other(n):
        mine = [{"role": "user", "content": f"agent {n} begins"}]
        for step in range(3):
            say(mine, session=f"{n}0000000-aaaa-bbbb-cccc-dddddddddddd")
            mine.append({"role": "user", "content": f"agent {n} step {step}"})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(other, [1, 2]))


def use_openai():
    import openai

    client = openai.OpenAI(base_url=f"{gateway}/openai/v1", api_key="k", max_retries=0)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Chat: use the tools for the weather"}]
    answer = client.chat.completions.create(model="gpt-x", messages=history, tools=tools).choices[0].message
    history.append(answer.model_dump(exclude_none=True))
    history += [{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in answer.tool_calls]
    stream = client.chat.completions.create(model="gpt-x", messages=history, tools=tools, stream=True, stream_options={"include_usage": True})
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == "The tools say: sunny", text
    history.append({"role": "assistant", "content": text})
    history.append({"role": "user", "content": "and this will fail"})
    try:
        client.chat.completions.create(model="gpt-x", messages=history)
        raise AssertionError("an error was expected")
    except openai.RateLimitError:
        pass
    history[-1] = {"role": "user", "content": "and this will be cut off somewhere"}
    try:
        list(client.chat.completions.create(model="gpt-x", messages=history, stream=True))
    except Exception:
        pass
    function = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    given = [{"role": "user", "content": "Responses: use the tools"}]
    with client.responses.stream(model="gpt-r", input=given, tools=function, prompt_cache_key="talk-1") as events:
        first = events.get_final_response()
    given += [i.model_dump(exclude_none=True) for i in first.output]
    calls = [i for i in first.output if i.type == "function_call"]
    given += [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny"} for c in calls]
    second = client.responses.create(model="gpt-r", input=given, tools=function, prompt_cache_key="talk-1")
    assert second.output_text.startswith("The tools say"), second
    third = client.responses.create(model="gpt-r", input="think it over", previous_response_id=second.id, prompt_cache_key="talk-1")
    assert third.output_text == "Ten coins."


def use_gemini():
    from google import genai

    types = genai.types
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=f"{gateway}/gemini"))
    weather = types.FunctionDeclaration(name="weather", parameters={"type": "OBJECT", "properties": {"city": {"type": "STRING"}}})
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[weather])],
                                         automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))
    history = [types.Content(role="user", parts=[types.Part(text="Gemini: use the tools")])]
    answer = client.models.generate_content(model="gemini-x", contents=history, config=config)
    history.append(answer.candidates[0].content)
    parts = [types.Part.from_function_response(name=c.name, response={"result": "sunny"}) for c in answer.function_calls]
    history.append(types.Content(role="user", parts=parts))
    stream = client.models.generate_content_stream(model="gemini-x", contents=history, config=config)
    assert "sunny" in "".join(c.text or "" for c in stream)


def use_ollama():
    import ollama

    client = ollama.Client(host=f"{gateway}/ollama")
    tools = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": SCHEMA}}]
    history = [{"role": "user", "content": "Ollama: use the tools"}]
    answer = client.chat(model="llama-x", messages=history, tools=tools).message
    history += [answer.model_dump(exclude_none=True)] + [{"role": "tool", "content": "sunny", "tool_name": "weather"}] * 2
    text = "".join(c.message.content for c in client.chat(model="llama-x", messages=history, tools=tools, stream=True))
    assert text == "The tools say: sunny", text


def use_bedrock():
    import boto3

    keys = {"aws_access_key_id": "other", "aws_secret_access_key": "other", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=gateway, **keys)
    tools = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}}}]}
    history = [{"role": "user", "content": [{"text": "Bedrock: use the tools"}]}]
    answer = client.converse(modelId="anthropic.claude-x", messages=history, toolConfig=tools)["output"]["message"]
    history.append(answer)
    calls = [p["toolUse"] for p in answer["content"] if "toolUse" in p]
    history.append({"role": "user", "content": [{"toolResult": {"toolUseId": c["toolUseId"], "content": [{"text": "sunny"}]}} for c in calls]})
    events = client.converse_stream(modelId="anthropic.claude-x", messages=history, toolConfig=tools)["stream"]
    text = "".join(e["contentBlockDelta"]["delta"].get("text", "") for e in events if "contentBlockDelta" in e)
    assert "sunny" in text, json.dumps(text)


{"openai": use_openai, "anthropic": use_anthropic, "google.genai": use_gemini, "ollama": use_ollama, "boto3": use_bedrock}[sdk]()
print("fine")
