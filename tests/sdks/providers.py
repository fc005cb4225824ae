"""Fake Gemini, Ollama and Bedrock: each answers with the last text it received, in a tool call when it is given tools, and counts
what it must not see."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from fake_provider import FakeProvider, frame  # noqa: E402

SIGHTINGS = {"123-45-6789": 0, "anna.berg@firm.com": 0}


def last_text(body):
    messages = body.get("contents") or body["messages"]
    parts = messages[-1].get("parts") or messages[-1]["content"]
    return parts if isinstance(parts, str) else parts[-1]["text"]


def pieces(text):
    return [text[i : i + 5] for i in range(0, len(text), 5)]


class Provider(FakeProvider):
    def do_GET(self):
        self.whole({"sightings": SIGHTINGS})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        for marker in SIGHTINGS:
            SIGHTINGS[marker] += marker.encode() in raw
        body = json.loads(raw)
        text = last_text(body)
        if body.get("tools") or body.get("toolConfig"):
            self.whole(self.call({"said": text}))
        elif "generateContent" in self.path:
            self.whole(self.gemini(text, "STOP"))
        elif "streamGenerateContent" in self.path:
            events = [self.gemini(piece, None) for piece in pieces(text)] + [self.gemini("", "STOP")]
            self.stream("text/event-stream", [f"data: {json.dumps(e)}\r\n\r\n".encode() for e in events])
        elif self.path == "/api/chat" and body.get("stream") is False:
            self.whole(self.ollama(text, True))
        elif self.path == "/api/chat":
            events = [self.ollama(piece, False) for piece in pieces(text)] + [self.ollama("", True)]
            self.stream("application/x-ndjson", [json.dumps(e).encode() + b"\n" for e in events])
        elif self.path.endswith("/converse"):
            message = {"role": "assistant", "content": [{"text": text}]}
            usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
            self.whole({"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 1}})
        else:
            deltas = [frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": p}}) for p in pieces(text)]
            stop = [frame("contentBlockStop", {"contentBlockIndex": 0}), frame("messageStop", {"stopReason": "end_turn"})]
            start = [frame("messageStart", {"role": "assistant"})]
            self.stream("application/vnd.amazon.eventstream", [*start, *deltas, *stop])

    def call(self, arguments):
        """A tool call in the shape of the path's provider."""
        if "generateContent" in self.path:
            part = {"functionCall": {"name": "weather", "args": arguments}}
            return {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}]}
        if self.path == "/api/chat":
            answer = self.ollama("", True)
            answer["message"]["tool_calls"] = [{"function": {"name": "weather", "arguments": arguments}}]
            return answer
        content = [{"toolUse": {"toolUseId": "t1", "name": "weather", "input": arguments}}]
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        output = {"message": {"role": "assistant", "content": content}}
        return {"output": output, "stopReason": "tool_use", "usage": usage, "metrics": {"latencyMs": 1}}

    @staticmethod
    def gemini(text, finish):
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "modelVersion": "m", "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}}

    @staticmethod
    def ollama(text, done):
        message = {"role": "assistant", "content": text}
        return {"model": "m", "created_at": "2025-01-01T00:00:00Z", "message": message, "done": done}


Provider.serve()
