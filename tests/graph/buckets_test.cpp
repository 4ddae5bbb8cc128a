#include <burin/graph/buckets.h>
#include <support/test_support.h>

#include <vector>

#include <gmock/gmock.h>

namespace burin::detail {

bool operator==(const Piece& a, const Piece& b) {
  return a.begin == b.begin && a.end == b.end && a.bucket == b.bucket;
}

}  // namespace burin::detail

namespace burin::test {
namespace {

using detail::Piece;
using detail::pieces_of;
using ::testing::ElementsAre;

TEST(Buckets, AreSortedAndUnique) {
  EXPECT_THAT(detail::sorted_buckets({8, 1, 4, 8}), ElementsAre(1, 4, 8));
  EXPECT_THROW(detail::sorted_buckets({4, 0}), ShapeError);
}

TEST(Buckets, ABatchGoesIntoTheSmallestThatHoldsIt) {
  const std::vector<std::int64_t> buckets{1, 4, 8};
  EXPECT_THAT(pieces_of(1, buckets), ElementsAre(Piece{0, 1, 1}));
  EXPECT_THAT(pieces_of(2, buckets), ElementsAre(Piece{0, 2, 4}));
  EXPECT_THAT(pieces_of(4, buckets), ElementsAre(Piece{0, 4, 4}));
  EXPECT_THAT(pieces_of(5, buckets), ElementsAre(Piece{0, 5, 8}));
}

TEST(Buckets, ALargerBatchIsCutIntoTheLargest) {
  const std::vector<std::int64_t> buckets{1, 4, 8};
  EXPECT_THAT(pieces_of(8, buckets), ElementsAre(Piece{0, 8, 8}));
  EXPECT_THAT(pieces_of(17, buckets), ElementsAre(Piece{0, 8, 8}, Piece{8, 16, 8}, Piece{16, 17, 1}));
  EXPECT_THAT(pieces_of(11, buckets), ElementsAre(Piece{0, 8, 8}, Piece{8, 11, 4}));
  EXPECT_TRUE(pieces_of(0, buckets).empty());
}

}  // namespace
}  // namespace burin::test
