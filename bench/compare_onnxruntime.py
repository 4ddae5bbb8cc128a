#!/usr/bin/env python3
"""Burin against ONNX Runtime on this machine's CPU: SampleCnn at batch 10, ResNet-50 at batch 1 (3 x 224 x 224).

    python -m venv venv && venv/bin/pip install numpy onnx onnxruntime
    venv/bin/python bench/compare_onnxruntime.py --burin-bench build/release/bench/model_bench

Both sides run float32 networks of the same architecture with random weights, all graph optimisations on, --threads
threads. They take turns, --rounds times, so that a slow spell of the machine falls on both. One sample is the mean time
of a run over a block of about --min-time seconds, on both sides, after a warm-up: for Burin a block is a repetition of
Google Benchmark, for ONNX Runtime the same is done here. Hence p10 and p90 say how steady the machine was, not how the
single runs spread; for ONNX Runtime the single runs are shown in a line of their own. ratio is Burin's median over ONNX
Runtime's: below 1, Burin is faster.

Without --burin-bench, or if the program is not there, only ONNX Runtime is measured. The number of Burin's threads is
Burin's own business: pass what sets it with --burin-arg, or give both sides the same CPUs with --cpus.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


class GraphBuilder:
    """Collects nodes and random weights; each method returns the name of its output."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, shape, low, high):
        name = f"w{len(self.weights)}"
        values = self.random.uniform(low, high, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind, inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def conv(self, x, inputs, outputs, size, stride=1, padding=0, bias=False):
        bound = math.sqrt(6 / (inputs * size * size))
        names = [x, self.weight((outputs, inputs, size, size), -bound, bound)]
        if bias:
            names.append(self.weight((outputs,), -0.1, 0.1))
        return self.node("Conv", names, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[padding] * 4)

    def batch_norm(self, x, channels):
        ranges = [(0.4, 0.9), (-0.2, 0.2), (-0.2, 0.2), (0.5, 1.5)]  # scale, bias, mean, variance
        return self.node("BatchNormalization", [x, *(self.weight((channels,), *r) for r in ranges)], epsilon=1e-5)

    def relu(self, x):
        return self.node("Relu", [x])

    def max_pool(self, x, size, stride, padding=0):
        return self.node("MaxPool", [x], kernel_shape=[size] * 2, strides=[stride] * 2, pads=[padding] * 4)

    def linear(self, x, inputs, outputs):
        bound = math.sqrt(6 / inputs)
        names = [x, self.weight((outputs, inputs), -bound, bound), self.weight((outputs,), -0.1, 0.1)]
        return self.node("Gemm", names, transB=1)

    def model(self, name, output, input_shape, classes):
        self.nodes[-1].output[0] = "y"
        assert output == f"t{len(self.nodes) - 1}"
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [input_shape[0], classes])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def sample_cnn(batch):
    b = GraphBuilder(1)
    x = b.max_pool(b.relu(b.conv("x", 1, 32, 3, bias=True)), 2, 2)
    x = b.max_pool(b.relu(b.conv(x, 32, 64, 3, bias=True)), 2, 2)
    x = b.linear(b.node("Flatten", [x], axis=1), 1600, 10)
    return b.model("sample_cnn", x, [batch, 1, 28, 28], 10)


def resnet50(batch):
    """As torchvision has it: the stride is on the 3 x 3 convolution."""
    b = GraphBuilder(2)
    x = b.relu(b.batch_norm(b.conv("x", 3, 64, 7, 2, 3), 64))
    x = b.max_pool(x, 3, 2, 1)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = b.relu(b.batch_norm(b.conv(x, inputs, width, 1), width))
            y = b.relu(b.batch_norm(b.conv(y, width, width, 3, stride, 1), width))
            y = b.batch_norm(b.conv(y, width, 4 * width, 1), 4 * width)
            if block == 0:
                x = b.batch_norm(b.conv(x, inputs, 4 * width, 1, stride), 4 * width)
            x = b.relu(b.node("Add", [y, x]))
            inputs = 4 * width
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x])], axis=1)
    return b.model("resnet50", b.linear(x, 2048, 1000), [batch, 3, 224, 224], 1000)


# Name of Burin's benchmark -> model, shape of its input.
CASES = {
    "sample_cnn/cpu/batch:10": (sample_cnn(10), (10, 1, 28, 28)),
    "resnet50/cpu/batch:1": (resnet50(1), (1, 3, 224, 224)),
}


