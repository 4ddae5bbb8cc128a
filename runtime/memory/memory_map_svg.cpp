#include <burin/runtime/memory/memory_report.h>
#include <burin/runtime/memory/report_text.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace burin {
namespace {

using detail::ScopeTotal;
using State = PoolSnapshot::State;
using Segment = PoolSnapshot::Segment;
using Block = PoolSnapshot::Block;

// Lengths in pixels.
constexpr double kWidth = 1200;
constexpr double kMargin = 36;
constexpr double kBarX = 212;  // left of it stand the segments' names
constexpr double kBarWidth = kWidth - kMargin - kBarX;
constexpr double kRowHeight = 30;
constexpr double kRowStep = 33;
constexpr double kLegendStep = 22;

constexpr std::size_t kLegendScopes = 13;
constexpr std::size_t kMaxRows = 12;  // of a panel whose segments are cut into rows, like a text into lines
constexpr std::size_t kBlocksPerRow = 40;

constexpr std::string_view kStyle = R"svg(<style>
text{font-family:Inter,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:12px;fill:#1f2733}
.soft{fill:#6b7685}.small{font-size:11px}.title{font-size:20px;font-weight:600}.figure{font-size:19px;font-weight:600}
.right{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#e3e7ec}.edge{fill:none;stroke:#b9c1cb}
.in{font-size:11px;fill:#1f2733;pointer-events:none}.gap{stroke:#1f2733;stroke-width:2}
.block rect{stroke:#fff;stroke-width:1}.block:hover rect{stroke:#1f2733}.free{fill:#e6e9ed}.pending{fill:url(#hatch)}
</style>
<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="7" height="7" fill="#eef0f3"/><rect width="2.5" height="7" fill="#98a2b0"/></pattern></defs>
)svg";

struct Totals {
  ScopeTotal free, pending;
  std::size_t eager_free_bytes = 0;  // outside graph pools
  std::vector<ScopeTotal> scopes;    // of live blocks, largest first
};

Totals totals_of(const PoolSnapshot& snapshot) {
  Totals totals;
  detail::ScopeTotals scopes;
  for (const Segment& segment : snapshot.segments) {
    for (const Block& block : segment.blocks) {
      if (block.state == State::live) {
        scopes.add(block.scope, block.bytes);
      } else {
        ScopeTotal& total = block.state == State::free ? totals.free : totals.pending;
        total.bytes += block.bytes;
        ++total.blocks;
        if (block.state == State::free && segment.graph_pool == 0) totals.eager_free_bytes += block.bytes;
      }
    }
  }
  totals.scopes = scopes.largest_first();
  return totals;
}

/// Segments of like size, drawn to one scale.
struct Panel {
  std::span<const Segment* const> segments;
  std::size_t row_bytes = 1;  // as many steps as reach over its largest segment, or over a part of it
};

/// Largest segments first: what would be too narrow to see goes to a panel of its own.
std::vector<Panel> panels_of(std::span<const Segment* const> by_size) {
  std::vector<Panel> panels;
  while (!by_size.empty()) {
    const std::size_t largest = std::max<std::size_t>(by_size.front()->bytes, 1);
    std::size_t blocks = 0;
    std::size_t count = 0;
    for (; count < by_size.size() && by_size[count]->bytes >= largest / 64; ++count)
      blocks = std::max(blocks, by_size[count]->blocks.size());
    const std::size_t rows =
        std::clamp<std::size_t>(blocks / kBlocksPerRow, 1, std::max<std::size_t>(kMaxRows / count, 1));
    const std::size_t row_bytes = largest / rows + (largest % rows != 0);
    const std::size_t step = detail::axis_step(row_bytes);
    panels.push_back({by_size.first(count), (row_bytes + step - 1) / step * step});
    by_size = by_size.subspan(count);
  }
  return panels;
}

/// The picture, from top to bottom.
class Map {
 public:
  explicit Map(const PoolSnapshot& snapshot) : totals_(totals_of(snapshot)) {
    header(snapshot);
    legend();
    std::vector<const Segment*> by_size;
    for (const Segment& segment : snapshot.segments) by_size.push_back(&segment);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const Segment* a, const Segment* b) { return a->bytes > b->bytes; });
    for (const Panel& panel : panels_of(by_size)) {
      axis(panel);
      for (const Segment* segment : panel.segments) bar(*segment, panel.row_bytes);
    }
    if (by_size.empty()) text(kMargin, y_ + 24, "soft", "No memory is held.");
    y_ += 36;
  }

  std::string take() const {
    return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" )"
                       R"(viewBox="0 0 {0} {1:.0f}">)"
                       "\n{2}<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}</svg>\n",
                       kWidth, y_, kStyle, body_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  /// `safe` is XML text.
  void text(double x, double y, std::string_view classes, std::string_view safe) {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes, safe);
  }

  void header(const PoolSnapshot& snapshot) {
    const std::string device = name(snapshot.device);
    const std::string_view kind = snapshot.kind == MemoryKind::pinned ? ", page-locked" : "";
    text(kMargin, 48, "title", fmt::format("Memory of {}{}", detail::xml_text(device), kind));
    const PoolStats& stats = snapshot.stats;
    text(kWidth - kMargin, 48, "soft right",
         fmt::format("{} segments, {} live blocks", snapshot.segments.size(),
                     detail::grouped_text(stats.blocks.current)));
    // The part of the free memory that the largest request could not have.
    const double fragmentation =
        totals_.eager_free_bytes == 0
            ? 0
            : std::max(0.0, 1 - ratio(stats.largest_free_block, totals_.eager_free_bytes));
    const std::pair<std::string_view, std::string> figures[] = {
        {"reserved", detail::bytes_text(stats.reserved_bytes.current)},
        {"allocated", detail::bytes_text(stats.allocated_bytes.current)},
        {"requested", detail::bytes_text(stats.requested_bytes)},
        {"largest free block", detail::bytes_text(stats.largest_free_block)},
        {"fragmentation", fmt::format("{:.1f} %", 100 * fragmentation)},
        {"peak reserved", detail::bytes_text(stats.reserved_bytes.peak)},
    };
    const double step = (kWidth - 2 * kMargin) / static_cast<double>(std::size(figures));
    double x = kMargin;
    for (const auto& [what, figure] : figures) {
      text(x, 94, "figure", figure);
      text(x, 112, "soft", what);
      x += step;
    }
    y_ = 130;
  }

  void legend() {
    struct Entry {
      std::string style, scope;
      ScopeTotal total;
    };
    std::vector<Entry> entries;
    ScopeTotal others;
    std::size_t other_scopes = 0;
    for (const ScopeTotal& total : totals_.scopes) {
      if (entries.size() < kLegendScopes) {
        entries.push_back({fmt::format("style=\"fill:{}\"", detail::scope_colour(total.scope)),
                           detail::scope_text(total.scope, 28), total});
      } else {
        ++other_scopes;
        others.bytes += total.bytes;
        others.blocks += total.blocks;
      }
    }
    if (other_scopes != 0)
      entries.push_back({"fill=\"none\"", fmt::format("{} more scopes", other_scopes), others});
    entries.push_back({"class=\"free\"", "free", totals_.free});
    if (totals_.pending.blocks != 0)
      entries.push_back({"class=\"pending\"", "pending: other streams' work", totals_.pending});

    constexpr std::size_t kColumns = 3;
    constexpr double kColumnWidth = (kWidth - 2 * kMargin + 28) / kColumns;
    const std::size_t rows = (entries.size() + kColumns - 1) / kColumns;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const double x = kMargin + kColumnWidth * static_cast<double>(i / rows);
      const double y = y_ + 8 + kLegendStep * static_cast<double>(i % rows);
      const Entry& entry = entries[i];
      add(R"(<rect x="{:.1f}" y="{:.1f}" width="14" height="14" rx="3" {}/>)", x, y, entry.style);
      text(x + 22, y + 11.5, "", entry.scope);
      text(x + kColumnWidth - 28, y + 11.5, "soft right",
           fmt::format("{} in {} {}", detail::bytes_text(entry.total.bytes),
                       detail::grouped_text(entry.total.blocks),
                       entry.total.blocks == 1 ? "block" : "blocks"));
    }
    y_ += 8 + kLegendStep * static_cast<double>(rows);
  }

  void axis(const Panel& panel) {
    double height = 0;
    for (const Segment* segment : panel.segments) height += bar_height(*segment, panel.row_bytes);
    y_ += 48;
    text(kMargin, y_ - 8, "soft small", fmt::format("a row: {}", detail::bytes_text(panel.row_bytes)));
    const std::size_t step = detail::axis_step(panel.row_bytes);
    for (std::size_t at = 0;; at += step) {
      const double x = kBarX + kBarWidth * ratio(at, panel.row_bytes);
      add(R"(<path class="grid" d="M{:.1f} {:.1f}v{:.1f}"/>)", x, y_ - 3, height + 3);
      text(x, y_ - 8,
           at == 0                 ? "soft small"
           : at == panel.row_bytes ? "soft small right"
                                   : "soft small middle",
           detail::bytes_text(at));
      if (panel.row_bytes - at < step) break;
    }
  }

  static double ratio(std::size_t bytes, std::size_t of) {
    return static_cast<double>(bytes) / static_cast<double>(of);
  }
  static std::size_t rows_of(const Segment& segment, std::size_t row_bytes) {
    return std::max<std::size_t>(segment.bytes / row_bytes + (segment.bytes % row_bytes != 0), 1);
  }
  static double bar_height(const Segment& segment, std::size_t row_bytes) {
    return kRowStep * static_cast<double>(rows_of(segment, row_bytes)) + 14;
  }

  void bar(const Segment& segment, std::size_t row_bytes) {
    text(kMargin, y_ + 13, "", fmt::format("{:#x}", segment.address));
    const std::string pool =
        segment.graph_pool == 0 ? "" : fmt::format(", graph pool {}", segment.graph_pool);
    text(kMargin, y_ + 27, "soft small", fmt::format("{}{}", detail::bytes_text(segment.bytes), pool));
    std::size_t at = 0;
    std::uintptr_t address = segment.address;
    for (const Block& segment_block : segment.blocks) {
      block(segment_block, at, row_bytes);
      if (segment_block.address != address && at != 0) gap(segment_block.address - address, at, row_bytes);
      at += segment_block.bytes;
      address = segment_block.address + segment_block.bytes;
    }
    for (std::size_t row = 0, begin = 0; begin < at; ++row, begin += row_bytes)
      add(R"(<rect class="edge" x="{}" y="{:.1f}" width="{:.3f}" height="{}"/>)", kBarX, row_y(row),
          kBarWidth * ratio(std::min(at - begin, row_bytes), row_bytes), kRowHeight);
    body_ += '\n';
    y_ += bar_height(segment, row_bytes);
  }

  double row_y(std::size_t row) const { return y_ + kRowStep * static_cast<double>(row); }

  /// Addresses without memory take no room.
  void gap(std::uintptr_t bytes, std::size_t at, std::size_t row_bytes) {
    add(R"(<path class="gap" d="M{:.2f} {:.1f}v{}"><title>{} of addresses without memory</title></path>)",
        kBarX + kBarWidth * ratio(at % row_bytes, row_bytes), row_y(at / row_bytes) - 3, kRowHeight + 6,
        detail::bytes_text(bytes));
  }

  /// A group: its description, and a rectangle for each row it lies in.
  void block(const Block& block, std::size_t at, std::size_t row_bytes) {
    const std::string fill = block.state == State::live
                                 ? fmt::format(" style=\"fill:{}\"", detail::scope_colour(block.scope))
                                 : "";
    add("<g class=\"block {}\"{}><title>", detail::state_text(block.state), fill);
    description(block);
    add("</title>");
    double widest = 0;
    double label_x = 0;
    double label_y = 0;
    for (std::size_t begin = at, end = at + block.bytes; begin < end;) {
      const std::size_t column = begin % row_bytes;
      const std::size_t bytes = std::min(end - begin, row_bytes - column);
      const double x = kBarX + kBarWidth * ratio(column, row_bytes);
      const double y = row_y(begin / row_bytes);
      const double width = kBarWidth * ratio(bytes, row_bytes);
      add(R"(<rect x="{:.3f}" y="{:.1f}" width="{:.3f}" height="{}"{}/>)", x, y, width, kRowHeight,
          width < 3 ? R"( style="stroke:none")" : "");  // or the outline would be all there is to see
      if (width > widest) {
        widest = width;
        label_x = x;
        label_y = y;
      }
      begin += bytes;
    }
    add("</g>\n");
    if (block.state == State::live) label(block, label_x, label_y, widest);
  }

  void description(const Block& block) {
    if (!block.scope.empty())
      add("{}{}&#10;", block.state == State::live ? "" : "was ", detail::xml_text(block.scope));
    add("{} ({} bytes)", detail::bytes_text(block.bytes), detail::grouped_text(block.bytes));
    if (block.state == State::live) add(", {} requested", detail::grouped_text(block.requested_bytes));
    add("&#10;{:#x}, {}, ", block.address, detail::state_text(block.state));
    if (block.stream == 0) {
      add("any stream");
    } else {
      add("stream {}", block.stream);
    }
  }

  /// The scope, or at least its last name, where there is room.
  void label(const Block& block, double x, double y, double width) {
    constexpr double kCharacter = 6.8;
    std::string_view words = block.scope;
    const auto fits = [&] { return static_cast<double>(words.size()) * kCharacter + 12 <= width; };
    while (!fits()) {
      const auto dot = words.find('.');
      if (dot == std::string_view::npos) return;
      words.remove_prefix(dot + 1);
    }
    if (!words.empty()) text(x + 6, y + 19, "in", detail::xml_text(words));
  }

  Totals totals_;
  std::string body_;
  double y_ = 0;  // of what comes next
};

}  // namespace

std::string to_svg(const PoolSnapshot& snapshot) { return Map(snapshot).take(); }

}  // namespace burin
