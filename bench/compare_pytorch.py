#!/usr/bin/env python3
"""Burin's forward passes beside PyTorch's at its best, on one GPU in one run.

    python bench/compare_pytorch.py --burin-bench build/release/bench/graph_bench [--compile] [--json FILE]

PyTorch runs eager, as one CUDA graph and, with --compile, as torch.compile makes it in the modes reduce-overhead and
max-autotune; with batch norms folded into the convolutions, cudnn.benchmark on, TF32 only where the case says so, and in
the layout, contiguous or channels-last, whose CUDA graph is faster. Burin runs eager and by a GraphExecutor. Two figures
each, medians in microseconds: `call` waits for each call, `queue` waits once behind a hundred calls. All sides take turns,
--rounds times. The last columns divide: below 1, Burin is faster.

A compilation runs in a process of its own, which is ended if it is not ready within --compile-limit seconds. Nothing is
fetched; torchvision is not needed.
"""

import argparse
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

MODELS = {  # input without the batch, batches
    "sample_cnn": ((1, 28, 28), (1, 10, 256)),
    "resnet18": ((3, 224, 224), (1, 8, 64)),
    "resnet50": ((3, 224, 224), (1, 8, 64)),
}
PRECISIONS = {"f32": (torch.float32, False), "tf32": (torch.float32, True), "f16": (torch.float16, False)}
COMPILE_MODES = ("reduce-overhead", "max-autotune")
WAITS = ("call", "queue")
QUEUED = 100
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def conv_bn(channels_in, channels_out, kernel, stride):
    """A convolution with the batch norm behind it folded in."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False).eval()
    return fuse_conv_bn_eval(conv, nn.BatchNorm2d(channels_out).eval())


class Block(nn.Module):
    def __init__(self, channels_in, width, stride, bottleneck):
        super().__init__()
        out = width * 4 if bottleneck else width
        if bottleneck:
            convs = [conv_bn(channels_in, width, 1, 1), conv_bn(width, width, 3, stride), conv_bn(width, out, 1, 1)]
        else:
            convs = [conv_bn(channels_in, width, 3, stride), conv_bn(width, out, 3, 1)]
        self.convs = nn.ModuleList(convs)
        changes = stride != 1 or channels_in != out
        self.shortcut = conv_bn(channels_in, out, 1, stride) if changes else nn.Identity()

    def forward(self, x):
        y = x
        for conv in self.convs[:-1]:
            y = torch.relu_(conv(y))
        return torch.relu_(self.convs[-1](y).add_(self.shortcut(x)))


def resnet(depths, bottleneck):
    layers = [conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for i in range(depth):
            layers.append(Block(channels, width, 2 if stage > 0 and i == 0 else 1, bottleneck))
            channels = width * 4 if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def make(model):
    if model == "resnet18":
        return resnet((2, 2, 2, 2), bottleneck=False)
    if model == "resnet50":
        return resnet((3, 4, 6, 3), bottleneck=True)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 10),
    )  # fmt: skip


def prepare(model, precision, batch, layout):
    """The network and an input for it, on the GPU."""
    dtype, tf32 = PRECISIONS[precision]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    memory_format = LAYOUTS[layout]
    network = make(model).cuda().eval().to(dtype=dtype, memory_format=memory_format)
    x = torch.rand((batch, *MODELS[model][0]), device="cuda", dtype=dtype).contiguous(memory_format=memory_format)
    return network, x


def capture(network, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            network(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network(x)
    return graph


def time_calls(call, wait, seconds):
    """Microseconds of single calls, each waited for, or of calls in a queue."""
    count = QUEUED if wait == "queue" else 1
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6 / count)
    return times


def best_layout(model, precision, batch):
    medians = {}
    for layout in LAYOUTS:
        network, x = prepare(model, precision, batch, layout)  # which the graph reads
        graph = capture(network, x)
        time_calls(graph.replay, "call", 0.05)
        medians[layout] = statistics.median(time_calls(graph.replay, "call", 0.1))
    return min(medians, key=medians.get)


class Compiled:
    """A compiled network in a process of its own, which times it when it is asked to."""

    def __init__(self, mode, model, precision, batch, layout, limit):
        command = [sys.executable, __file__, "--serve", mode, model, precision, str(batch), layout]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1, start_new_session=True)  # fmt: skip
        self.failure = None
        try:
            self.read(limit)
        except RuntimeError as error:
            self.failure = str(error)
            self.close()  # at once: it would go on compiling beside what is timed

    def read(self, limit):
        """The next line that the process answers with."""
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        if not ready:
            raise RuntimeError(f"not ready within {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["times"]

    def time_calls(self, wait, seconds):
        """Nothing if the process has failed."""
        if self.failure:
            return []
        try:
            print(wait, seconds, file=self.process.stdin, flush=True)
            return self.read(60 + 10 * seconds)
        except (RuntimeError, BrokenPipeError) as error:
            self.failure = str(error)
            return []

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the compiler has workers
        except ProcessLookupError:
            pass
        self.process.wait()


def serve(mode, model, precision, batch, layout):
    """The process of a Compiled: answers on standard output, a line of JSON each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the compiler may print

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    try:
        network, x = prepare(model, precision, int(batch), layout)
        compiled = torch.compile(network, mode=mode, fullgraph=True, dynamic=False)
        with torch.inference_mode():
            for _ in range(10):
                compiled(x)
            torch.cuda.synchronize()
            answer(times=[])
            for line in sys.stdin:
                wait, seconds = line.split()
                answer(times=time_calls(lambda: compiled(x), wait, float(seconds)))
    except Exception as error:  # told to the process that started this one
        answer(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def burin_samples(program, model, precision, batch, seconds):
    """By (mode, wait): microseconds. One process, for both modes share the network."""
    pattern = f"^{model}/{precision}/batch:{batch}/(eager|graph)/({'|'.join(WAITS)})/"
    command = [program, f"--benchmark_filter={pattern}", "--benchmark_format=json", f"--benchmark_min_time={seconds}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    samples = {}
    for run in json.loads(done.stdout[done.stdout.index("{") :])["benchmarks"]:
        if run.get("error_occurred"):
            raise SystemExit(f"{run['name']}: {run['error_message']}")
        label = dict(word.split("=") for word in run["label"].split())
        samples[label["mode"], label["wait"]] = run.get("p50_us", run["real_time"])
    return samples


def measure(model, precision, batch, args):
    """The rows of one case, one for each way to wait."""
    samples, failures = {}, {}

    def add(side, wait, values):
        if values:
            samples.setdefault((side, wait), []).extend(values)

    with torch.inference_mode():
        layout = best_layout(model, precision, batch)
        network, x = prepare(model, precision, batch, layout)
        calls = {"eager": lambda: network(x), "graph": capture(network, x).replay}
        modes = COMPILE_MODES if args.compile else ()
        compiled = {mode: Compiled(mode, model, precision, batch, layout, args.compile_limit) for mode in modes}
        try:
            for _ in range(args.rounds):
                for wait in WAITS:
                    for side, call in calls.items():
                        add(f"pytorch_{side}", wait, time_calls(call, wait, args.seconds))
                    for mode, worker in compiled.items():
                        add(f"pytorch_{mode}", wait, worker.time_calls(wait, args.seconds))
                for (mode, wait), us in burin_samples(args.burin_bench, model, precision, batch, args.seconds).items():
                    add(f"burin_{mode}", wait, [us])
        finally:
            for mode, worker in compiled.items():
                worker.close()
                if worker.failure:
                    failures[mode] = worker.failure
                    print(f"{model} {precision} batch {batch}, {mode}: {worker.failure}", file=sys.stderr)

    rows = []
    for wait in WAITS:
        us = {side: statistics.median(values) for (side, of), values in samples.items() if of == wait}
        best = min((side for side in us if side.startswith("pytorch_")), key=us.get)
        rows.append({"model": model, "precision": precision, "batch": batch, "wait": wait, "pytorch_layout": layout,
                     "us": us, "pytorch_best": best, "failures": failures,
                     "eager_ratio": us["burin_eager"] / us["pytorch_eager"],
                     "graph_ratio": us["burin_graph"] / us["pytorch_graph"],
                     "best_ratio": us["burin_graph"] / us[best]})  # fmt: skip
    return rows


def table_row(row, sides):
    us = [f"{row['us'][side]:.1f}" if side in row["us"] else "-" for side in sides]
    ratios = [f"{row[ratio]:.2f}" for ratio in ("eager_ratio", "graph_ratio", "best_ratio")]
    return f"| {row['model']} {row['precision']} batch {row['batch']} | {row['wait']} | " + " | ".join(us + ratios) + " |"


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--burin-bench", required=True, help="Burin's graph_bench")
    parser.add_argument("--filter", default="", help="a regular expression of cases, such as 'resnet50/f16/8$'")
    parser.add_argument("--precisions", nargs="+", default=["f32", "f16"], choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement in a round")
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--compile-limit", type=float, default=120, help="seconds that one compilation may take")
    parser.add_argument("--json", help="writes all figures to this file, after each case")
    args = parser.parse_args()

    environment = {"gpu": torch.cuda.get_device_name(), "pytorch": torch.__version__, "cuda": torch.version.cuda,
                   "cudnn": torch.backends.cudnn.version(), "rounds": args.rounds, "seconds": args.seconds}  # fmt: skip
    print(f"GPU {environment['gpu']}, PyTorch {environment['pytorch']}, cuDNN {environment['cudnn']}\n")
    sides = ["pytorch_eager", "pytorch_graph", *(f"pytorch_{mode}" for mode in COMPILE_MODES if args.compile),
             "burin_eager", "burin_graph"]  # fmt: skip
    titles = [side.replace("pytorch_", "PyTorch ").replace("burin_", "Burin ") + " us" for side in sides]
    titles += ["Burin eager / PyTorch eager", "Burin graph / PyTorch graph", "Burin graph / PyTorch's best"]
    print("| forward pass | wait | " + " | ".join(titles) + " |")
    print("|---|---|" + "---:|" * len(titles))
    rows = []
    for model, (_, batches) in MODELS.items():
        for precision in args.precisions:
            for batch in batches:
                if not re.search(args.filter, f"{model}/{precision}/{batch}"):
                    continue
                for row in measure(model, precision, batch, args):
                    rows.append(row)
                    print(table_row(row, sides), flush=True)
                if args.json:
                    with open(args.json, "w", encoding="utf-8") as file:
                        json.dump({"environment": environment, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
