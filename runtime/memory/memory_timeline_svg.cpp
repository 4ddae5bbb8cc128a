#include <burin/runtime/memory/memory_report.h>
#include <burin/runtime/memory/report_text.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace burin {
namespace {

using detail::ScopeTotal;
using Timeline = std::vector<PoolEvent>;
using Kind = PoolEvent::Kind;

// Lengths in pixels.
constexpr double kWidth = 1200;
constexpr double kMargin = 36;
constexpr double kLeft = 104;
constexpr double kRight = kWidth - kMargin;
constexpr double kTop = 128;
constexpr double kBottom = 468;
constexpr double kLegendStep = 22;
constexpr std::size_t kLegendScopes = 12;

constexpr std::string_view kStyle = R"(<style>
text{font-family:Inter,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:12px;fill:#1f2733}
.soft{fill:#6b7685}.small{font-size:11px}.title{font-size:20px;font-weight:600}.right{text-anchor:end}
.middle{text-anchor:middle}.grid{stroke:#e3e7ec;fill:none}.reserved{fill:#e6e9ed;stroke:#98a2b0}
.allocated{fill:#7fb2e5;fill-opacity:.8;stroke:#4a8ed2;stroke-width:.7}.peak{stroke:#1f2733;stroke-dasharray:3 3}
.refused{stroke:#d64545;stroke-width:2}
</style>
)";

/// What was in use after the event `peak`, by scope, as far as the timeline saw it allocated.
std::vector<ScopeTotal> scopes_at(const Timeline& timeline, std::size_t peak) {
  std::unordered_map<std::uintptr_t, const PoolEvent*> live;
  for (std::size_t i = 0; i <= peak; ++i) {
    const PoolEvent& event = timeline[i];
    if (event.kind == Kind::allocate) live[event.address] = &event;
    if (event.kind == Kind::deallocate) live.erase(event.address);
  }
  detail::ScopeTotals totals;
  for (const auto& [address, event] : live) totals.add(event->scope, event->bytes);
  return totals.largest_first();
}

/// A duration with a unit that suits `span`, which is one too.
std::string time_text(std::uint64_t ns, std::uint64_t span) {
  constexpr std::pair<std::uint64_t, std::string_view> kUnits[] = {
      {1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}};
  for (const auto& [unit, text] : kUnits)
    if (span >= unit)
      return fmt::format("{:.4g} {}", static_cast<double>(ns) / static_cast<double>(unit), text);
  return fmt::format("{} ns", ns);
}

/// Between the marks of an axis: 1, 2 or 5 times a power of ten, so that 5 to 13 of them fit into `span`.
std::uint64_t time_step(std::uint64_t span) {
  std::uint64_t step = 1;
  for (std::uint64_t i = 0; span / step > 12; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

class Chart {
 public:
  explicit Chart(const Timeline& timeline)
      : timeline_(timeline),
        begin_ns_(timeline.front().time_ns),
        span_ns_(std::max<std::uint64_t>(timeline.back().time_ns - begin_ns_, 1)) {
    std::size_t most = 1;
    for (const PoolEvent& event : timeline)
      most = std::max({most, event.reserved_bytes, event.allocated_bytes});
    step_bytes_ = detail::axis_step(most);
    top_bytes_ = (most + step_bytes_ - 1) / step_bytes_ * step_bytes_;
    axes();
    area("reserved", &PoolEvent::reserved_bytes);
    area("allocated", &PoolEvent::allocated_bytes);
    refusals();
    peak();
  }

  std::string body() const { return body_; }
  double height() const { return height_; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  /// `safe` is XML text.
  void text(double x, double y, std::string_view classes, std::string_view safe) {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes, safe);
  }
  double x_of(const PoolEvent& event) const {
    return kLeft +
           (kRight - kLeft) * static_cast<double>(event.time_ns - begin_ns_) / static_cast<double>(span_ns_);
  }
  double y_of(std::size_t bytes) const {
    return kBottom - (kBottom - kTop) * static_cast<double>(bytes) / static_cast<double>(top_bytes_);
  }

  void axes() {
    for (std::size_t at = 0;; at += step_bytes_) {
      add(R"(<path class="grid" d="M{} {:.1f}H{}"/>)", kLeft, y_of(at), kRight);
      text(kLeft - 10, y_of(at) + 4, "soft small right", detail::bytes_text(at));
      if (top_bytes_ - at < step_bytes_) break;
    }
    const std::uint64_t step_ns = time_step(span_ns_);
    for (std::uint64_t ns = 0; ns <= span_ns_; ns += step_ns) {
      const double x = kLeft + (kRight - kLeft) * static_cast<double>(ns) / static_cast<double>(span_ns_);
      add(R"(<path class="grid" d="M{:.1f} {}v6"/>)", x, kBottom);
      text(x, kBottom + 22, "soft small middle", time_text(ns, span_ns_));
    }
  }

  /// Steps from event to event. Of the events in one column of pixels it keeps the least, the most and the
  /// last, so that no peak is lost and a long timeline makes no long path.
  void area(std::string_view what, std::size_t PoolEvent::*bytes) {
    const std::size_t first = timeline_.front().*bytes;
    add(R"(<path class="{}" d="M{} {}V{:.1f})", what, kLeft, kBottom, y_of(first));
    for (std::size_t i = 0; i < timeline_.size();) {
      const double x = x_of(timeline_[i]);
      std::size_t least = timeline_[i].*bytes;
      std::size_t most = least;
      std::size_t last = least;
      do {
        last = timeline_[i].*bytes;
        least = std::min(least, last);
        most = std::max(most, last);
        ++i;
      } while (i < timeline_.size() && x_of(timeline_[i]) < std::floor(x) + 1);
      add("H{:.2f}V{:.1f}V{:.1f}V{:.1f}", x, y_of(least), y_of(most), y_of(last));
    }
    add("H{}V{}Z\"><title>{} bytes</title></path>\n", kRight, kBottom, what);
  }

  void refusals() {
    for (const PoolEvent& event : timeline_) {
      if (event.kind != Kind::out_of_memory) continue;
      add("<path class=\"refused\" d=\"M{:.2f} {}V{}\"><title>out of memory: {} for {}</title></path>\n",
          x_of(event), kTop, kBottom, detail::bytes_text(event.bytes), detail::scope_text(event.scope, 60));
    }
  }

  void peak() {
    const auto peak = std::max_element(
        timeline_.begin(), timeline_.end(),
        [](const PoolEvent& a, const PoolEvent& b) { return a.allocated_bytes < b.allocated_bytes; });
    const double x = x_of(*peak);
    const double y = y_of(peak->allocated_bytes);
    const bool at_right = x > (kLeft + kRight) / 2;
    add(R"(<path class="peak" d="M{0:.2f} {1}V{2}"/><circle cx="{0:.2f}" cy="{3:.1f}" r="4" fill="#1f2733"/>)",
        x, kTop - 22, kBottom, y);
    text(x + (at_right ? -8 : 8), kTop - 14, at_right ? "right" : "",
         fmt::format("peak: {} allocated of {} reserved", detail::bytes_text(peak->allocated_bytes),
                     detail::bytes_text(peak->reserved_bytes)));
    legend(*peak, scopes_at(timeline_, static_cast<std::size_t>(peak - timeline_.begin())));
  }

  void legend(const PoolEvent& peak, const std::vector<ScopeTotal>& scopes) {
    text(kLeft, kBottom + 62, "soft", "In use at the peak, by scope");
    std::size_t shown = 0;
    std::size_t shown_bytes = 0;
    for (; shown < std::min(scopes.size(), kLegendScopes); ++shown) {
      entry(shown, detail::scope_colour(scopes[shown].scope), detail::scope_text(scopes[shown].scope, 46),
            scopes[shown].bytes, peak.allocated_bytes);
      shown_bytes += scopes[shown].bytes;
    }
    if (shown_bytes < peak.allocated_bytes)
      entry(shown++, "#e6e9ed",
            scopes.size() > kLegendScopes ? "other scopes" : "allocated before the timeline begins",
            peak.allocated_bytes - shown_bytes, peak.allocated_bytes);
    height_ = kBottom + 92 + kLegendStep * static_cast<double>(shown);
  }

  void entry(std::size_t row, std::string_view colour, std::string_view scope, std::size_t bytes,
             std::size_t of) {
    const double y = kBottom + 74 + kLegendStep * static_cast<double>(row);
    const double part = static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(of, 1));
    text(kLeft + 316, y + 11.5, "right", scope);
    add(R"(<rect class="share" x="{:.1f}" y="{:.1f}" width="{:.2f}" height="14" rx="2" fill="{}"/>)",
        kLeft + 328, y, std::max(1.0, 440 * part), colour);
    text(kLeft + 336 + 440 * part, y + 11.5, "soft",
         fmt::format("{} ({:.0f} %)", detail::bytes_text(bytes), 100 * part));
  }

  const Timeline& timeline_;
  std::uint64_t begin_ns_;
  std::uint64_t span_ns_;
  std::size_t step_bytes_ = 1;
  std::size_t top_bytes_ = 1;
  std::string body_;
  double height_ = 0;
};

}  // namespace

std::string to_svg(const Timeline& timeline) {
  std::string body = "<text x=\"36\" y=\"110\" class=\"soft\">No events were kept.</text>\n";
  double height = 150;
  std::string caption;
  if (!timeline.empty()) {
    const Chart chart(timeline);
    body = chart.body();
    height = chart.height();
    const std::uint64_t span = timeline.back().time_ns - timeline.front().time_ns;
    caption = fmt::format("{} events in {}", detail::grouped_text(timeline.size()), time_text(span, span));
  }
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" viewBox="0 0 {0} {1:.0f}">
{2}<rect width="100%" height="100%" fill="#fff"/>
<text x="{3}" y="48" class="title">Memory over time</text>
<rect x="{3}" y="64" width="14" height="14" rx="3" class="allocated"/><text x="{4}" y="75.5">allocated</text>
<rect x="{5}" y="64" width="14" height="14" rx="3" class="reserved"/><text x="{6}" y="75.5">reserved</text>
<text x="{7}" y="48" class="soft right">{8}</text>
{9}</svg>
)",
      kWidth, height, kStyle, kMargin, kMargin + 20, kMargin + 100, kMargin + 120, kRight, caption, body);
}

}  // namespace burin
