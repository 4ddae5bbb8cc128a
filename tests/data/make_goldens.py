#!/usr/bin/env python3
"""Writes the golden files of this folder; the C++ tests compare with them.

    python make_goldens.py            # all of them
    python make_goldens.py resnet     # one group: philox, sample_cnn, resnet, safetensors, npy

Logits are computed in double precision from weights and inputs rounded to float32, and the script prints how far
PyTorch's own float32 result is from them, so that a test's tolerance can be compared with something.

The ResNets have no weights in the tree: both sides generate them with fill_uniform() below. For each tensor of
torchvision's state dict except num_batches_tracked, in order of the names sorted as byte strings, k = 0, 1, 2, ...:

    seed 1000 + k, uniform in [low, high) by kind of tensor:
    conv and fc weight    +-sqrt(6 / fan_in), in double, then rounded to float32
    fc bias               +-0.1
    batch norm            RANGES below, the same for each

and the input, [2,3,64,64], is uniform in [-1, 1) with seed 1.

Needs: numpy, torch, torchvision, safetensors.
"""

import math
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
CNN = HERE.parent.parent / "examples" / "cnn"

# Batch norm: chosen so that the logits of both networks are of order 1 to 10 and every residual branch matters to them.
RANGES = {
    "weight": (0.4, 0.9),
    "bias": (-0.2, 0.2),
    "running_mean": (-0.2, 0.2),
    "running_var": (0.5, 1.5),
}


# ---- Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.


def philox4x32(counter, key):
    """counter: uint32 [n,4], key: two ints. The uint32 [n,4] of ten rounds."""
    low32, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (counter[:, lane].astype(np.uint64) for lane in range(4))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low32, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low32
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], 1).astype(np.uint32)


# Random123's published known answers for philox4x32-10: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def check_philox():
    def words(text):
        return [int(word, 16) for word in text.split()]

    for counter, key, result in KNOWN_ANSWERS:
        got = philox4x32(np.array([words(counter)], np.uint32), words(key))[0].tolist()
        assert got == words(result), f"philox4x32-10: {[f'{x:08x}' for x in got]} instead of {result}"


def random_bits(count, seed, chunk=1 << 18):
    """uint32 [count]: element i is lane i % 4 of the result.

    Counter (lo32(i / 4), hi32(i / 4), 0, 0), key (lo32(seed), hi32(seed)).
    """
    blocks = (count + 3) // 4
    out = np.empty((blocks, 4), np.uint32)
    for first in range(0, blocks, chunk):
        index = np.arange(first, min(first + chunk, blocks), dtype=np.uint64)
        counter = np.zeros((len(index), 4), np.uint32)
        counter[:, 0] = index & np.uint64(0xFFFFFFFF)
        counter[:, 1] = index >> np.uint64(32)
        out[first : first + len(index)] = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return out.reshape(-1)[:count]


