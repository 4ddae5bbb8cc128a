#include <burin/runtime/plan_cache.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace burin {
namespace {

struct Plan {
  int number = 0;
};

/// Finds or makes, and counts the makings.
class PlanCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Plan> get(PlanCache& cache, std::int64_t key) {
    return cache.find_or_make<Plan>(PlanKey("op").add(key), [&] {
      ++made_;
      return Plan{static_cast<int>(key)};
    });
  }
  int made_ = 0;
};

TEST_F(PlanCacheTest, MakesEachPlanOnce) {
  PlanCache cache(4);
  const auto first = get(cache, 1);
  EXPECT_EQ(first->number, 1);
  EXPECT_EQ(get(cache, 1), first);
  EXPECT_EQ(get(cache, 2)->number, 2);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(cache.size(), 2u);
}

TEST_F(PlanCacheTest, DropsTheLeastRecentlyUsed) {
  PlanCache cache(2);
  get(cache, 1);
  const auto second = get(cache, 2);
  get(cache, 1);
  get(cache, 3);  // drops 2
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(made_, 3);
  get(cache, 1);
  get(cache, 3);
  EXPECT_EQ(made_, 3);
  get(cache, 2);
  EXPECT_EQ(made_, 4);
  EXPECT_EQ(second->number, 2) << "a dropped plan lives as long as its holder";
}

TEST_F(PlanCacheTest, ManyMoreKeysThanPlaces) {
  PlanCache cache(16);
  for (std::int64_t round = 0; round < 3; ++round)
    for (std::int64_t key = 0; key < 200; ++key) EXPECT_EQ(get(cache, key)->number, key);
  EXPECT_EQ(made_, 600);
  EXPECT_EQ(cache.size(), 16u);
  for (std::int64_t key = 199; key >= 184; --key) get(cache, key);
  EXPECT_EQ(made_, 600);
}

TEST_F(PlanCacheTest, NothingIsKeptWithoutCapacityOrAfterAFailure) {
  PlanCache none(0);
  EXPECT_EQ(get(none, 1)->number, 1);
  EXPECT_EQ(none.size(), 0u);
  PlanCache cache(2);
  EXPECT_THROW(cache.find_or_make<Plan>(PlanKey("op"), []() -> Plan { throw std::runtime_error("no plan"); }),
               std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
  get(cache, 1);
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  get(cache, 1);
  EXPECT_EQ(made_, 3);
}

TEST(PlanKey, TellsEverythingApart) {
  const TensorSpec spec = dense_spec(DType::f32, {2, 3, 4, 5}, Device::cpu());
  const auto key = [](const TensorSpec& s) { return PlanKey("op").add(s).bytes(); };
  TensorSpec other = spec;
  EXPECT_EQ(key(other), key(spec));
  other.dtype = DType::i32;
  EXPECT_NE(key(other), key(spec));
  EXPECT_NE(key(dense_spec(DType::f32, {2, 3, 5, 4}, Device::cpu())), key(spec));
  EXPECT_NE(key(dense_spec(DType::f32, {2, 3, 4, 5}, Device::cpu(), Layout::channels_last)), key(spec));
  EXPECT_NE(key(dense_spec(DType::f32, {2, 3, 4, 5}, Device::cuda(0))), key(spec));
  EXPECT_NE(key(dense_spec(DType::f32, {2, 3, 4, 5}, Device::cuda(1))),
            key(dense_spec(DType::f32, {2, 3, 4, 5}, Device::cuda(0))));
  EXPECT_NE(PlanKey("a").add(spec).bytes(), PlanKey("b").add(spec).bytes());
  EXPECT_NE(PlanKey("op").add(1, 2).bytes(), PlanKey("op").add(2, 1).bytes());
  EXPECT_NE(PlanKey("op").add(IntList{1}, IntList{2, 3}).bytes(),
            PlanKey("op").add(IntList{1, 2}, IntList{3}).bytes());
  EXPECT_NE(PlanKey("op").add(0.5f).bytes(), PlanKey("op").add(0.25f).bytes());
}

}  // namespace
}  // namespace burin
