"""Fake Anthropic, OpenAI, Gemini, Ollama and Bedrock in their published wire formats. What is answered is decided by the last
thing that was said: `tools` calls two tools at once, `think` thinks first, `fail` is an error, `cut` breaks off a stream, the results
of tools are summed up, `delegate` calls the tool that begins a sub-agent, anything else is repeated."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from fake_provider import FakeProvider, frame  # noqa: E402

COUNT = [0]


def number():
    COUNT[0] += 1
    return COUNT[0]


def script(last, is_result):
    """Thought, text, calls."""
    if is_result:
        return "", f"The tools say: {last}", []
    if "tools" in last:
        return "", "Let me look.", [("weather", {"city": "Paris"}), ("weather", {"city": "Oslo"})]
    if "delegate" in last:
        return "", "", [("Task", {"description": "Count", "prompt": "Count the callers of total()"})]
    if "think" in last:
        return "First the tax, then the total.", "Ten coins.", []
    return "", f"You said: {last}", []


def pieces(text):
    return [text[i : i + 7] for i in range(0, len(text), 7)] or [""]


def sse(events, named=True):
    for event in events:
        head = f"event: {event['type']}\n" if named else ""
        yield f"{head}data: {json.dumps(event)}\n\n".encode()


class Provider(FakeProvider):
    def do_POST(self):
        body = json.loads(self.read_body())
        path = self.path.split("?")[0]
        if path.endswith("/messages"):
            self.anthropic(body)
        elif path.endswith("/chat/completions"):
            self.chat(body)
        elif path.endswith("/responses"):
            self.respond(body)
        elif "enerateContent" in path:
            self.gemini(body, "stream" in path)
        elif path == "/api/chat":
            self.ollama(body)
        else:
            self.bedrock(body, path.endswith("-stream"))

    def anthropic(self, body):
        content = body["messages"][-1]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [p for p in parts if p["type"] == "tool_result"]
        last = " ".join(str(p.get("content") or p.get("text")) for p in results or parts)
        if "fail" in last:
            return self.whole({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529)
        thought, text, calls = script(last, bool(results))
        blocks = [{"type": "thinking", "thinking": thought, "signature": "c2ln"}] if thought else []
        blocks += [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": f"toolu_{number()}", "name": n, "input": i} for n, i in calls]
        usage = {"input_tokens": 20, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5, "output_tokens": 12}
        stop = "tool_use" if calls else "end_turn"
        message = {"id": f"msg_{number()}", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        if not body.get("stream"):
            return self.whole({**message, "content": blocks, "stop_reason": stop, "usage": usage})
        events = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}}]
        for i, block in enumerate(blocks):
            empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[block["type"]]
            events.append({"type": "content_block_start", "index": i, "content_block": {**block, **empty}})
            if block["type"] == "thinking":
                deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": "c2ln"})
            elif block["type"] == "text":
                deltas = [{"type": "text_delta", "text": p} for p in pieces(block["text"])]
            else:
                deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces(json.dumps(block["input"]))]
            events += [{"type": "content_block_delta", "index": i, "delta": d} for d in deltas]
            events.append({"type": "content_block_stop", "index": i})
        events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 12}})
        events.append({"type": "message_stop"})
        self.stream("text/event-stream", sse(events), "cut" in last)

    def chat(self, body):
        last = body["messages"][-1]
        is_result = last["role"] == "tool"
        if "fail" in last["content"]:
            return self.whole({"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}}, 429)
        _, text, calls = script(last["content"], is_result)
        tools = [
            {"id": f"call_{number()}", "type": "function", "function": {"name": n, "arguments": json.dumps(i)}} for n, i in calls
        ]
        usage = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112, "prompt_tokens_details": {"cached_tokens": 64},
                 "completion_tokens_details": {"reasoning_tokens": 4}}
        head = {"id": f"chatcmpl-{number()}", "created": 1700000000, "model": body["model"]}
        finish = "tool_calls" if tools else "stop"
        if not body.get("stream"):
            message = {"role": "assistant", "content": text, **({"tool_calls": tools} if tools else {})}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return self.whole({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        deltas = [{"role": "assistant", "content": ""}] + [{"content": p} for p in pieces(text)]
        for i, tool in enumerate(tools):
            function = tool["function"]
            deltas.append({"tool_calls": [{**tool, "index": i, "function": {"name": function["name"], "arguments": ""}}]})
            deltas += [{"tool_calls": [{"index": i, "function": {"arguments": p}}]} for p in pieces(function["arguments"])]
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        self.stream("text/event-stream", [*sse(chunks, named=False), b"data: [DONE]\n\n"], "cut" in last["content"])

    def respond(self, body):
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        last = items[-1]
        is_result = last.get("type") == "function_call_output"
        results = last.get("output", "")
        content = last.get("content", "")
        text = content if isinstance(content, str) else " ".join(p["text"] for p in content)
        thought, text, calls = script(results if is_result else text, is_result)
        n = number()
        output = [{"type": "reasoning", "id": f"rs_{n}", "summary": [{"type": "summary_text", "text": thought}]}] if thought else []
        if text:
            part = {"type": "output_text", "text": text, "annotations": []}
            output.append({"type": "message", "id": f"item_{n}", "role": "assistant", "status": "completed", "content": [part]})
        for name, given in calls:
            call = f"call_{number()}"
            output.append({"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": name, "arguments": json.dumps(given), "status": "completed"})
        usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 12,
                 "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 112}
        whole = {"id": f"resp_{n}", "object": "response", "created_at": 1700000000, "model": body["model"], "status": "completed",
                 "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
        if not body.get("stream"):
            return self.whole(whole)
        events = [{"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}]
        for i, item in enumerate(output):
            events.append({"type": "response.output_item.added", "output_index": i, "item": {**item, **({"content": []} if item["type"] == "message" else {})}})
            if item["type"] == "message":
                where = {"item_id": item["id"], "output_index": i, "content_index": 0}
                events.append({"type": "response.content_part.added", **where, "part": {"type": "output_text", "text": "", "annotations": []}})
                events += [{"type": "response.output_text.delta", **where, "delta": p, "logprobs": []} for p in pieces(text)]
                events.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
            if item["type"] == "function_call":
                where = {"item_id": item["id"], "output_index": i}
                events += [{"type": "response.function_call_arguments.delta", **where, "delta": p} for p in pieces(item["arguments"])]
                events.append({"type": "response.function_call_arguments.done", **where, "name": item["name"], "arguments": item["arguments"]})
            events.append({"type": "response.output_item.done", "output_index": i, "item": item})
        events.append({"type": "response.completed", "response": whole})
        self.stream("text/event-stream", sse([{**e, "sequence_number": i} for i, e in enumerate(events)]))

    def gemini(self, body, streamed):
        parts = body["contents"][-1]["parts"]
        results = [p for p in parts if "functionResponse" in p]
        last = " ".join(json.dumps(p["functionResponse"]["response"]) if "functionResponse" in p else p["text"] for p in parts)
        thought, text, calls = script(last, bool(results))
        said = [{"text": thought, "thought": True}] if thought else []
        said += [{"text": p} for p in pieces(text)] if text else []
        said += [{"functionCall": {"name": n, "args": i}} for n, i in calls]
        usage = {"promptTokenCount": 100, "cachedContentTokenCount": 64, "candidatesTokenCount": 8, "thoughtsTokenCount": 4, "totalTokenCount": 112}

        def chunk(parts, last):
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **({"finishReason": "STOP"} if last else {})}
            return {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": "r", **({"usageMetadata": usage} if last else {})}

        if not streamed:
            return self.whole(chunk(said, True))
        events = [chunk([p], False) for p in said] + [chunk([{"text": ""}], True)]
        self.stream("text/event-stream", [f"data: {json.dumps(e)}\r\n\r\n".encode() for e in events])

    def ollama(self, body):
        last = body["messages"][-1]
        _, text, calls = script(last["content"], last["role"] == "tool")
        head = {"model": body["model"], "created_at": "2025-01-01T00:00:00Z"}
        counts = {"prompt_eval_count": 100, "eval_count": 12, "total_duration": 5, "eval_duration": 3, "done_reason": "stop"}
        tools = [{"function": {"name": n, "arguments": i}} for n, i in calls]
        if body.get("stream") is False:
            return self.whole({**head, "message": {"role": "assistant", "content": text, "tool_calls": tools}, "done": True, **counts})
        events = [{**head, "message": {"role": "assistant", "content": p}, "done": False} for p in pieces(text)]
        events.append({**head, "message": {"role": "assistant", "content": "", "tool_calls": tools}, "done": False})
        events.append({**head, "message": {"role": "assistant", "content": ""}, "done": True, **counts})
        self.stream("application/x-ndjson", [json.dumps(e).encode() + b"\n" for e in events])

    def bedrock(self, body, streamed):
        parts = body["messages"][-1]["content"]
        results = [p["toolResult"] for p in parts if "toolResult" in p]
        last = " ".join(str(r["content"]) for r in results) if results else parts[-1]["text"]
        _, text, calls = script(last, bool(results))
        said = ([{"text": text}] if text else []) + [{"toolUse": {"toolUseId": f"tu_{number()}", "name": n, "input": i}} for n, i in calls]
        stop = "tool_use" if calls else "end_turn"
        usage = {"inputTokens": 100, "outputTokens": 12, "totalTokens": 112, "cacheReadInputTokens": 64}
        if not streamed:
            return self.whole({"output": {"message": {"role": "assistant", "content": said}}, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}})
        frames = [frame("messageStart", {"role": "assistant"})]
        for i, part in enumerate(said):
            if "toolUse" in part:
                use = part["toolUse"]
                frames.append(frame("contentBlockStart", {"contentBlockIndex": i, "start": {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}}))
                deltas = [{"toolUse": {"input": p}} for p in pieces(json.dumps(use["input"]))]
            else:
                deltas = [{"text": p} for p in pieces(part["text"])]
            frames += [frame("contentBlockDelta", {"contentBlockIndex": i, "delta": d}) for d in deltas]
            frames.append(frame("contentBlockStop", {"contentBlockIndex": i}))
        frames += [frame("messageStop", {"stopReason": stop}), frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})]
        self.stream("application/vnd.amazon.eventstream", frames)


Provider.serve(*sys.argv[1:])
