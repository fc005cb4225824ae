"""Writes the model that the tests run: a BERT of one layer whose weights say by the word alone what it is.

    tiny.py ../../../crates/interflow-redact/tests/data/model
"""

import json
import pathlib
import sys

import numpy as np

import export

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-ADDR", "I-ADDR"]
HIDDEN, HEADS, POSITIONS = 12, 2, 64
# Each word with its label; the second of two is what the model also considers.
WORDS = {
    "qwvzyx": "B-PER", "olvik": "I-PER", "brelkano": "B-ORG", "tarnovia": "B-LOC", "zeltlane": "B-ADDR", "yy": "I-ADDR",
    "halv": "B-PER O", "the": "O", "office": "B-ORG", "in": "O", "of": "O", "wrote": "O", "to": "O", "##lund": "O",
}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *".,:;()@'\"-/!?"]
    words = np.zeros((len(tokens), HIDDEN), np.float32)
    for at, token in enumerate(tokens):
        first, *second = WORDS.get(token, "O").split()
        words[at, LABELS.index(first)] = 10
        for label in second:
            words[at, LABELS.index(label)] = 9.5
    weights = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": np.zeros((POSITIONS, HIDDEN), np.float32),
        "embeddings.token_type_embeddings.weight": np.zeros((2, HIDDEN), np.float32),
        "classifier.weight": 3 * np.eye(len(LABELS), HIDDEN, dtype=np.float32),
        "classifier.bias": np.zeros(len(LABELS), np.float32),
    }
    layer = "encoder.layer.0"
    norms = ["embeddings.LayerNorm", f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name in norms:
        weights |= {f"{name}.weight": np.ones(HIDDEN, np.float32), f"{name}.bias": np.zeros(HIDDEN, np.float32)}
    # The layer adds nothing, but every operator of one runs.
    inside = [f"attention.self.{w}" for w in ("query", "key", "value")] + ["attention.output.dense", "intermediate.dense", "output.dense"]
    for name in inside:
        weights |= {f"{layer}.{name}.weight": np.zeros((HIDDEN, HIDDEN), np.float32), f"{layer}.{name}.bias": np.zeros(HIDDEN, np.float32)}
    export.onnx.save(export.model(weights, layers=1, heads=HEADS), out / "model.onnx")
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": {t: n for n, t in enumerate(tokens)}},
    }
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n", encoding="utf-8")
    card = {"id2label": {str(n): label for n, label in enumerate(LABELS)}}
    (out / "config.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


main()
