"""Writes a BERT token classifier as ONNX: in 32-bit floats, and with its matrices in 8 bits."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.count = [], [], 0

    def constant(self, array, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, *inputs, out=None, **attributes):
        self.count += 1
        out = out or f"n{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}_{self.count}", **attributes))
        return out


def dense(g, weights, name, x, out=None):
    product = g.op("MatMul", x, g.constant(weights[f"{name}.weight"].T))
    return g.op("Add", product, g.constant(weights[f"{name}.bias"]), out=out)


def norm(g, weights, name, x):
    scale, bias = (g.constant(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)


def gelu(g, x):
    bent = g.op("Erf", g.op("Div", x, g.constant(np.float32(np.sqrt(2.0)))))
    half = g.op("Mul", x, g.op("Add", bent, g.constant(np.float32(1.0))))
    return g.op("Mul", half, g.constant(np.float32(0.5)))


def attention(g, weights, at, x, far, heads, size):
    shape = g.constant(np.array([0, 0, heads, size], np.int64))
    flat = g.constant(np.array([0, 0, heads * size], np.int64))
    parts = [g.op("Reshape", dense(g, weights, f"{at}.self.{w}", x), shape) for w in ("query", "key", "value")]
    q, k, v = (g.op("Transpose", y, perm=perm) for y, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
    near = g.op("Div", g.op("MatMul", q, k), g.constant(np.float32(np.sqrt(size))))
    y = g.op("MatMul", g.op("Softmax", g.op("Add", near, far), axis=-1), v)
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), flat)
    return dense(g, weights, f"{at}.output.dense", y)


def model(weights, layers, heads):
    g = Graph()
    hidden = weights["embeddings.word_embeddings.weight"].shape[1]
    one, zero = g.constant(np.array([1], np.int64)), g.constant(np.array([0], np.int64))
    x = g.op("Gather", g.constant(weights["embeddings.word_embeddings.weight"], "words"), "input_ids")
    length = g.op("Slice", g.op("Shape", "input_ids"), one, g.constant(np.array([2], np.int64)))
    x = g.op("Add", x, g.op("Slice", g.constant(weights["embeddings.position_embeddings.weight"]), zero, length, zero))
    x = g.op("Add", x, g.op("Gather", g.constant(weights["embeddings.token_type_embeddings.weight"]), "token_type_ids"))
    x = norm(g, weights, "embeddings.LayerNorm", x)
    mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), g.constant(np.array([1, 2], np.int64)))
    far = g.op("Mul", g.op("Sub", g.constant(np.float32(1.0)), mask), g.constant(np.float32(-1e4)))
    for n in range(layers):
        at = f"encoder.layer.{n}"
        x = norm(g, weights, f"{at}.attention.output.LayerNorm", g.op("Add", x, attention(g, weights, f"{at}.attention", x, far, heads, hidden // heads)))
        y = dense(g, weights, f"{at}.output.dense", gelu(g, dense(g, weights, f"{at}.intermediate.dense", x)))
        x = norm(g, weights, f"{at}.output.LayerNorm", g.op("Add", x, y))
    dense(g, weights, "classifier", x, out="logits")
    axes = ["batch", "sequence"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, axes) for n in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*axes, len(weights["classifier.bias"])])
    graph = helper.make_graph(g.nodes, "token-classifier", inputs, [output], g.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def write(weights, folder, layers, heads):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    onnx.save(model(weights, layers, heads), folder / "model.onnx")
    quantize_dynamic(folder / "model.onnx", folder / "model.int8.onnx", weight_type=QuantType.QInt8)


def check(folder, ids, mask, expected):
    """Fails unless the file computes what was trained."""
    import onnxruntime

    given = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros(ids.shape, np.int64)}
    for name, most in (("model.onnx", 1e-3), ("model.int8.onnx", np.inf)):
        got = onnxruntime.InferenceSession(str(folder / name)).run(None, given)[0]
        off = np.abs(got - expected)[mask > 0].max()
        print(f"{name}: at most {off:.5f} from what was trained")
        assert off < most, name
