#pragma once
// Private: what the reports on memory share: text made safe for XML and JSON, figures for people, colours.

#include <burin/runtime/memory/pool_stats.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace burin::detail {

/// For XML's text and attribute values. Bytes that are not UTF-8, and characters XML cannot hold, become
/// U+FFFD.
std::string xml_text(std::string_view text);
/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);
/// XML text of a scope for people: a name for the empty one; beyond `characters` its end, after an ellipsis.
std::string scope_text(std::string_view scope, std::size_t characters);

/// "1.5 MiB": three digits.
std::string bytes_text(std::size_t bytes);
/// "1,572,864"
std::string grouped_text(std::size_t number);

/// "live", "free", "pending"
std::string_view state_text(PoolSnapshot::State state);

/// A colour of the palette, always the same for a scope.
std::string_view scope_colour(std::string_view scope);

struct ScopeTotal {
  std::string scope;
  std::size_t bytes = 0;
  std::size_t blocks = 0;
};
/// Sums by scope.
class ScopeTotals {
 public:
  void add(const std::string& scope, std::size_t bytes) {
    ScopeTotal& total = totals_[scope];
    total.bytes += bytes;
    ++total.blocks;
  }
  std::vector<ScopeTotal> largest_first() const;

 private:
  std::map<std::string, ScopeTotal> totals_;
};

/// Bytes between the marks of an axis: a power of two, so that 4 to 8 steps reach from 0 to `bytes`.
std::size_t axis_step(std::size_t bytes);

}  // namespace burin::detail
