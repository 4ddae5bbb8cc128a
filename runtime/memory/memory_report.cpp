#include <burin/runtime/memory/memory_report.h>
#include <burin/runtime/memory/report_text.h>

#include <iterator>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

namespace burin {
namespace {

using detail::json_text;

std::string_view name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::pinned: return "pinned";
    case MemoryKind::device: return "device";
  }
  return "";
}

/// Appends to a text.
class Writer {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  /// Calls write(item) for each, with commas between.
  template <class Items, class Write>
  void list(const Items& items, Write&& write) {
    std::string_view comma;
    for (const auto& item : items) {
      add("{}\n", comma);
      write(item);
      comma = ",";
    }
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void add_figure(Writer& out, std::string_view field, const PoolStats::Figure& figure) {
  out.add(R"("{}": {{"current": {}, "peak": {}, "total": {}}}, )", field, figure.current, figure.peak,
          figure.total);
}

void add_stats(Writer& out, const PoolStats& stats) {
  out.add("{{");
  add_figure(out, "allocated_bytes", stats.allocated_bytes);
  add_figure(out, "reserved_bytes", stats.reserved_bytes);
  add_figure(out, "blocks", stats.blocks);
  out.add(R"("requested_bytes": {}, "largest_free_block": {}, "hits": {}, "splits": {}, "grows": {}, )",
          stats.requested_bytes, stats.largest_free_block, stats.hits, stats.splits, stats.grows);
  out.add(R"("stream_waits": {}, "trims": {}, "out_of_memory": {}, "invalid_frees": {}, )",
          stats.stream_waits, stats.trims, stats.out_of_memory, stats.invalid_frees);
  out.add(R"("size_classes": [)");
  out.list(stats.size_classes, [&](const PoolStats::SizeClass& size_class) {
    out.add(R"({{"largest_bytes": {}, "live": {}, "total": {}}})", size_class.largest_bytes, size_class.live,
            size_class.total);
  });
  out.add("]}}");
}

void add_segment(Writer& out, const PoolSnapshot::Segment& segment) {
  out.add(R"({{"address": "{:#x}", "bytes": {}, "graph_pool": {}, "blocks": [)", segment.address,
          segment.bytes, segment.graph_pool);
  out.list(segment.blocks, [&](const PoolSnapshot::Block& block) {
    out.add(R"({{"address": "{:#x}", "bytes": {}, "requested_bytes": {}, "state": "{}", )", block.address,
            block.bytes, block.requested_bytes, detail::state_text(block.state));
    out.add(R"("stream": {}, "scope": {}}})", block.stream, json_text(block.scope));
  });
  out.add("]}}");
}

/// Writes the events of Chrome's trace format. Times are in microseconds there.
class Trace {
 public:
  void add(const PoolEvent& event) {
    switch (event.kind) {
      case PoolEvent::Kind::allocate: begin(event); break;
      case PoolEvent::Kind::deallocate: end(event); break;
      case PoolEvent::Kind::grow: mark(event, "grow"); break;
      case PoolEvent::Kind::trim: mark(event, "trim"); break;
      case PoolEvent::Kind::out_of_memory: mark(event, "out of memory"); break;
    }
    counter(event, "allocated", event.allocated_bytes);
    counter(event, "reserved", event.reserved_bytes);
  }
  std::string take() { return out_.take() + "\n]}\n"; }

 private:
  struct Slice {
    std::size_t id = 0;
    std::string name;
  };

  void begin(const PoolEvent& event) {
    Slice slice{++slices_, json_text(event.scope.empty() ? "(no scope)" : event.scope)};
    out_.add(R"(,
{{"ph": "b", "cat": "block", "id": {}, "name": {}, "ts": {}, "pid": 1, "tid": {}, )",
             slice.id, slice.name, time(event), event.stream);
    out_.add(R"("args": {{"address": "{:#x}", "bytes": {}, "stream": {}}}}})", event.address, event.bytes,
             event.stream);
    live_[event.address] = std::move(slice);
  }

  // What was allocated before the timeline begins has no slice to end.
  void end(const PoolEvent& event) {
    const auto found = live_.find(event.address);
    if (found == live_.end()) return;
    out_.add(R"(,
{{"ph": "e", "cat": "block", "id": {}, "name": {}, "ts": {}, "pid": 1, "tid": {}}})",
             found->second.id, found->second.name, time(event), event.stream);
    live_.erase(found);
  }

  void mark(const PoolEvent& event, std::string_view what) {
    out_.add(R"(,
{{"ph": "i", "s": "p", "name": "{}", "ts": {}, "pid": 1, "tid": {}, "args": {{"bytes": {}, "scope": {}}}}})",
             what, time(event), event.stream, event.bytes, json_text(event.scope));
  }

  void counter(const PoolEvent& event, std::string_view what, std::size_t bytes) {
    out_.add(R"(,
{{"ph": "C", "name": "{}", "ts": {}, "pid": 1, "args": {{"bytes": {}}}}})",
             what, time(event), bytes);
  }

  static std::string time(const PoolEvent& event) {
    return fmt::format("{}.{:03}", event.time_ns / 1000, event.time_ns % 1000);
  }

  Writer out_ = [] {
    Writer out;
    out.add(R"({{"displayTimeUnit": "ns", "traceEvents": [
{{"ph": "M", "name": "process_name", "pid": 1, "args": {{"name": "memory"}}}})");
    return out;
  }();
  std::unordered_map<std::uintptr_t, Slice> live_;
  std::size_t slices_ = 0;
};

}  // namespace

std::string to_json(const PoolSnapshot& snapshot) {
  Writer out;
  out.add(R"({{"device": {}, "kind": "{}", "stats": )", json_text(name(snapshot.device)),
          name(snapshot.kind));
  add_stats(out, snapshot.stats);
  out.add(",\n\"segments\": [");
  out.list(snapshot.segments, [&](const PoolSnapshot::Segment& segment) { add_segment(out, segment); });
  out.add("]}}\n");
  return out.take();
}

std::string to_chrome_trace(const std::vector<PoolEvent>& timeline) {
  Trace trace;
  for (const PoolEvent& event : timeline) trace.add(event);
  return trace.take();
}

}  // namespace burin
