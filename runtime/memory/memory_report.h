#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/memory/pool_stats.h>

#include <string>
#include <vector>

namespace burin {

/// A snapshot as JSON: the fields of PoolSnapshot by their names, addresses as hexadecimal text.
BURIN_API std::string to_json(const PoolSnapshot& snapshot);
/// A picture of it, an SVG that a browser shows: one bar a segment, a long one in rows, all under one axis to
/// one scale (small segments have an axis of their own); blocks coloured by state and scope; hovering over a
/// block tells its address, bytes, stream and scope; a legend and the totals.
BURIN_API std::string to_svg(const PoolSnapshot& snapshot);

/// A timeline in Chrome's trace format (chrome://tracing, ui.perfetto.dev): counters of allocated and
/// reserved bytes, and every block as a slice from its allocation to its release.
BURIN_API std::string to_chrome_trace(const std::vector<PoolEvent>& timeline);
/// Allocated and reserved bytes over time as an SVG, with the peak and its scopes named.
BURIN_API std::string to_svg(const std::vector<PoolEvent>& timeline);

}  // namespace burin
