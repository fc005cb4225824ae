"""One inbound format with the dialects of the newest models: `matrix.py FORMAT GATEWAY PROVIDER`.

The provider refuses what the real ones refuse. Each case is a conversation of an SDK; one that the provider refuses is a
fault of the gateway, unless the client speaks the model's own format and the provider refuses the same when it is asked
directly. The last line tells the figures.
"""

import json
import sys

format, gateway, provider = sys.argv[1:]
# Upstream and model.
MODELS = [
    ("openai", "gpt-6.2-astra"),
    ("openai", "gpt-6.2-sol"),
    ("openai", "gpt-6-luna"),
    ("openai", "gpt-5.6-sol"),
    ("anthropic", "claude-fable-5-2"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-5-5"),
    ("gemini", "gemini-4-argon"),
    ("gemini", "gemini-3.8-flash"),
    ("xai", "grok-4.7"),
    ("deepseek", "deepseek-v4-pro"),
    ("mistral", "mistral-large-4"),
    ("moonshot", "kimi-k3.1-pro"),
    ("qwencloud", "qwen3.8-max"),
    ("zai", "glm-5.3"),
    ("cohere", "command-a-plus-05-2026"),
    ("ollama", "qwen3.8:27b"),
    ("vertex", "claude-sonnet-5-5"),
    ("bedrock", "us.anthropic.claude-opus-5-5"),
]
# Upstreams whose own format a client may speak: their requests are not translated.
OWN = {
    "chat": {"openai", "mistral", "xai", "deepseek", "moonshot", "qwencloud", "zai", "ollama"},
    "responses": {"openai"},
    "messages": {"anthropic", "vertex"},
    "generate": {"gemini"},
}
EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ASK = "I am Anna Berg, anna.berg@firm.com. What is the weather?"
PLACE = '{"city": "Paris", "days": 3}'
ARGUMENTS = {"city": "Paris", "days": 3}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"


class Chat:
    """OpenAI's SDK, Chat Completions."""

    def __init__(self, url):
        import openai

        self.client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
        self.tools = [{"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": SCHEMA}}]

    def say(self, model, messages, stream=False, **more):
        if not stream:
            return self.client.chat.completions.create(model=model, messages=messages, **more).choices[0].message
        more["stream_options"] = {"include_usage": True}
        with self.client.chat.completions.stream(model=model, messages=messages, **more) as events:
            final = events.get_final_completion()
        assert final.usage.total_tokens > 0
        return final.choices[0].message

    @staticmethod
    def for_history(message):
        """What stays in the history: also thoughts, which this SDK has as a member that it does not know."""
        turn = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
        for call in turn.get("tool_calls", []):
            call["function"].pop("parsed_arguments", None)
        thoughts = {"reasoning_content"} & set(message.model_extra or {})
        return {**turn, **{name: message.model_extra[name] for name in thoughts}}

    def loop(self, model, stream=False, **more):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}]
        for turn in range(2):
            answer = self.say(model, messages, stream, tools=self.tools, **more)
            assert len(answer.tool_calls or []) == 2, answer
            assert all(json.loads(call.function.arguments) == ARGUMENTS for call in answer.tool_calls), answer
            messages.append(self.for_history(answer))
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in answer.tool_calls]
            answer = self.say(model, messages, stream, tools=self.tools, **more)
            assert answer.content and not answer.tool_calls, answer
            messages += [self.for_history(answer), {"role": "user", "content": f"And tomorrow? {turn}"}]

    def cases(self, model):
        user = [{"role": "user", "content": ASK}]
        yield "plain", lambda: self.say(model, user, max_completion_tokens=900)
        yield "limit by its old name", lambda: self.say(model, user, max_tokens=900)
        yield "stop", lambda: self.say(model, user, stop=["END"])
        yield "sampling", lambda: self.say(model, user, temperature=0.4, top_p=0.9, seed=4, frequency_penalty=0.5, presence_penalty=0.5)
        yield "sampling at its defaults", lambda: self.say(model, user, temperature=1, top_p=1, frequency_penalty=0, presence_penalty=0)
        for stream in (False, True):
            yield f"tools, stream={stream}", lambda stream=stream: self.loop(model, stream)
        for effort in EFFORTS:
            yield f"tools, effort {effort}", lambda effort=effort: self.loop(model, effort == "high", reasoning_effort=effort)
        yield "one call at a time", lambda: self.say(model, user, tools=self.tools, parallel_tool_calls=False)
        yield "a call is demanded", lambda: self.say(model, user, tools=self.tools, tool_choice="required")
        named = {"type": "function", "function": {"name": "weather"}}
        yield "a named call is demanded", lambda: self.say(model, user, tools=self.tools, tool_choice=named)
        yield "no call", lambda: self.say(model, user, tools=self.tools, tool_choice="none")
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "high"}}
        yield "image", lambda: self.say(model, [{"role": "user", "content": [{"type": "text", "text": ASK}, image]}])
        file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
        yield "file", lambda: self.say(model, [{"role": "user", "content": [{"type": "text", "text": ASK}, file]}])
        yield "structured output", lambda: self.parse(model)
        yield "json", lambda: self.say(model, [{"role": "user", "content": PLACE}], response_format={"type": "json_object"})
        yield "prefill", lambda: self.say(model, [*user, {"role": "assistant", "content": "Well"}])
        yield "developer's words in the middle", lambda: self.say(model, [*user, {"role": "assistant", "content": "Rain."}, {"role": "developer", "content": "Be brief."}, *user])
        yield "cache", lambda: self.say(model, user, prompt_cache_key="a", extra_body={"prompt_cache_options": {"mode": "implicit"}})
        yield "cancelled", lambda: cancel(self.client.chat.completions.create(model=model, messages=user, stream=True))

    def parse(self, model):
        from pydantic import BaseModel, ConfigDict

        class Place(BaseModel):
            model_config = ConfigDict(extra="forbid")
            city: str
            days: int

        ask = [{"role": "user", "content": PLACE}]
        parsed = self.client.chat.completions.parse(model=model, messages=ask, response_format=Place).choices[0].message.parsed
        assert parsed == Place(**ARGUMENTS), parsed


