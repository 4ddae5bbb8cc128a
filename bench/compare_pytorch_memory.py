#!/usr/bin/env python3
"""Burin's memory pool beside PyTorch's caching allocator on a GPU, in one run.

    python bench/compare_pytorch_memory.py --memory-bench build/release/bench/memory_bench \\
        --trace-bench build/release/bench/memory_trace_bench [--json FILE]

The cost of an allocation and its release, from memory that was there before: the allocator called from C++ (a small
extension, built here; left out where that fails), a tensor made in C++, and both from Python, whose own cost is inside.
Then one trace of allocations, through each allocator in a process of its own. Figures of cost are medians, in
nanoseconds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

SIZES = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30]
TRACE = pathlib.Path(__file__).parent / "runtime" / "traces" / "inference.txt"

EXTENSION = r"""
#include <chrono>
#include <c10/cuda/CUDACachingAllocator.h>

template <class Step>
double time_ns(int64_t count, Step&& step) {
  step();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) step();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / count;
}

double allocator_ns(int64_t bytes, int64_t count) {
  return time_ns(count, [&] {
    void* data = c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
    c10::cuda::CUDACachingAllocator::raw_delete(data);
  });
}

double tensor_ns(int64_t bytes, int64_t count) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kByte);
  return time_ns(count, [&] { at::empty({bytes}, options); });
}
"""


def python_ns(step, count):
    step()
    start = time.perf_counter_ns()
    for _ in range(count):
        step()
    return (time.perf_counter_ns() - start) / count


def python_allocator(bytes_):
    torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(bytes_))


def python_tensor(bytes_):
    torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def build_extension():
    """The module, or None and the reason on stderr."""
    try:
        from torch.utils.cpp_extension import load_inline

        return load_inline("burin_compare_memory", EXTENSION, functions=["allocator_ns", "tensor_ns"],
                           extra_cflags=["-O2"], with_cuda=True)  # fmt: skip
    except Exception as error:
        print(f"no figures of PyTorch's allocator from C++: {error}", file=sys.stderr)
        return None


def torch_costs(rounds, count):
    """Measurement -> bytes -> median."""
    extension = build_extension()
    ways = {"python_allocator": lambda n: python_ns(lambda: python_allocator(n), count),
            "python_tensor": lambda n: python_ns(lambda: python_tensor(n), count)}  # fmt: skip
    if extension is not None:
        ways["allocator"] = lambda n: extension.allocator_ns(n, count)
        ways["tensor"] = lambda n: extension.tensor_ns(n, count)
    costs = {way: {} for way in ways}
    for bytes_ in SIZES:
        for way, measure in ways.items():
            costs[way][bytes_] = statistics.median(measure(bytes_) for _ in range(rounds))
        torch.cuda.empty_cache()
    return costs


def burin_costs(program, rounds, seconds):
    """Benchmark -> threads -> bytes -> median."""
    command = [program, "--benchmark_filter=^(pair|tensor)/cuda_", "--benchmark_format=json",
               f"--benchmark_repetitions={rounds}", f"--benchmark_min_time={seconds}"]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    samples = {}
    for run in json.loads(output[output.index("{") :])["benchmarks"]:
        if run.get("error_occurred"):
            raise SystemExit(f"{run['name']}: {run['error_message']}")
        if run.get("run_type") != "iteration":
            continue
        pattern, resource, bytes_ = run["name"].split("/")[:3]
        key = (f"{pattern}/{resource}", run["threads"], int(bytes_))
        samples.setdefault(key, []).append(run["pair_ns"])
    costs = {}
    for (name, threads, bytes_), values in samples.items():
        costs.setdefault(name, {}).setdefault(threads, {})[bytes_] = statistics.median(values)
    return costs


def replay(path):
    """The trace through PyTorch's allocator, as its environment sets it up; prints figures as JSON."""
    torch.cuda.init()
    blocks, live, peak_live = {}, 0, 0
    operations = [line.split() for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    start = time.perf_counter_ns()
    for kind, id_, *rest in operations:
        if kind == "a":
            bytes_ = int(rest[0])
            blocks[id_] = (torch.cuda.caching_allocator_alloc(bytes_), bytes_)
            live += bytes_
            peak_live = max(peak_live, live)
        else:
            data, bytes_ = blocks.pop(id_)
            torch.cuda.caching_allocator_delete(data)
            live -= bytes_
    ns = time.perf_counter_ns() - start
    print(json.dumps({
        "peak_live_bytes": peak_live,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "ns_per_operation": ns / len(operations),
    }))  # fmt: skip


def torch_trace(path, settings):
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=settings)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    command = [sys.executable, __file__, "--replay", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


def burin_trace(program, path):
    output = subprocess.run([program, "--device", "cuda", str(path)], capture_output=True, text=True, check=True).stdout
    return {name: float(figure) for name, figure in (line.split() for line in output.splitlines())}


def size_text(bytes_):
    for unit, text in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= unit:
            return f"{bytes_ // unit} {text}"
    return f"{bytes_} B"


def print_costs(burin, pytorch):
    columns = [
        ("Burin pool", burin["pair/cuda_pool"][1]),
        ("Burin pool, 8 threads", burin["pair/cuda_pool"][8]),
        ("cudaMallocAsync", burin["pair/cuda_malloc_async"][1]),
        ("cudaMalloc", burin["pair/cuda_malloc"][1]),
        ("PyTorch allocator, C++", pytorch.get("allocator")),
        ("PyTorch allocator, Python", pytorch["python_allocator"]),
        ("Burin tensor", burin["tensor/cuda_pool"][1]),
        ("PyTorch tensor, C++", pytorch.get("tensor")),
        ("PyTorch tensor, Python", pytorch["python_tensor"]),
    ]
    columns = [(title, values) for title, values in columns if values is not None]
    rivals = ["cudaMallocAsync", "PyTorch allocator, C++", "PyTorch allocator, Python"]
    rivals = [(title, values) for title, values in columns if title in rivals]
    titles = [title for title, _ in columns] + [f"{title} / Burin" for title, _ in rivals]
    print("Allocate and free, ns\n")
    print("| bytes | " + " | ".join(titles) + " |")
    print("|---" * (len(titles) + 1) + "|")
    for bytes_ in SIZES:
        own = burin["pair/cuda_pool"][1][bytes_]
        cells = [f"{values[bytes_]:.0f}" for _, values in columns]
        cells += [f"{values[bytes_] / own:.1f}" for _, values in rivals]
        print(f"| {size_text(bytes_)} | " + " | ".join(cells) + " |")


def print_traces(traces):
    print("\nThe trace: peaks in MiB\n")
    print("| allocator | requested | allocated | reserved | reserved / requested |")
    print("|---|---|---|---|---|")
    for title, figures in traces.items():
        live, allocated, reserved = (figures[f"peak_{what}_bytes"] for what in ("live", "allocated", "reserved"))
        cells = [f"{value / 2**20:.0f}" for value in (live, allocated, reserved)]
        print(f"| {title} | " + " | ".join(cells) + f" | {reserved / live:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-bench", help="Burin's memory_bench")
    parser.add_argument("--trace-bench", help="Burin's memory_trace_bench")
    parser.add_argument("--trace", default=TRACE, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000, help="pairs in one of PyTorch's measurements")
    parser.add_argument("--seconds", type=float, default=0.05, help="of one of Burin's measurements")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--replay", metavar="TRACE", help="only replay it through PyTorch's allocator")
    args = parser.parse_args()
    if args.replay:
        replay(args.replay)
        return
    if not args.memory_bench or not args.trace_bench:
        parser.error("--memory-bench and --trace-bench are needed")

    print(f"GPU {torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    pytorch = torch_costs(args.rounds, args.count)
    burin = burin_costs(args.memory_bench, args.rounds, args.seconds)
    print_costs(burin, pytorch)
    traces = {
        "Burin": burin_trace(args.trace_bench, args.trace),
        "PyTorch": torch_trace(args.trace, ""),
        "PyTorch, expandable_segments": torch_trace(args.trace, "expandable_segments:True"),
    }
    print_traces(traces)
    if args.json:
        figures = {"gpu": torch.cuda.get_device_name(), "pytorch": torch.__version__, "burin_ns": burin,
                   "pytorch_ns": pytorch, "traces": traces}  # fmt: skip
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
