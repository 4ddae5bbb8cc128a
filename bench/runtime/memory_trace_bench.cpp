// Replays a trace of allocations on one stream, and prints what a CachingPool held for it:
//   memory_trace_bench [--device cpu|cuda] [--svg FILE] TRACE
// A line of the trace is "a ID BYTES", "f ID" or "# comment". Each line printed is a name and a figure.
// --svg writes the memory map at the end of the trace.

#include <burin/runtime/error.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/memory_report.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace {

struct Operation {
  std::size_t block = 0;  // index of the allocation
  std::size_t bytes = 0;  // 0: free
};

struct Trace {
  std::vector<Operation> operations;
  std::size_t blocks = 0;
};

Trace read(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw burin::Error(fmt::format("{}: cannot be read", path));
  Trace trace;
  std::unordered_map<std::uint64_t, std::size_t> live;  // id -> index
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    char kind = 0;
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    words >> kind >> id;
    if (words && kind == 'a' && words >> bytes && bytes > 0 && live.emplace(id, trace.blocks).second) {
      trace.operations.push_back({trace.blocks++, bytes});
    } else if (words && kind == 'f' && live.contains(id)) {
      trace.operations.push_back({live.extract(id).mapped(), 0});
    } else {
      throw burin::Error(fmt::format("{}, line {}: not an operation: {}", path, number, line));
    }
  }
  return trace;
}

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
};

void replay(const Trace& trace, burin::Device device, const std::string& svg_path) {
  const burin::Stream stream(device);
  burin::CachingPool pool(device);
  std::vector<Block> blocks(trace.blocks);
  std::size_t live = 0;
  std::size_t peak_live = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const Operation& operation : trace.operations) {
    Block& block = blocks[operation.block];
    if (operation.bytes != 0) {
      block = {pool.allocate(operation.bytes, stream), operation.bytes};
      live += block.bytes;
      peak_live = std::max(peak_live, live);
    } else {
      pool.deallocate(block.data, block.bytes, stream);
      live -= block.bytes;
      block = {};
    }
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  if (!svg_path.empty()) {
    std::ofstream out(svg_path);
    out << to_svg(pool.snapshot());
    if (!out.flush()) throw burin::Error(fmt::format("{}: cannot be written", svg_path));
  }
  const burin::PoolStats stats = pool.stats();
  for (const Block& block : blocks) pool.deallocate(block.data, block.bytes, stream);

  const auto ratio = static_cast<double>(stats.reserved_bytes.peak) / static_cast<double>(peak_live);
  std::cout << fmt::format(
      "operations {}\npeak_live_bytes {}\npeak_allocated_bytes {}\npeak_reserved_bytes {}\n"
      "reserved_over_live {:.4f}\nns_per_operation {:.0f}\nhits {}\nsplits {}\ngrows {}\n",
      trace.operations.size(), peak_live, stats.allocated_bytes.peak, stats.reserved_bytes.peak, ratio,
      time.count() / static_cast<double>(trace.operations.size()), stats.hits, stats.splits, stats.grows);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  std::string device = "cuda";
  std::string svg_path;
  std::string path;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--device" && i + 1 < args.size()) {
      device = args[++i];
    } else if (args[i] == "--svg" && i + 1 < args.size()) {
      svg_path = args[++i];
    } else if (path.empty() && !args[i].starts_with("-")) {
      path = args[i];
    } else {
      path.clear();
      break;
    }
  }
  if (path.empty()) {
    std::cerr << "usage: memory_trace_bench [--device cpu|cuda] [--svg FILE] TRACE\n";
    return 2;
  }
  try {
    const Trace trace = read(path);
    if (trace.operations.empty()) throw burin::Error(fmt::format("{}: no operations", path));
    replay(trace, burin::Device::parse(device), svg_path);
  } catch (const std::exception& error) {
    std::cerr << "memory_trace_bench: " << error.what() << '\n';
    return 1;
  }
}
