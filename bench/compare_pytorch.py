#!/usr/bin/env python3
"""Burin's forward passes beside PyTorch's on a GPU, in one run: host to host, one call and one wait each.

    python bench/compare_pytorch.py --burin-bench build/release/bench/model_bench

PyTorch runs eager, and as one CUDA graph, with cudnn.benchmark on, channels-last, and TF32 only where the case says so.
Burin runs eager. The rounds of both alternate; figures are medians, in microseconds.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
from torch import nn

CASES = [  # Burin's benchmark, model, input, dtype, tf32
    ("sample_cnn/cuda/batch:10", "sample_cnn", (10, 1, 28, 28), torch.float32, False),
    ("sample_cnn/cuda_tf32/batch:10", "sample_cnn", (10, 1, 28, 28), torch.float32, True),
    ("sample_cnn/cuda_f16/batch:10", "sample_cnn", (10, 1, 28, 28), torch.float16, False),
    ("resnet50/cuda/batch:1", "resnet50", (1, 3, 224, 224), torch.float32, False),
    ("resnet50/cuda_tf32/batch:1", "resnet50", (1, 3, 224, 224), torch.float32, True),
    ("resnet50/cuda_f16/batch:1", "resnet50", (1, 3, 224, 224), torch.float16, False),
]


def sample_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 10),
    )  # fmt: skip


def make(kind):
    if kind == "sample_cnn":
        return sample_cnn()
    from torchvision.models import resnet50

    return resnet50(weights=None)


def time_calls(call, seconds):
    """Medians of single calls in microseconds, each waited for."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 20:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def capture(model, x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph


def burin_samples(program, name, seconds):
    command = [program, f"--benchmark_filter=^{name}(/|$)", "--benchmark_format=json", "--benchmark_repetitions=5",
               f"--benchmark_min_time={seconds / 5}"]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    runs = json.loads(output[output.index("{") :])["benchmarks"]
    for run in runs:
        if run.get("error_occurred"):
            raise SystemExit(f"{name}: {run['error_message']}")
    return [run["real_time"] for run in runs if run.get("run_type") == "iteration"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--burin-bench", required=True, help="Burin's model_bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement in a round")
    args = parser.parse_args()

    print(f"GPU {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}\n")
    print("| forward pass | PyTorch eager us | PyTorch CUDA graph us | Burin eager us | Burin / PyTorch eager |")
    print("|---|---|---|---|---|")
    torch.backends.cudnn.benchmark = True
    for name, kind, shape, dtype, tf32 in CASES:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        model = make(kind).cuda().eval().to(dtype=dtype, memory_format=torch.channels_last)
        x = torch.rand(shape, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
        eager, graphed, burin = [], [], []
        with torch.inference_mode():
            graph = capture(model, x)
            for _ in range(args.rounds):
                eager += time_calls(lambda: model(x), args.seconds)
                graphed += time_calls(graph.replay, args.seconds)
                burin += burin_samples(args.burin_bench, name, args.seconds)
        e, g, b = (statistics.median(v) for v in (eager, graphed, burin))
        print(f"| {name} | {e:.1f} | {g:.1f} | {b:.1f} | {b / e:.2f} |", flush=True)


if __name__ == "__main__":
    main()
