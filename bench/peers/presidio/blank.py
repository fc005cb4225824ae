"""The language engine that Presidio gets here: spaCy's models are not on PyPI, so it only cuts texts into words."""

import spacy
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
