#include <burin/graph/buckets.h>
#include <burin/runtime/check.h>

#include <algorithm>

namespace burin::detail {

std::vector<std::int64_t> sorted_buckets(std::vector<std::int64_t> buckets) {
  for (const std::int64_t bucket : buckets)
    BURIN_CHECK(bucket >= 1, ShapeError, "GraphExecutor: a bucket ({}) must be at least 1", bucket);
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  return buckets;
}

std::vector<Piece> pieces_of(std::int64_t batch, std::span<const std::int64_t> sorted) {
  std::vector<Piece> pieces;
  for (std::int64_t begin = 0; begin < batch;) {
    const std::int64_t left = batch - begin;
    const auto fit = std::lower_bound(sorted.begin(), sorted.end(), left);
    const std::int64_t bucket = fit == sorted.end() ? sorted.back() : *fit;
    pieces.push_back({begin, begin + std::min(left, bucket), bucket});
    begin = pieces.back().end;
  }
  return pieces;
}

}  // namespace burin::detail
