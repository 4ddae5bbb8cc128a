#!/usr/bin/env python3
"""Trains SampleCnn, the digit classifier of examples/cnn, and writes sample_cnn.safetensors.

    python train.py --data data --out sample_cnn.safetensors

Network: Conv2d(1,32,3) - ReLU - MaxPool2d(2) - Conv2d(32,64,3) - ReLU - MaxPool2d(2) - Flatten - Linear(1600,10).
Tensors: conv1.weight, conv1.bias, conv2.weight, conv2.bias, fc.weight, fc.bias, all float32.

Input: float32, pixel / 255 (0 = background, 1 = ink), then (x - mean) / std. The network does not hold this step: mean
and std are strings in the metadata of the file, and whoever runs the network applies them.

The recipe (augmentation, schedule, averaging, epochs) is to be judged with --holdout, by accuracy on training digits
left out of the training: with --holdout 1500 it is 1,486 of 1,500. The shipped weights come from the same recipe on all
training digits. The test digits are read after the last step of training, for the figure printed at the end, and for
nothing else.

Needs: torch, safetensors, numpy. The result is a function of the seed and of --threads on one machine and torch
version; elsewhere it may differ in the last digits and so, slightly, in accuracy.
"""

import argparse
import gzip
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

MEAN = 0.1307
STD = 0.3081


class SampleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(1600, 10)

    def features(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return torch.flatten(x, 1)

    def forward(self, x, dropout=0.0):
        return self.fc(F.dropout(self.features(x), dropout, self.training))


def read_idx(path):
    """The array in a gzip-compressed IDX file of bytes."""
    data = gzip.decompress(Path(path).read_bytes())
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, 4).astype(int)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load_digits(folder, split):
    """Images as float32 [n,1,28,28] in [0, 1], labels as int64 [n]. split: train or test."""
    images = read_idx(Path(folder) / f"{split}-images-idx3-ubyte.gz")
    labels = read_idx(Path(folder) / f"{split}-labels-idx1-ubyte.gz")
    return (
        torch.from_numpy(images.astype(np.float32) / np.float32(255)).unsqueeze(1),
        torch.from_numpy(labels.astype(np.int64)),
    )


def normalise(x):
    return (x - MEAN) / STD


def augment(x):
    """Each image turned, scaled, sheared and shifted a little; x in [0, 1], so that what moves in is background."""
    n = x.shape[0]

    def uniform(limit):
        return (torch.rand(n) * 2 - 1) * limit

    angle, shear = uniform(math.radians(12)), uniform(0.15)
    sx, sy = 1 + uniform(0.12), 1 + uniform(0.12)
    cos, sin = torch.cos(angle), torch.sin(angle)
    # The inverse map, from output to input coordinates in [-1, 1]; one pixel is 2 / 28.
    theta = torch.stack(
        [
            torch.stack([cos * sx, (shear * cos - sin) * sy, uniform(2 * 2 / 28)], 1),
            torch.stack([sin * sx, (shear * sin + cos) * sy, uniform(2 * 2 / 28)], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


@torch.no_grad()
def count_correct(model, images, labels, batch=500):
    model.eval()
    return sum(
        int((model(normalise(x)).argmax(1) == y).sum())
        for x, y in zip(images.split(batch), labels.split(batch))
    )


def train(images, labels, epochs, batch, peak_rate, report):
    """A SampleCnn trained with AdamW, one-cycle rate; its weights are the running average of the steps'."""
    model = SampleCnn()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.998))
    optimiser = torch.optim.AdamW(model.parameters(), lr=peak_rate, weight_decay=0.02)
    steps_per_epoch = math.ceil(len(images) / batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, peak_rate, epochs * steps_per_epoch, pct_start=0.15, div_factor=10, final_div_factor=100
    )
    for epoch in range(epochs):
        model.train()
        start, total = time.monotonic(), 0.0
        for chosen in torch.randperm(len(images)).split(batch):
            x = normalise(augment(images[chosen]))
            loss = F.cross_entropy(model(x, dropout=0.3), labels[chosen], label_smoothing=0.03)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            averaged.update_parameters(model)
            total += loss.item() * len(chosen)
        report(epoch, total / len(images), time.monotonic() - start, averaged.module)
    return averaged.module.eval()


def sort_header(path):
    """The library writes metadata in an order that differs from run to run; sorted, equal weights give equal files."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(data[:8] + header.ljust(end - 8) + data[end:])


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=here / "data", help="folder of the IDX files")
    parser.add_argument("--out", type=Path, default=here / "sample_cnn.safetensors")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--holdout",
        type=int,
        default=0,
        help="train without the last N training digits, report accuracy on them, read no test digit and write nothing",
    )
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)

    images, labels = load_digits(args.data, "train")
    kept = len(images) - args.holdout
    held_images, held_labels = images[kept:], labels[kept:]

    def report(epoch, loss, seconds, model):
        line = f"epoch {epoch + 1:3}/{args.epochs}  loss {loss:.4f}  {seconds:.1f} s"
        if args.holdout:
            line += f"  held out {count_correct(model, held_images, held_labels)}/{args.holdout}"
        print(line, flush=True)

    model = train(images[:kept], labels[:kept], args.epochs, args.batch, args.rate, report)
    if args.holdout:
        return

    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        args.out,
        metadata={
            "model": "SampleCnn",
            "input": "float32 [n,1,28,28]: pixel / 255 (0 = background, 1 = ink), then (x - mean) / std",
            "mean": str(MEAN),
            "std": str(STD),
            "classes": "0 1 2 3 4 5 6 7 8 9",
        },
    )
    sort_header(args.out)
    test_images, test_labels = load_digits(args.data, "test")
    correct = count_correct(model, test_images, test_labels)
    total = len(test_labels)
    print(f"{args.out.name}: {correct} of {total} test digits right, {100 * correct / total:.2f} %")


if __name__ == "__main__":
    main()