def unit_uniform(count, seed):
    """float32 [count] in [0, 1): the upper 24 bits, times 2^-24; exact."""
    return (random_bits(count, seed) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def fill_uniform(shape, seed, low, high):
    """float32 in [low, high]: low + (high - low) * u, where each of the three operations rounds to float32 (no fma)."""
    low, high = np.float32(low), np.float32(high)
    u = unit_uniform(math.prod(shape), seed)
    return (low + (high - low) * u).astype(np.float32).reshape(shape)


# ---- groups of files


def save(name, array):
    path = HERE / name
    np.save(path, array)
    print(f"  {name}: {array.dtype} {list(array.shape)}, {path.stat().st_size} bytes")


def make_philox():
    save("philox_uniform.npy", unit_uniform(64, 42))


def report_gap(name, exact, single):
    scale = np.abs(exact).max()
    gap = np.abs(single - exact).max() / scale
    print(f"  {name}: max|logit| {scale:.3f}, std {exact.std():.3f}; float32 is off by {gap:.2e} * max|logit|")
    assert gap < 2e-5


def logits(model, x):
    """Of the model as it is, in double and in float32."""
    import copy

    import torch

    with torch.no_grad():
        exact = copy.deepcopy(model).double().eval()(torch.from_numpy(x).double()).numpy()
        single = copy.deepcopy(model).float().eval()(torch.from_numpy(x)).numpy()
    return exact, single


def make_sample_cnn():
    sys.path.insert(0, str(CNN))
    from safetensors import safe_open
    from safetensors.torch import load_file
    from train import SampleCnn, load_digits

    path = CNN / "sample_cnn.safetensors"
    with safe_open(path, "np") as file:
        mean, std = (np.float32(file.metadata()[key]) for key in ("mean", "std"))
    model = SampleCnn()
    model.load_state_dict(load_file(path))
    images, labels = load_digits(CNN / "data", "test")
    x = (images[:10].numpy() - mean) / std
    assert x.dtype == np.float32
    exact, single = logits(model, x)
    report_gap("sample_cnn", exact, single)
    print(f"  labels {labels[:10].tolist()}, answers {exact.argmax(1).tolist()}")
    save("sample_cnn_input.npy", x)
    save("sample_cnn_logits.npy", exact)


def synthetic_weights(state):
    """state: name -> tensor of a torchvision ResNet. The same names with generated float32 arrays."""
    out = {}
    names = sorted((name for name in state if not name.endswith("num_batches_tracked")), key=lambda name: name.encode())
    for k, name in enumerate(names):
        shape, kind = tuple(state[name].shape), name.rsplit(".", 1)[1]
        if len(shape) > 1:
            bound = np.float32(math.sqrt(6.0 / math.prod(shape[1:])))
            low, high = -bound, bound
        elif name == "fc.bias":
            low, high = -0.1, 0.1
        else:
            low, high = RANGES[kind]
        out[name] = fill_uniform(shape, 1000 + k, low, high)
    return out


def make_resnet():
    import torch
    import torchvision

    x = fill_uniform((2, 3, 64, 64), 1, -1, 1)
    for name in ("resnet18", "resnet50"):
        model = getattr(torchvision.models, name)(weights=None)
        weights = synthetic_weights(model.state_dict())
        model.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()}, strict=False)
        exact, single = logits(model, x)
        report_gap(name, exact, single)
        save(f"{name}_logits.npy", exact)


def make_safetensors():
    """Each dtype that the reader knows, a scalar, an empty tensor, metadata: as the reference library writes them.

    The order of the two entries of the metadata differs from run to run.
    """
    import torch
    from safetensors.torch import save_file

    path = HERE / "reference_mixed.safetensors"
    save_file(
        {
            "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4 - 0.5,
            "f16": torch.tensor([0.0, -1.0, 0.5, 65504.0, 2.0**-24, float("inf")], dtype=torch.float16),
            "bf16": torch.tensor([[1.0, -2.0], [3.140625, 2.0**100]], dtype=torch.bfloat16),
            "i64": torch.tensor([0, 1, -1, 2**40, -(2**63), 2**63 - 1], dtype=torch.int64),
            "u8": torch.tensor([0, 1, 127, 128, 255], dtype=torch.uint8),
            "bool": torch.tensor([True, False, True], dtype=torch.bool),
            "scalar": torch.tensor(2.5, dtype=torch.float32),
            "empty": torch.empty((0, 3), dtype=torch.float32),
        },
        path,
        metadata={"format": "pt", "note": 'quotes " and \u00fcn\u00efcode'},
    )
    print(f"  {path.name}: {path.stat().st_size} bytes")


def make_npy():
    """All hold 2 x 3 elements: 0.5 * i - 1 for floats, i - 3 for integers, i % 2 for bool; i counts in C order."""
    count = np.arange(6).reshape(2, 3)
    real = count * 0.5 - 1
    save("npy_f4.npy", real.astype("<f4"))
    save("npy_f8.npy", real.astype("<f8"))
    save("npy_f2.npy", real.astype("<f2"))
    save("npy_i8.npy", (count - 3).astype("<i8"))
    save("npy_fortran.npy", np.asfortranarray(real.astype("<f4")))
    save("npy_bool.npy", count % 2 == 1)
    save("npy_big_endian.npy", real.astype(">f4"))


GROUPS = {
    "philox": make_philox,
    "sample_cnn": make_sample_cnn,
    "resnet": make_resnet,
    "safetensors": make_safetensors,
    "npy": make_npy,
}

if __name__ == "__main__":
    check_philox()
    for group in sys.argv[1:] or GROUPS:
        print(group)
        GROUPS[group]()
