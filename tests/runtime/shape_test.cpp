#include <burin/runtime/error.h>
#include <burin/runtime/shape.h>

#include <gtest/gtest.h>

namespace burin {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().count(), 1);
  EXPECT_EQ(Shape({2, 3, 4}).count(), 24);
  EXPECT_EQ(Shape({2, 0, 4}).count(), 0);
}

TEST(Shape, I6_RejectsNegativeAndOverflowingExtents) {
  EXPECT_THROW(Shape({-1, 3}), ShapeError);
  EXPECT_THROW(Shape({std::int64_t{1} << 33, std::int64_t{1} << 31}), ShapeError);
  EXPECT_EQ(Shape({0, std::int64_t{1} << 62}).count(), 0);
  EXPECT_THROW(Shape({0, std::int64_t{1} << 62, 2}), ShapeError);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
}

TEST(Shape, NormalizesAxes) {
  EXPECT_EQ(Shape({2, 3}).normalize_axis(-1), 1);
  EXPECT_EQ(Shape({2, 3}).extent(-2), 2);
  EXPECT_THROW(Shape({2, 3}).normalize_axis(2), ShapeError);
  EXPECT_THROW(Shape().normalize_axis(0), ShapeError);
}

TEST(Shape, BroadcastsByNumPysRule) {
  EXPECT_EQ(broadcast("add", {2, 1, 4}, {3, 1}), Shape({2, 3, 4}));
  EXPECT_EQ(broadcast("add", {0, 3}, {1, 3}), Shape({0, 3}));
  EXPECT_EQ(broadcast("add", {}, {5}), Shape({5}));
  EXPECT_THROW(broadcast("add", {2}, {3}), ShapeError);
}

}  // namespace
}  // namespace burin
