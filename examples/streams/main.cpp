// Streams, events and asynchronous copies, for those who know them from PyTorch:
//
//   torch.cuda.synchronize()                     synchronize(device), ctx.synchronize()
//   torch.cuda.Stream(priority=p)                Stream(device, p), given to a Context
//   with torch.cuda.stream(side): ...            a second Context on that stream
//   side.wait_stream(main)                       side.stream().wait(main.stream())
//   torch.cuda.Event(enable_timing=True)         Event(device)
//   x.to("cuda", non_blocking=True)              to_async(ctx, x, device), copy_async(ctx, dst, src)
//   x.record_stream(side)                        x.record_use(side.stream())
//
// Usage: streams [cpu | cuda | cuda:N]. On the CPU, where work is done at the call, only the first two parts
// have something to show.

#include <burin/burin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using burin::Context;
using burin::Device;
using burin::Event;
using burin::Stream;
using burin::Tensor;
using burin::Transfer;

/// A context of its own stream that shares the memory of another.
Context beside(Context& other, int priority = 0) {
  burin::ContextOptions options;
  options.memory = other.memory();
  options.stream.emplace(other.device(), priority);
  return Context(other.device(), std::move(options));
}

double milliseconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// 1. Work on two streams, in an order that is right.
void show_order(Context& ctx) {
  Context side = beside(ctx);
  Tensor x = burin::full(ctx, {1024}, 2);
  side.stream().wait(ctx.stream());  // x is written on the other stream
  const Tensor y = burin::add(side, x, x);
  x.record_use(side.stream());  // side may still read x, so its memory is not handed out before
  x = Tensor();
  const Tensor other = burin::full(ctx, {1024}, 100);  // runs beside the sum, and cannot disturb it
  ctx.stream().wait(side.stream());                    // from here on ctx may use y
  const std::vector<float> sum = burin::to_vector<float>(ctx, burin::add(ctx, y, other));
  fmt::print("1. order: 2 + 2 on a second stream, + 100 on the first = {}\n", sum[0]);
}

/// 2. How to time work on a device, and how not to.
void show_timing(Context& ctx) {
  const std::int64_t n = ctx.device().is_cpu() ? 512 : 4096;
  const Tensor a = burin::full(ctx, {n, n}, 1);
  Tensor y = burin::matmul(ctx, a, a);  // the first call also prepares
  ctx.synchronize();

  const double unsynchronized = milliseconds_of([&] { burin::matmul_into(ctx, y, a, a); });
  ctx.synchronize();
  const double synchronized = milliseconds_of([&] {
    burin::matmul_into(ctx, y, a, a);
    ctx.synchronize();
  });
  Event start(ctx.device());
  Event end(ctx.device());
  start.record(ctx.stream());
  burin::matmul_into(ctx, y, a, a);
  end.record(ctx.stream());
  const double on_device = start.elapsed_ms(end);  // waits for both events

  fmt::print("2. time of one product of {} x {}\n", n, n);
  fmt::print("   host clock, not synchronized   {:9.4f} ms", unsynchronized);
  fmt::print("{}\n", ctx.device().is_cpu() ? "  (right: on the CPU work is done at the call)"
                                           : "  WRONG: the call only queues; this is the queueing");
  fmt::print("   host clock, synchronized       {:9.4f} ms  (right, and includes queueing and waiting)\n",
             synchronized);
  fmt::print("   events on the stream           {:9.4f} ms  (right: what the device took)\n", on_device);
}

struct Chunk {
  Tensor input;   // pinned [rows, width]
  Tensor output;  // pinned [rows, width]
};
struct Slot {
  Tensor x;  // on the device [rows, width]
  Tensor y;
  Transfer stored;  // of y, so that the slot may be used again
};

