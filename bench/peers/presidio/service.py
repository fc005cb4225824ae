"""Presidio as a service: its analyzer and anonymizer behind the paths that its clients ask, and `/redact`, which does both for a
plain text. Pattern recognisers only: spaCy's models are not on PyPI, so names and places are beyond it here, and it is the faster
for it. Run by uvicorn as `service:app`.
"""

import json
import logging

import tldextract.tldextract
from blank import Blank
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import RecognizerResult

logging.disable(logging.WARNING)
# Its list of public suffixes comes with the package; the newest one would be asked for over the network.
tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=())
registry = RecognizerRegistry()
registry.load_predefined_recognizers(languages=["en"])
analyzer = AnalyzerEngine(registry=registry, nlp_engine=Blank(), supported_languages=["en"])
anonymizer = AnonymizerEngine()


def analyze(text, asked):
    return analyzer.analyze(
        text=text,
        language=asked.get("language") or "en",
        entities=asked.get("entities") or None,
        score_threshold=asked.get("score_threshold") or 0.3,
    )


def answer(path, body):
    if path == "/redact":
        text = body.decode()
        return "text/plain", anonymizer.anonymize(text, analyze(text, {})).text.encode()
    if path == "/analyze":
        asked = json.loads(body)
        return "application/json", json.dumps([found.to_dict() for found in analyze(asked["text"], asked)]).encode()
    if path == "/anonymize":
        asked = json.loads(body)
        found = [RecognizerResult(f["entity_type"], f["start"], f["end"], f["score"]) for f in asked["analyzer_results"]]
        return "application/json", anonymizer.anonymize(asked["text"], found).to_json().encode()
    return "text/plain", b"ok"


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    kind, said = answer(scope["path"], body)
    head = [(b"content-type", kind.encode()), (b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": said})
