#pragma once
// Private: which bucket serves a batch.

#include <cstdint>
#include <span>
#include <vector>

namespace burin::detail {

/// Ascending and without repeats. Throws ShapeError for one below 1.
std::vector<std::int64_t> sorted_buckets(std::vector<std::int64_t> buckets);

struct Piece {
  std::int64_t begin;  // rows of the batch
  std::int64_t end;
  std::int64_t bucket;  // at least end - begin
};
/// How a batch of at least 1 is cut: into the largest bucket as long as more is left, then into the smallest
/// that holds the rest.
std::vector<Piece> pieces_of(std::int64_t batch, std::span<const std::int64_t> sorted);

}  // namespace burin::detail