/// Each chunk goes to the device, through a product, and back. With three contexts of three streams the copy
/// of one chunk to the device, the product of the one before and the copy of the one before that to the host
/// run at once; with the same context three times they run one after the other.
void run_pipeline(Context& load, Context& compute, Context& store, std::vector<Chunk>& chunks,
                  std::vector<Slot>& slots, const Tensor& weight) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    Slot& slot = slots[i % slots.size()];
    slot.stored.then(load.stream());  // what the slot held has been used and stored
    const Transfer loaded = burin::copy_async(load, slot.x, chunks[i].input);
    loaded.then(compute.stream());
    burin::matmul_into(compute, slot.y, slot.x, weight);
    store.stream().wait(compute.stream());
    slot.stored = burin::copy_async(store, chunks[i].output, slot.y);
  }
  for (const Slot& slot : slots) slot.stored.wait();  // only now the host may read the outputs
}

/// 3. Copies beside compute.
void show_pipeline(Context& ctx) {
  constexpr std::int64_t kRows = 4096;
  constexpr std::int64_t kWidth = 2048;
  constexpr int kChunks = 16;
  const Tensor weight = burin::full(ctx, {kWidth, kWidth}, 1.0 / kWidth);
  std::vector<Chunk> chunks;
  for (int i = 0; i < kChunks; ++i) {
    chunks.push_back({burin::empty_pinned(ctx, {kRows, kWidth}), burin::empty_pinned(ctx, {kRows, kWidth})});
    std::fill_n(chunks.back().input.data<float>(), kRows * kWidth, static_cast<float>(i));
  }
  std::vector<Slot> slots;
  for (int i = 0; i < 3; ++i)
    slots.push_back({burin::empty(ctx, {kRows, kWidth}), burin::empty(ctx, {kRows, kWidth}), {}});
  Context load = beside(ctx);
  Context store = beside(ctx);
  load.stream().wait(ctx.stream());  // the memory of the slots is ctx's

  const auto measure = [&](Context& first, Context& last) {
    std::vector<double> times;
    for (int round = 0; round < 6; ++round) {
      const double ms = milliseconds_of([&] { run_pipeline(first, ctx, last, chunks, slots, weight); });
      if (round > 0) times.push_back(ms);  // the first prepares
    }
    return median(times);
  };
  const double one_stream = measure(ctx, ctx);
  const double three_streams = measure(load, store);
  bool right = true;
  for (int i = 0; i < kChunks; ++i) {
    const float* y = chunks[static_cast<std::size_t>(i)].output.data<float>();
    right = right && std::all_of(y, y + kRows * kWidth,
                                 [=](float v) { return std::abs(v - static_cast<float>(i)) < 1e-3f; });
  }
  const double gigabytes = 2.0 * kChunks * kRows * kWidth * sizeof(float) / 1e9;
  fmt::print("3. {} chunks to the device, through a product, and back ({:.2f} GB over the bus)\n", kChunks,
             gigabytes);
  fmt::print("   one stream      {:8.2f} ms\n", one_stream);
  fmt::print("   three streams   {:8.2f} ms: {:.2f} times as fast; results {}\n", three_streams,
             one_stream / three_streams, right ? "right" : "WRONG");
}

/// When the products of one stream ran, in milliseconds after `origin`.
struct Interval {
  double begin = 0;
  double end = 0;
};

struct Products {
  Tensor a;
  Tensor y;
  Event begin;
  Event end;

  explicit Products(Context& ctx)
      : a(burin::full(ctx, {256, 256}, 1)),
        y(burin::matmul(ctx, a, a)),
        begin(ctx.device()),
        end(ctx.device()) {
    ctx.synchronize();
  }
  void queue(Context& ctx) {
    begin.record(ctx.stream());
    for (int i = 0; i < 100; ++i) burin::matmul_into(ctx, y, a, a);
    end.record(ctx.stream());
  }
  Interval since(const Event& origin) const { return {origin.elapsed_ms(begin), origin.elapsed_ms(end)}; }
};

/// A product large enough to keep the device busy while the host queues what comes behind it.
void queue_gate(Context& ctx, const Tensor& large, Tensor& y, Event& opened) {
  for (int i = 0; i < 8; ++i) burin::matmul_into(ctx, y, large, large);
  opened.record(ctx.stream());
}

