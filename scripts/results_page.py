#!/usr/bin/env python3
"""Turns the logs that gpu_test.sh left in a folder into a page in Markdown: results_page.py FOLDER."""

import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def text(name):
    path = folder / name
    return path.read_text(errors="replace").strip() if path.exists() else ""


def medians(name):
    """Benchmark name -> median; those that were skipped are left out."""
    path = folder / name
    if not path.exists():
        return {}
    runs = json.loads(path.read_text())["benchmarks"]
    return {run["run_name"]: run["real_time"] for run in runs if run.get("aggregate_name") == "median" and not run.get("error_occurred")}


def header():
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    nvcc = output_of("nvcc", "--version").splitlines()[-1]
    cxx = output_of("g++", "--version").splitlines()[0]
    commit = os.environ.get("BURIN_COMMIT") or output_of("git", "rev-parse", "--short", "HEAD")
    print("# GPU results\n")
    print(f"`scripts/gpu_test.sh`, {datetime.date.today()}\n")
    print("| | |\n|---|---|")
    for key, value in [("GPU, driver", gpu), ("CUDA", nvcc), ("Compiler", cxx), ("Commit", commit)]:
        print(f"| {key} | {value} |")


def block(title, body):
    if body:
        print(f"\n## {title}\n\n```\n{body}\n```")


def models():
    found = medians("model.json")
    if found:
        print("\n## Forward passes, eager, host to host\n\n| model | median us |\n|---|---|")
        for name, time in found.items():
            print(f"| {name.removesuffix('/real_time')} | {time:.1f} |")


def graphs():
    rows = collections.defaultdict(dict)
    for name, time in medians("graph.json").items():
        group, kind, size, wait, *_ = name.split("/")
        rows[group, kind, size][wait] = time
    if rows:
        print("\n## Graphs\n\nMedian us. call: each call is waited for; queue: a hundred calls in a queue, a call; host: until a call returns.\n")
        print("| what | call | queue | host |\n|---|---|---|---|")
        for key, times in rows.items():
            cells = [f"{times[wait]:.2f}" if wait in times else "" for wait in ("call", "queue", "host")]
            print(f"| {' '.join(key)} | {' | '.join(cells)} |")


def layers():
    rows = collections.defaultdict(dict)
    for name, time in medians("layers.json").items():
        kind, backend, precision, layer, batch, *_ = name.split("/")
        rows[kind, precision, layer, batch][backend] = time
    if rows:
        print("\n## Layers of ResNet-50 on the device\n\nMedian us; the library is cuDNN, or cuBLASLt for linear.\n")
        print("| operator | precision | layer | batch | hand-written | library | ratio |\n|---|---|---|---|---|---|---|")
        for (kind, precision, layer, batch), times in rows.items():
            own = times.get("cuda")
            library = times.get("cudnn", times.get("cublaslt"))
            ratio = f"{own / library:.2f}" if own and library else ""
            cells = [f"{time:.1f}" if time else "" for time in (own, library)]
            print(f"| {kind} | {precision} | {layer} | {batch.removeprefix('batch:')} | {cells[0]} | {cells[1]} | {ratio} |")


def memory():
    rows = collections.defaultdict(dict)
    path = folder / "memory.json"
    for run in json.loads(path.read_text())["benchmarks"] if path.exists() else []:
        if run.get("aggregate_name") == "median" and not run.get("error_occurred"):
            pattern, resource, bytes_ = run["run_name"].split("/")[:3]
            rows[pattern, resource, run["threads"]][int(bytes_)] = run["pair_ns"]
    if not rows:
        return
    sizes = sorted({bytes_ for row in rows.values() for bytes_ in row})
    print("\n## Memory: allocate and free\n\nMedian ns of a pair, of one thread, by bytes.\n")
    print("| pattern | resource | threads | " + " | ".join(f"{bytes_:,}" for bytes_ in sizes) + " |")
    print("|---" * (len(sizes) + 3) + "|")
    for (pattern, resource, threads), row in rows.items():
        cells = [f"{row[bytes_]:.0f}" if bytes_ in row else "" for bytes_ in sizes]
        print(f"| {pattern} | {resource} | {threads} | " + " | ".join(cells) + " |")


header()
block("Steps", text("steps.txt"))
block("Tests", text("counts.txt"))
block("compute-sanitizer memcheck", text("memcheck.txt"))
block("compute-sanitizer racecheck", text("racecheck.txt"))
block("The digit runner", "\n".join(
    f"{path.stem}: {line}" for path in sorted(folder.glob("runner-*.log")) for line in path.read_text().splitlines() if line.startswith("accuracy")))
comparison = text("compare-pytorch.log")
if comparison:
    print(f"\n## Beside PyTorch\n\n{comparison}")
memory()
block("Memory: a trace of 10,000 operations", text("bench-memory-trace.log"))
comparison = text("compare-pytorch-memory.log")
if comparison:
    print(f"\n## Memory beside PyTorch\n\n{comparison}")
models()
graphs()
layers()