class Responses:
    """OpenAI's SDK, Responses."""

    def __init__(self, url):
        import openai

        self.client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
        self.tools = [{"type": "function", "name": "weather", "description": "Tells it", "parameters": SCHEMA, "strict": True}]

    def say(self, model, input, stream=False, **more):
        more = {"store": False, "include": ["reasoning.encrypted_content"], **more}
        if not stream:
            return self.client.responses.create(model=model, input=input, **more)
        with self.client.responses.stream(model=model, input=input, **more) as events:
            for _ in events:
                pass
            return events.get_final_response()

    def loop(self, model, stream=False, **more):
        items = [{"role": "user", "content": ASK}]
        for turn in range(2):
            answer = self.say(model, items, stream, tools=self.tools, instructions="Be brief.", **more)
            calls = [item for item in answer.output if item.type == "function_call"]
            assert len(calls) == 2 and all(json.loads(call.arguments) == ARGUMENTS for call in calls), answer
            assert answer.usage.total_tokens > 0
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments", "status"}) for item in answer.output]
            items += [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
            answer = self.say(model, items, stream, tools=self.tools, instructions="Be brief.", **more)
            assert answer.output_text, answer
            items += [item.model_dump(exclude_none=True, exclude={"parsed", "status"}) for item in answer.output]
            items.append({"role": "user", "content": f"And tomorrow? {turn}"})

    def cases(self, model):
        yield "plain", lambda: self.say(model, ASK, max_output_tokens=900)
        yield "sampling", lambda: self.say(model, ASK, temperature=0.4, top_p=0.9)
        yield "sampling at its defaults", lambda: self.say(model, ASK, temperature=1, top_p=1)
        for stream in (False, True):
            yield f"tools, stream={stream}", lambda stream=stream: self.loop(model, stream)
        for effort in EFFORTS:
            yield f"tools, effort {effort}", lambda effort=effort: self.loop(model, effort == "high", reasoning={"effort": effort})
        yield "thoughts are summed up", lambda: self.loop(model, True, reasoning={"effort": "medium", "summary": "auto"})
        yield "one call at a time", lambda: self.say(model, ASK, tools=self.tools, parallel_tool_calls=False)
        yield "a call is demanded", lambda: self.say(model, ASK, tools=self.tools, tool_choice="required")
        yield "a named call is demanded", lambda: self.say(model, ASK, tools=self.tools, tool_choice={"type": "function", "name": "weather"})
        custom = {"type": "custom", "name": "patch", "description": "Applies it"}
        yield "custom tool", lambda: self.say(model, ASK, tools=[*self.tools, custom])
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
        file = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
        for name, part in (("image", image), ("file", file)):
            yield name, lambda part=part: self.say(model, [{"role": "user", "content": [{"type": "input_text", "text": ASK}, part]}])
        yield "structured output", lambda: self.parse(model)
        yield "json", lambda: self.say(model, PLACE, text={"format": {"type": "json_object"}, "verbosity": "low"})
        yield "developer's words in the middle", lambda: self.say(model, [{"role": "user", "content": ASK}, {"role": "assistant", "content": "Rain."}, {"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}])
        yield "cache", lambda: self.say(model, ASK, prompt_cache_key="a", prompt_cache_options={"mode": "implicit", "ttl": "30m"})
        yield "cancelled", lambda: cancel(self.client.responses.create(model=model, input=ASK, stream=True))

    def parse(self, model):
        from pydantic import BaseModel, ConfigDict

        class Place(BaseModel):
            model_config = ConfigDict(extra="forbid")
            city: str
            days: int

        parsed = self.client.responses.parse(model=model, input=PLACE, text_format=Place).output_parsed
        assert parsed == Place(**ARGUMENTS), parsed


class Messages:
    """Anthropic's SDK."""

    def __init__(self, url):
        import anthropic

        self.client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        self.tools = [{"name": "weather", "description": "Tells it", "input_schema": SCHEMA}]

    def say(self, model, messages, stream=False, **more):
        more = {"max_tokens": 9000, **more}
        if not stream:
            return self.client.messages.create(model=model, messages=messages, **more)
        with self.client.messages.stream(model=model, messages=messages, **more) as events:
            return events.get_final_message()

    def loop(self, model, stream=False, **more):
        messages = [{"role": "user", "content": ASK}]
        for turn in range(2):
            answer = self.say(model, messages, stream, tools=self.tools, system="Be brief.", **more)
            calls = [block for block in answer.content if block.type == "tool_use"]
            assert len(calls) == 2 and all(call.input == ARGUMENTS for call in calls) and answer.stop_reason == "tool_use", answer
            messages.append({"role": "assistant", "content": answer.content})
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls]
            messages.append({"role": "user", "content": results})
            answer = self.say(model, messages, stream, tools=self.tools, system="Be brief.", **more)
            assert answer.content[-1].type == "text" and answer.content[-1].text and answer.usage.output_tokens > 0, answer
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": f"And tomorrow? {turn}"}]

    def cases(self, model):
        user = [{"role": "user", "content": ASK}]
        yield "plain", lambda: self.say(model, user)
        yield "stop", lambda: self.say(model, user, stop_sequences=["END"])
        yield "sampling", lambda: self.say(model, user, extra_body={"temperature": 0.4, "top_p": 0.9, "top_k": 4})
        for stream in (False, True):
            yield f"tools, stream={stream}", lambda stream=stream: self.loop(model, stream)
        for effort in EFFORTS[2:]:
            more = {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
            yield f"tools, effort {effort}", lambda effort=effort, more=more: self.loop(model, effort == "high", **more)
        for name, thinking in (("off", {"type": "disabled"}), ("by a budget", {"type": "enabled", "budget_tokens": 2048}), ("shown", {"type": "adaptive", "display": "summarized"})):
            yield f"tools, thinking {name}", lambda thinking=thinking: self.loop(model, name == "shown", thinking=thinking)
        for kind, more in (("any", {}), ("tool", {"name": "weather"}), ("none", {}), ("auto", {"disable_parallel_tool_use": True})):
            choice = {"type": kind, **more}
            yield f"tool_choice {kind}", lambda choice=choice: self.say(model, user, tools=self.tools, tool_choice=choice)
        base64 = lambda media, data: {"type": "base64", "media_type": media, "data": data}
        for name, part in (("image", {"type": "image", "source": base64("image/png", PNG)}), ("document", {"type": "document", "source": base64("application/pdf", PDF)})):
            yield name, lambda part=part: self.say(model, [{"role": "user", "content": [{"type": "text", "text": ASK}, part]}])
        result = [{"role": "user", "content": ASK}, {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": ARGUMENTS}]}]
        parts = [{"type": "text", "text": "rain"}, {"type": "image", "source": base64("image/png", PNG)}]
        result.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": parts, "is_error": True}]})
        yield "image in a result", lambda: self.say(model, result, tools=self.tools)
        yield "structured output", lambda: self.parse(model)
        yield "prefill", lambda: self.say(model, [*user, {"role": "assistant", "content": "Well"}])
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        system = [{"type": "text", "text": "Be brief.", **mark}]
        marked = [{"role": "user", "content": [{"type": "text", "text": ASK, **mark}]}]
        yield "cache marks", lambda: self.say(model, marked, system=system, tools=[{**self.tools[0], **mark}])
        yield "cache mark of the request", lambda: self.say(model, user, cache_control={"type": "ephemeral"})
        middle = [*user, {"role": "assistant", "content": "Rain."}, {"role": "system", "content": "Be brief."}, *user]
        yield "system in the middle", lambda: self.say(model, middle)
        yield "metadata", lambda: self.say(model, user, metadata={"user_id": "u1"}, service_tier="auto")
        yield "tokens are counted", lambda: self.count(model, user)
        yield "cancelled", lambda: cancel(self.client.messages.create(model=model, messages=user, max_tokens=900, stream=True))

    def count(self, model, messages):
        assert self.client.messages.count_tokens(model=model, messages=messages, tools=self.tools).input_tokens > 0

    def parse(self, model):
        config = {"format": {"type": "json_schema", "schema": SCHEMA}}
        answer = self.say(model, [{"role": "user", "content": PLACE}], output_config=config)
        assert json.loads(answer.content[-1].text) == ARGUMENTS, answer


class Generate:
    """Google's SDK, generateContent."""

    def __init__(self, url):
        from google import genai

        self.types = genai.types
        self.client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
        weather = self.types.FunctionDeclaration(name="weather", description="Tells it", parameters_json_schema=SCHEMA)
        self.tools = [self.types.Tool(function_declarations=[weather])]

    def say(self, model, contents, stream=False, **config):
        off = self.types.AutomaticFunctionCallingConfig(disable=True)
        config = self.types.GenerateContentConfig(automatic_function_calling=off, **config)
        if not stream:
            return self.client.models.generate_content(model=model, contents=contents, config=config).candidates[0].content
        parts = []
        for chunk in self.client.models.generate_content_stream(model=model, contents=contents, config=config):
            parts += (chunk.candidates[0].content.parts or []) if chunk.candidates and chunk.candidates[0].content else []
        return self.types.Content(role="model", parts=parts)

    def loop(self, model, stream=False, **config):
        types = self.types
        contents = [types.Content(role="user", parts=[types.Part(text=ASK)])]
        for turn in range(2):
            answer = self.say(model, contents, stream, tools=self.tools, system_instruction="Be brief.", **config)
            calls = [part.function_call for part in answer.parts if part.function_call]
            assert len(calls) == 2 and all(call.args == ARGUMENTS for call in calls), answer
            contents.append(answer)
            results = [types.Part.from_function_response(name=call.name, response={"result": "rain"}) for call in calls]
            contents.append(types.Content(role="user", parts=results))
            answer = self.say(model, contents, stream, tools=self.tools, system_instruction="Be brief.", **config)
            assert any(part.text for part in answer.parts), answer
            contents += [answer, types.Content(role="user", parts=[types.Part(text=f"And tomorrow? {turn}")])]

    def cases(self, model):
        types = self.types
        yield "plain", lambda: self.say(model, ASK, max_output_tokens=900)
        yield "stop", lambda: self.say(model, ASK, stop_sequences=["END"])
        yield "sampling", lambda: self.say(model, ASK, temperature=0.4, top_p=0.9, top_k=4, seed=4)
        for stream in (False, True):
            yield f"tools, stream={stream}", lambda stream=stream: self.loop(model, stream)
        for level in ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"):
            thinking = types.ThinkingConfig(thinking_level=level, include_thoughts=True)
            yield f"tools, level {level}", lambda thinking=thinking, level=level: self.loop(model, level == "HIGH", thinking_config=thinking)
        yield "tools, no budget", lambda: self.loop(model, thinking_config=types.ThinkingConfig(thinking_budget=0))
        for mode in ("ANY", "NONE", "AUTO"):
            choice = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode=mode))
            yield f"tools, mode {mode}", lambda choice=choice: self.say(model, ASK, tools=self.tools, tool_config=choice)
        image = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
        yield "image", lambda: self.say(model, [types.Part(text=ASK), image])
        yield "structured output", lambda: self.parse(model)
        yield "tokens are counted", lambda: self.client.models.count_tokens(model=model, contents=ASK)
        yield "cancelled", lambda: cancel(self.client.models.generate_content_stream(model=model, contents=ASK))

    def parse(self, model):
        answer = self.say(model, PLACE, response_mime_type="application/json", response_json_schema=SCHEMA)
        assert json.loads("".join(part.text or "" for part in answer.parts if not part.thought)) == ARGUMENTS, answer


def cancel(stream):
    """Reads the beginning of a stream, and goes."""
    iterator = iter(stream)
    next(iterator)
    close = getattr(stream, "close", None) or iterator.close
    close()


SDKS = {"chat": Chat, "responses": Responses, "messages": Messages, "generate": Generate}


def outcome(case):
    """None, or what went wrong: the kind of error, and its text."""
    try:
        case()
        return None
    except Exception as error:  # noqa: BLE001
        return type(error).__name__, str(error)[:400]


asked, refused, failed, skipped = 0, [], [], []
for upstream, model in MODELS:
    is_own = upstream in OWN[format]
    if format == "generate" and upstream == "vertex":
        # Vertex takes Gemini's API for Gemini's models.
        continue
    through = SDKS[format](f"{gateway}/{upstream}")
    if format == "generate" and not is_own and outcome(lambda: through.say(model, ASK)):
        skipped.append(model)
        continue
    knobs = "~strict=1&echo=1&chunks=9&thinking=1&signed=1&tool=*&calls=2"
    direct = SDKS[format](f"{provider}/{knobs}{'&mistral=1' if upstream == 'mistral' else ''}")
    expected = dict(direct.cases(model)) if is_own else {}
    for name, case in through.cases(model):
        asked += 1
        error = outcome(case)
        if error is None:
            continue
        # A client in the model's own format gets what the provider itself answers.
        direct_error = outcome(expected[name]) if is_own else None
        same = direct_error is not None and direct_error[0] == error[0]
        (refused if same else failed).append(f"{upstream} {model}, {name}: {': '.join(error)}")
for line in failed:
    print("failed ", line)
print(f"{format}: {asked} conversations, {len(refused)} refused by the provider of the client's own format, {len(failed)} failed", end="")
print(f"; not translated: {', '.join(skipped)}" if skipped else "")
sys.exit(bool(failed))
