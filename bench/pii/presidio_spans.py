"""What Presidio's predefined recognisers find, without a language model: spaCy's models are not on PyPI, so names, places
and organisations are beyond it here. Writes [[entity, start, end], ...] per text, and how long it took.

    presidio_spans.py LABELLED.json OUT.json
"""

import json
import logging
import sys
import time

import spacy
import tldextract.tldextract
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
from presidio_analyzer.nlp_engine import NlpArtifacts, NlpEngine


class Blank(NlpEngine):
    """Tokens without entities, tags or lemmas."""

    def __init__(self):
        self.nlp = spacy.blank("en")

    def load(self):
        pass

    def is_loaded(self):
        return True

    def process_text(self, text, language):
        doc = self.nlp(text)
        words = [token.text.lower() for token in doc]
        return NlpArtifacts(
            entities=[], tokens=doc, tokens_indices=[t.idx for t in doc], lemmas=words, nlp_engine=self, language=language
        )

    def process_batch(self, texts, language, **_):
        for text in texts:
            yield text, self.process_text(text, language)

    def is_stopword(self, word, language):
        return self.nlp.vocab[word].is_stop

    def is_punct(self, word, language):
        return self.nlp.vocab[word].is_punct

    def get_supported_entities(self):
        return []

    def get_supported_languages(self):
        return ["en"]


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
    begun = time.perf_counter()
    found = [[[r.entity_type, r.start, r.end] for r in analyzer.analyze(text, language="en")] for text in texts]
    json.dump({"seconds": time.perf_counter() - begun, "spans": found}, open(out, "w", encoding="utf-8"))


main()
