"""Weights files for tests/test_safetensors.c and the seeds of its fuzz target.

usage: make_safetensors.py   (needs NumPy, PyTorch and safetensors; writes ../fuzz/corpus/safetensors)

python_*  files of Python's safetensors; test_safetensors.c knows the values of python_types
wrong_*   files that must be refused
text_*    header, a zero byte, values: the fuzz target puts the length in front of what begins with '{'
"""
import json
import os
import struct

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "safetensors")


def save(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def raw(header, values=b"", length=None):
    """A file of a header, given as text or as an object."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + values


def types():
    """Of every type the values 0, 1, 2 and its extremes; all finite in single precision."""
    tensors = {}
    for name in "float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8".split():
        t = getattr(torch, name)
        if t.is_floating_point:
            info = torch.finfo(t)
            tiny = {"float32": 2.0 ** -149, "float16": 2.0 ** -24, "bfloat16": 2.0 ** -133,
                    "float64": 2.0 ** -149}[name]
            extremes = [tiny, 1 - info.eps, -1e38 if name == "float64" else info.max]
        else:
            info = torch.iinfo(t)
            extremes = [info.min, info.max - 1, info.max]
        tensors[name] = torch.tensor([0, 1, 2] + extremes, dtype=t).reshape(2, 3)
    tensors["bool"] = torch.tensor([[False, True, True], [True, False, True]])
    tensors["scalar.num_batches_tracked"] = torch.tensor(12345)
    tensors["empty"] = torch.zeros(3, 0, 2)
    return tensors


def python_files():
    save("python_types", safetensors.torch.save(types(), {"format": "pt"}))
    save("python_none", safetensors.numpy.save({}))
    save("python_names", safetensors.numpy.save(
        {"a\"b\\c/d\n": np.ones(2, np.float32), "\u00e9\u6f22\U0001f600": np.zeros((1, 1), np.float16),
         " ": np.arange(3)}, {"\u00fc": "\u00df\"\n"}))
    layer = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    torch.manual_seed(1)
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    save("python_layer", safetensors.torch.save(layer.state_dict(), {"format": "pt"}))


def wrong_files():
    two = {"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [1], 8, 12)}
    good = raw(two, bytes(12))
    save("wrong_short", good[:5])
    save("wrong_cut", good[:-1])
    save("wrong_rest", good + b"\0")
    save("wrong_length", raw(two, bytes(12), 1 << 40))
    save("wrong_hole", raw({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 8, 12)}, bytes(12)))
    save("wrong_overlap", raw({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12)))
    save("wrong_twice", raw(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                            b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'))
    save("wrong_type", raw({"a": tensor("F8_E4M3", [1], 0, 1)}, bytes(1)))
    save("wrong_product", raw({"a": tensor("F32", [1 << 62, 4, 0], 0, 0)}))
    save("wrong_negative", raw({"a": tensor("F32", [-1, -2], 0, 8)}, bytes(8)))
    save("wrong_nan", raw({"a": tensor("F16", [2], 0, 4)}, b"\0\0\0\x7e"))
    save("wrong_array", raw(b"[1, 2]"))
    save("wrong_deep", raw(b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"))


def texts():
    one = json.dumps({"__metadata__": {"k": "v"}, "\u00e9\n": tensor("BF16", [1, 2], 0, 4)})
    save("text_one", one.encode() + b"  \0" + bytes(range(60, 64)))
    many = {"t%d" % k: tensor("I16", [k], k * (k - 1), k * (k + 1)) for k in range(4)}
    save("text_many", json.dumps(many, separators=(",", ":")).encode() + b"\0" + bytes(12))
    save("text_rank8", json.dumps({"r": tensor("F64", [1] * 8, 0, 8)}).encode() + b"\0" + bytes(8))
    save("text_nul", b'{"a\\u0000b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}\0\1')


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    python_files()
    wrong_files()
    texts()