/// 4. Two products at once.
void show_two_products(Context& ctx) {
  Context first = beside(ctx);
  Context second = beside(ctx);
  const Tensor large = burin::full(ctx, {4096, 4096}, 1);
  Tensor y = burin::matmul(ctx, large, large);
  Products one(first);
  Products two(second);
  Event origin(ctx.device());

  // Both streams start behind the gate, so that neither is ahead by what the host needs to queue.
  queue_gate(ctx, large, y, origin);
  first.stream().wait(origin);
  second.stream().wait(origin);
  one.queue(first);
  two.queue(second);
  const Interval a = one.since(origin);
  const Interval b = two.since(origin);

  queue_gate(ctx, large, y, origin);
  first.stream().wait(origin);
  one.queue(first);
  first.stream().wait(second.stream());
  two.queue(first);
  const Interval c = one.since(origin);
  const Interval d = two.since(origin);

  const double overlap = std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
  const double together = std::max(a.end, b.end) - std::min(a.begin, b.begin);
  const double in_turn = d.end - c.begin;
  fmt::print("4. twice 100 products of 256 x 256, which fill a small part of the device\n");
  fmt::print("   first stream    {:7.3f} to {:7.3f} ms\n", a.begin, a.end);
  fmt::print("   second stream   {:7.3f} to {:7.3f} ms: {:.0f} % of the time both ran\n", b.begin, b.end,
             100 * overlap / together);
  fmt::print("   on one stream   {:7.3f} to {:7.3f} ms: two streams are {:.2f} times as fast\n", c.begin,
             d.end, in_turn / together);
}

/// Milliseconds until a small product of this priority was done, while a stream of the least priority keeps
/// the device busy.
double latency(Context& ctx, int priority) {
  Context busy = beside(ctx, burin::stream_priorities(ctx.device()).least);
  Context urgent = beside(ctx, priority);
  const Tensor large = burin::full(busy, {4096, 4096}, 1);
  Tensor y = burin::matmul(busy, large, large);
  const Tensor small = burin::full(urgent, {256, 256}, 1);
  Tensor z = burin::matmul(urgent, small, small);
  burin::synchronize(ctx.device());

  std::vector<double> times;
  for (int round = 0; round < 11; ++round) {
    Event begin(ctx.device());
    Event end(ctx.device());
    for (int i = 0; i < 4; ++i) burin::matmul_into(busy, y, large, large);
    begin.record(urgent.stream());
    burin::matmul_into(urgent, z, small, small);
    end.record(urgent.stream());
    times.push_back(begin.elapsed_ms(end));
    busy.synchronize();
  }
  return median(times);
}

/// 5. Priorities.
void show_priorities(Context& ctx) {
  const auto [least, greatest] = burin::stream_priorities(ctx.device());
  fmt::print("5. priorities from {} (least) to {} (greatest); a small product on a busy device takes\n",
             least, greatest);
  fmt::print("   at the least priority      {:8.4f} ms\n", latency(ctx, least));
  fmt::print("   at the greatest priority   {:8.4f} ms\n", latency(ctx, greatest));
}

void run(const std::string& name) {
  const bool has_cuda = burin::cuda_availability().count > 0;
  const Device device = !name.empty() ? Device::parse(name) : has_cuda ? Device::cuda() : Device::cpu();
  Context ctx(device);
  fmt::print("device: {} ({})\n", burin::name(device), burin::description(device));
  show_order(ctx);
  show_timing(ctx);
  if (device.is_cpu()) {
    fmt::print("3. to 5. (copies beside compute, two products at once, priorities) need a GPU\n");
    return;
  }
  show_pipeline(ctx);
  show_two_products(ctx);
  show_priorities(ctx);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    fmt::print(stderr, "usage: streams [cpu | cuda | cuda:N]\n");
    return 2;
  }
  try {
    run(argc == 2 ? argv[1] : "");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "streams: {}\n", error.what());
    return 1;
  }
}