class OnnxRuntime:
    """One session and its samples in seconds: block_means as Google Benchmark takes them, and single runs."""

    def __init__(self, model, shape, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.feed = {"x": np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32)}
        self.block_means, self.runs = [], []

    def run_for(self, seconds):
        """Times of single runs, until they add up."""
        run, feed, clock, times = self.session.run, self.feed, time.perf_counter, []
        end = clock() + seconds
        while not times or clock() < end:
            start = clock()
            run(None, feed)
            times.append(clock() - start)
        return times

    def measure(self, repetitions, min_time):
        self.run_for(min_time)  # warm-up
        for _ in range(repetitions):
            times = self.run_for(min_time)
            self.block_means.append(sum(times) / len(times))
            self.runs += times


UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def measure_burin(program, name, repetitions, min_time, extra):
    """Mean seconds of a run, for each repetition; the reason if there are none."""
    command = [
        str(program),
        f"--benchmark_filter=^{name}(/|$)",  # Google Benchmark may add /real_time and the like
        "--benchmark_format=json",
        f"--benchmark_repetitions={repetitions}",
        f"--benchmark_min_time={min_time}",
        f"--benchmark_min_warmup_time={min_time}",
        *extra,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        benchmarks = json.loads(done.stdout[done.stdout.index("{") :])["benchmarks"]
    except subprocess.CalledProcessError as error:
        return [], f"exit status {error.returncode}: {(error.stderr or error.stdout).strip()[-300:]}"
    except (OSError, ValueError, KeyError) as error:
        return [], f"no result: {error}"
    samples = []
    for entry in benchmarks:
        if entry.get("error_occurred") or entry.get("skipped"):
            return [], entry.get("error_message") or entry.get("skip_message") or "skipped"
        if entry.get("run_type", "iteration") == "iteration":
            samples.append(entry["real_time"] * UNITS[entry["time_unit"]])
    return samples, None if samples else "no such benchmark"


def cpu_model():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return platform.processor() or platform.machine()


def usable_cpus():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def parse_cpus(text):
    cpus = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def row(case, side, samples, ratio=""):
    p10, median, p90 = np.percentile(np.array(samples) * 1e3, [10, 50, 90])
    return f"{case:26}{side:28}{median:11.3f}{p10:11.3f}{p90:11.3f}{len(samples):8}{ratio:>8}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--burin-bench", type=Path, help="Burin's benchmark program (Google Benchmark)")
    parser.add_argument("--burin-arg", action="append", default=[], help="passed on to it; may be repeated")
    parser.add_argument("--threads", type=int, help="ONNX Runtime's intra-op threads; default: all CPUs")
    parser.add_argument("--cpus", type=parse_cpus, help="run both sides on these CPUs only, such as 0-3,8 (Linux)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=5, help="blocks in each round and on each side")
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds a block")
    args = parser.parse_args()

    if args.cpus:
        os.sched_setaffinity(0, args.cpus)  # inherited by ONNX Runtime's threads and by Burin
    threads = args.threads or usable_cpus()
    program = args.burin_bench
    if program and not program.is_file():
        print(f"{program} is not there: ONNX Runtime only", file=sys.stderr)
        program = None

    print(f"CPU: {cpu_model()}, {usable_cpus()} logical CPUs used of {os.cpu_count()}; {platform.platform()}")
    print(f"onnxruntime {ort.__version__} with {threads} threads, onnx {onnx.__version__}, numpy {np.__version__}")
    if hasattr(os, "getloadavg"):
        print(f"load average at the start: {os.getloadavg()[0]:.2f}")

    print(f"\n{'benchmark':26}{'side':28}{'median ms':>11}{'p10 ms':>11}{'p90 ms':>11}{'samples':>8}{'ratio':>8}")
    for name, (model, shape) in CASES.items():
        reference = OnnxRuntime(model, shape, threads)
        burin, reason = [], None
        for _ in range(args.rounds):
            reference.measure(args.repetitions, args.min_time)
            if program and not reason:
                samples, reason = measure_burin(program, name, args.repetitions, args.min_time, args.burin_arg)
                burin += samples
        print(row(name, "onnxruntime", reference.block_means, "1.00"))
        print(row("", "onnxruntime, single runs", reference.runs))
        if burin:
            ratio = np.median(burin) / np.median(reference.block_means)
            print(row("", "burin", burin, f"{ratio:.2f}"))
        if reason:
            print(f"{'':26}burin: {reason}")


if __name__ == "__main__":
    main()
