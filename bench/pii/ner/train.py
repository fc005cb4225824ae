"""Trains a token classifier of names on a sentence encoder (BERT with 6 layers, as `all-MiniLM-L6-v2`), and writes it as an
ONNX model that `[redact.model]` takes: model.onnx, model.int8.onnx, tokenizer.json, config.json.

    train.py ENCODER TEXTS.json OUT [--steps N] [--batch N] [--frozen N] [--pause FILE]

ENCODER is a folder with model.safetensors and tokenizer.json. The first `--frozen` layers stay as they are. While the file
of `--pause` exists, the training waits. Needs jax, optax, tokenizers, safetensors, onnx, onnxruntime.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tokenizers
from safetensors.numpy import load_file

import export

LABELS = ["O"] + [f"{at}-{kind}" for kind in ("PER", "LOC", "ORG", "ADDR") for at in "BI"]
LENGTH, HEADS, LAYERS = 48, 12, 6


def dense(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-12) * p[f"{name}.weight"] + p[f"{name}.bias"]


def forward(p, table, ids, mask):
    b, t = ids.shape
    x = table[ids] + p["embeddings.position_embeddings.weight"][:t] + p["embeddings.token_type_embeddings.weight"][0]
    x = norm(p, "embeddings.LayerNorm", x)
    far = (1.0 - mask[:, None, None, :]) * -1e4
    for n in range(LAYERS):
        at = f"encoder.layer.{n}"
        split = lambda y: y.reshape(b, t, HEADS, -1).transpose(0, 2, 1, 3)
        q, k, v = (split(dense(p, f"{at}.attention.self.{w}", x)) for w in ("query", "key", "value"))
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + far, -1)
        y = (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, -1)
        x = norm(p, f"{at}.attention.output.LayerNorm", x + dense(p, f"{at}.attention.output.dense", y))
        y = jax.nn.gelu(dense(p, f"{at}.intermediate.dense", x), approximate=False)
        x = norm(p, f"{at}.output.LayerNorm", x + dense(p, f"{at}.output.dense", y))
    return dense(p, "classifier", x)


def examples(tokenizer, items):
    """Token ids and labels; only the first piece of a word has a label."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTH)
    for item in items:
        got = tokenizer.encode(item["text"])
        labels, seen = [], set()
        for (start, end), word in zip(got.offsets, got.word_ids):
            label = -1
            if word is not None and word not in seen:
                seen.add(word)
                hit = next((s for s in item["spans"] if start < s[2] and s[1] < end), None)
                label = 0 if hit is None else LABELS.index(("B-" if start <= hit[1] else "I-") + hit[0])
            labels.append(label)
        yield got.ids, labels


def batches(all_examples, size, dice):
    order = list(range(len(all_examples)))
    while True:
        dice.shuffle(order)
        for at in range(0, len(order) - size, size):
            ids = np.zeros((size, LENGTH), np.int32)
            mask = np.zeros((size, LENGTH), np.float32)
            labels = np.full((size, LENGTH), -1, np.int32)
            for row, n in enumerate(order[at:at + size]):
                got, label = all_examples[n]
                ids[row, :len(got)], mask[row, :len(got)], labels[row, :len(got)] = got, 1, label
            yield ids, mask, labels


def main():
    arguments = argparse.ArgumentParser()
    for name in ("encoder", "texts", "out"):
        arguments.add_argument(name, type=pathlib.Path)
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument("--batch", type=int, default=16)
    arguments.add_argument("--frozen", type=int, default=3)
    arguments.add_argument("--pause", default="")
    given = arguments.parse_args()
    tokenizer = tokenizers.Tokenizer.from_file(str(given.encoder / "tokenizer.json"))
    items = json.loads(given.texts.read_text(encoding="utf-8"))
    data = list(examples(tokenizer, items[:given.steps * given.batch + 400]))
    held = data[:200]
    feed = batches(data[200:], given.batch, random.Random(2))

    weights = {k: jnp.asarray(v) for k, v in load_file(given.encoder / "model.safetensors").items() if v.dtype == np.float32}
    table = weights.pop("embeddings.word_embeddings.weight")
    weights = {k: v for k, v in weights.items() if not k.startswith("pooler")}
    dice = np.random.default_rng(3)
    weights["classifier.weight"] = jnp.asarray(dice.normal(0, 0.02, (len(LABELS), table.shape[1])), jnp.float32)
    weights["classifier.bias"] = jnp.zeros(len(LABELS))
    fixed = ["embeddings.", *(f"encoder.layer.{n}." for n in range(given.frozen))]
    frozen = {k: weights.pop(k) for k in list(weights) if k.startswith(tuple(fixed))}
    rate = optax.warmup_cosine_decay_schedule(0, 5e-4, given.steps // 10, given.steps, 1e-6)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))
    state = optimizer.init(weights)

    def loss(weights, ids, mask, labels):
        logits = forward(weights | frozen, table, ids, mask)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
        return (each * (labels >= 0)).sum() / jnp.maximum((labels >= 0).sum(), 1)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(weights, state, ids, mask, labels):
        value, slope = jax.value_and_grad(loss)(weights, ids, mask, labels)
        change, state = optimizer.update(slope, state, weights)
        return optax.apply_updates(weights, change), state, value

    begun = time.time()
    for n in range(given.steps):
        while given.pause and os.path.exists(given.pause):
            time.sleep(1)
        weights, state, value = step(weights, state, *next(feed))
        if n % 20 == 0 or n == given.steps - 1:
            print(f"step {n} loss {float(value):.4f} after {time.time() - begun:.0f} s", flush=True)
    weights |= frozen
    ids, mask, labels = next(batches(held, len(held) - 1, random.Random(0)))
    best = np.asarray(jax.jit(forward)(weights, table, ids, mask)).argmax(-1)
    counted = labels >= 0
    print(f"held-out words: {(best == labels)[counted].mean():.4f} right", flush=True)

    given.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(given.encoder / "tokenizer.json", given.out / "tokenizer.json")
    labels = {str(n): label for n, label in enumerate(LABELS)}
    (given.out / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": labels, "max_position_embeddings": 512}, indent=1) + "\n")
    arrays = {k: np.asarray(v) for k, v in weights.items()} | {"embeddings.word_embeddings.weight": np.asarray(table)}
    export.write(arrays, given.out, layers=LAYERS, heads=HEADS)
    export.check(given.out, ids[:2], mask[:2], np.asarray(forward(weights, table, ids[:2], mask[:2])))


if __name__ == "__main__":
    main()
