"""What Presidio's predefined recognisers find, without a language model: spaCy's models are not on PyPI, so names, places
and organisations are beyond it here. Writes [[entity, start, end], ...] per text, and how long the processor took.

    presidio_spans.py LABELLED.json OUT.json
"""

import json
import logging
import sys
import time
from pathlib import Path

import tldextract.tldextract
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry

sys.path.insert(0, str(Path(__file__).parent.parent / "peers/presidio"))
from blank import Blank  # noqa: E402


def main():
    source, out = sys.argv[1:]
    # The list of public suffixes that came with the package: nothing is fetched.
    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=())
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    engine = Blank()
    registry = RecognizerRegistry(supported_languages=["en"])
    registry.load_predefined_recognizers(languages=["en"], nlp_engine=engine)
    analyzer = AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["en"])
    texts = [item["full_text"] for item in json.load(open(source, encoding="utf-8"))]
    begun = time.process_time()
    found = [[[r.entity_type, r.start, r.end] for r in analyzer.analyze(text, language="en")] for text in texts]
    json.dump({"seconds": time.process_time() - begun, "spans": found}, open(out, "w", encoding="utf-8"))


main()
