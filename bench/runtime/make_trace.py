#!/usr/bin/env python3
"""Makes the trace of allocations that memory_trace_bench replays: the same bytes at every run.

    python3 bench/runtime/make_trace.py > bench/runtime/traces/inference.txt

It is what a server asks of its allocator that runs ResNet-18 and ResNet-50 (f32) and a transformer of the size of BERT
base (f16, with keys and values kept), two requests at a time, each of another batch (1 to 64), image size or length of
sequence. Sizes are those of the layers' outputs and of their workspaces; an activation is freed after its last use.
Parameters stay for the whole trace; outputs, and keys and values, for some requests.
"""

import random
import sys

OPERATIONS = 10_000
F16, F32 = 2, 4


class Trace:
    def __init__(self):
        self.lines = []
        self.next_id = 0

    def allocate(self, bytes_):
        self.next_id += 1
        self.lines.append(f"a {self.next_id} {bytes_}")
        return self.next_id

    def free(self, id_):
        self.lines.append(f"f {id_}")


def resnet_parameters(bottleneck, blocks):
    """Sizes in bytes; the four vectors of a batch normalisation after each convolution."""

    def conv(c_in, c_out, kernel):
        return [F32 * c_in * c_out * kernel * kernel] + 4 * [F32 * c_out]

    sizes = conv(3, 64, 7)
    c_in = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        c_out = width * (4 if bottleneck else 1)
        for block in range(count):
            if bottleneck:
                sizes += conv(c_in, width, 1) + conv(width, width, 3) + conv(width, c_out, 1)
            else:
                sizes += conv(c_in, width, 3) + conv(width, width, 3)
            if block == 0 and c_in != c_out:
                sizes += conv(c_in, c_out, 1)
            c_in = c_out
    return sizes + [F32 * 1000 * c_in, F32 * 1000]


def transformer_parameters(layers=12, hidden=768):
    layer = [3 * hidden * hidden, 3 * hidden, hidden * hidden, hidden, 4 * hidden * hidden, 4 * hidden,
             4 * hidden * hidden, hidden] + 4 * [hidden]  # fmt: skip
    return [F16 * 30522 * hidden, F16 * 512 * hidden] + layers * [F16 * count for count in layer]


def resnet(trace, rng, bottleneck, blocks, batch, pixels):
    """A forward pass; yields between layers, and returns what the caller shall hold."""

    def conv(c_in, c_out, side, kernel):
        out = trace.allocate(F32 * batch * c_out * side * side)
        if kernel > 1 and rng.random() < 0.7:  # an algorithm that transforms its input tile by tile
            trace.free(trace.allocate(F32 * min(batch, 8) * c_in * side * side * kernel))
        return out

    x = trace.allocate(F32 * batch * 3 * pixels * pixels)
    side = pixels // 2
    y = conv(3, 64, side, 7)
    trace.free(x)
    yield
    side = -(-side // 2)
    x = trace.allocate(F32 * batch * 64 * side * side)
    trace.free(y)
    yield
    c_in = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        c_out = width * (4 if bottleneck else 1)
        for block in range(count):
            c_x = c_in
            wide = side
            if block == 0 and stage > 0:
                side = -(-side // 2)
            if bottleneck:
                a = conv(c_x, width, wide, 1)
                yield
                b = conv(width, width, side, 3)
                trace.free(a)
                yield
                y = conv(width, c_out, side, 1)
                trace.free(b)
            else:
                a = conv(c_x, width, side, 3)
                yield
                y = conv(width, width, side, 3)
                trace.free(a)
            yield
            if block == 0 and c_x != c_out:
                shortcut = conv(c_x, c_out, side, 1)
                trace.free(x)
                x = shortcut
                yield
            trace.free(x)  # added to y in place
            x = y
            c_in = c_out
    pooled = trace.allocate(F32 * batch * c_in)
    trace.free(x)
    scores = trace.allocate(F32 * batch * 1000)
    trace.free(pooled)
    return [scores]


def transformer(trace, rng, batch, length, layers=12, hidden=768, heads=12):
    tokens = batch * length
    held = []
    ids = trace.allocate(8 * tokens)
    x = trace.allocate(F16 * tokens * hidden)
    trace.free(ids)
    yield
    for _ in range(layers):
        normal = trace.allocate(F16 * tokens * hidden)
        qkv = trace.allocate(F16 * tokens * 3 * hidden)
        if rng.random() < 0.5:  # partial sums of a product that is split over its terms
            trace.free(trace.allocate(F32 * min(tokens, 512) * 3 * hidden))
        trace.free(normal)
        yield
        held.append(trace.allocate(2 * F16 * tokens * hidden))  # keys and values
        scores = trace.allocate(F16 * batch * heads * length * length)
        yield
        context = trace.allocate(F16 * tokens * hidden)
        trace.free(scores)
        trace.free(qkv)
        y = trace.allocate(F16 * tokens * hidden)
        trace.free(context)
        trace.free(x)
        yield
        normal = trace.allocate(F16 * tokens * hidden)
        wide = trace.allocate(F16 * tokens * 4 * hidden)
        trace.free(normal)
        yield
        x = trace.allocate(F16 * tokens * hidden)
        trace.free(wide)
        trace.free(y)
        yield
    pooled = trace.allocate(F16 * batch * hidden)
    trace.free(x)
    return held + [pooled]


def request(trace, rng):
    batch = rng.choice([1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
    kind = rng.randrange(4)
    if kind == 0:
        return resnet(trace, rng, False, [2, 2, 2, 2], batch, rng.choice([160, 192, 224, 256, 288]))
    if kind == 1:
        return resnet(trace, rng, True, [3, 4, 6, 3], batch, rng.choice([160, 192, 224, 256, 288]))
    return transformer(trace, rng, batch, rng.randint(16, min(512, 16384 // batch)))


def main():
    rng = random.Random(2026)
    trace = Trace()
    for size in resnet_parameters(False, [2, 2, 2, 2]) + resnet_parameters(True, [3, 4, 6, 3]) + transformer_parameters():
        trace.allocate(size)
    running, held = [], []
    while len(trace.lines) < OPERATIONS:
        while len(running) < 2:
            running.append(request(trace, rng))
        one = rng.choice(running)
        try:
            for _ in range(rng.randint(1, 6)):
                next(one)
        except StopIteration as done:
            running.remove(one)
            held.append(done.value)
            if len(held) > 4:
                for id_ in held.pop(rng.randrange(len(held))):
                    trace.free(id_)
    print(f"# {OPERATIONS} operations of an inference server, made by bench/runtime/make_trace.py, which says how.")
    print("# 'a ID BYTES' allocates, 'f ID' frees; what is left at the end is freed by the reader.")
    sys.stdout.write("\n".join(trace.lines[:OPERATIONS]) + "\n")


if __name__ == "__main__":
    main()
