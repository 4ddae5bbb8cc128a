// Classifies handwritten digits: a labelled set in IDX form (by default the 2,000 test digits in data/), or
// one picture.

#include <burin/burin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "classifier.h"
#include "options.h"
#include "preprocess.h"
#include "report.h"

namespace cnn {
namespace {

struct DigitSet {
  burin::Tensor images;  // u8 [N, 28, 28]
  burin::Tensor labels;  // u8 [N]
  std::int64_t count() const { return labels.count(); }
  std::span<const std::uint8_t> pixels(std::int64_t first, std::int64_t count) const {
    return {images.data<std::uint8_t>() + first * kPixels, static_cast<std::size_t>(count * kPixels)};
  }
  int label(std::int64_t i) const { return labels.data<std::uint8_t>()[i]; }
};

DigitSet load_digits(const Options& options) {
  DigitSet set{burin::io::load_idx(options.images), burin::io::load_idx(options.labels)};
  if (set.images.dtype() != burin::DType::u8 || set.images.rank() != 3 || set.images.extent(1) != kSide ||
      set.images.extent(2) != kSide)
    throw burin::FileError(options.images, -1, "dimensions",
                           "expected bytes [N, 28, 28], found " + burin::to_string(set.images.shape()));
  if (set.labels.dtype() != burin::DType::u8 || set.labels.rank() != 1)
    throw burin::FileError(options.labels, -1, "dimensions",
                           "expected bytes [N], found " + burin::to_string(set.labels.shape()));
  if (set.labels.count() != set.images.extent(0))
    throw burin::FileError(options.labels, -1, "dimensions",
                           fmt::format("{} labels for {} images", set.labels.count(), set.images.extent(0)));
  if (set.count() == 0) throw burin::FileError(options.images, -1, "", "the set has no digits");
  for (std::int64_t i = 0; i < set.count(); ++i)
    if (set.label(i) >= kClasses)
      throw burin::FileError(options.labels, -1, fmt::format("label {}", i),
                             fmt::format("{} is not a digit", set.label(i)));
  return set;
}

void classify_image(const Options& options, Classifier& classifier) {
  const auto digit = digit_of(burin::io::load_image(options.image), options.image);
  const std::vector<Prediction> predictions = classifier.classify(digit);
  draw_digits({digit}, predictions, {-1});
  fmt::print("{}: {}\n", options.image, predictions[0].digit());
}

Results classify_set(const Options& options, const DigitSet& set, Classifier& classifier,
                     std::vector<Prediction>& predictions) {
  using Clock = std::chrono::steady_clock;
  Results results;
  results.count = set.count();
  for (int i = 0; i < 3; ++i)  // the first call of a shape makes its plans, and its graph
    classifier.classify(set.pixels(0, options.batch));

  Progress progress(set.count());
  for (std::int64_t first = 0; first < set.count(); first += options.batch) {
    const std::int64_t count = std::min(options.batch, set.count() - first);
    const auto start = Clock::now();
    const std::vector<Prediction> batch = classifier.classify(set.pixels(first, count));
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    results.seconds += elapsed.count();
    if (count == options.batch) results.batch_ms.push_back(elapsed.count() * 1e3);
    for (std::int64_t i = 0; i < count; ++i) {
      const int label = set.label(first + i);
      const int answer = batch[static_cast<std::size_t>(i)].digit();
      results.right += answer == label;
      ++results.confusion[static_cast<std::size_t>(label)][static_cast<std::size_t>(answer)];
    }
    predictions.insert(predictions.end(), batch.begin(), batch.end());
    progress.show(first + count);
  }
  return results;
}

/// How long a full batch takes without a graph and with it, in turns so that both see the same machine.
Comparison compare_latency(const Options& options, const DigitSet& set, Classifier& classifier) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUps = 5;
  constexpr int kRuns = 50;
  const std::int64_t batches = std::min<std::int64_t>(set.count() / options.batch, 10);  // the first ones
  Comparison both;
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    const auto pixels = set.pixels(run % batches * options.batch, options.batch);
    const auto start = Clock::now();
    classifier.classify_eagerly(pixels);
    const auto between = Clock::now();
    classifier.classify(pixels);
    const auto end = Clock::now();
    if (run < kWarmUps) continue;
    both.eager_ms.push_back(std::chrono::duration<double, std::milli>(between - start).count());
    both.graph_ms.push_back(std::chrono::duration<double, std::milli>(end - between).count());
  }
  return both;
}

/// The first digits, and the first that were misread.
void draw_some(const DigitSet& set, const std::vector<Prediction>& predictions) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < set.count() && chosen.size() < 2; ++i) chosen.push_back(i);
  for (std::int64_t i = 2; i < set.count() && chosen.size() < 4; ++i)
    if (predictions[static_cast<std::size_t>(i)].digit() != set.label(i)) chosen.push_back(i);
  std::vector<std::array<std::uint8_t, kPixels>> digits;
  std::vector<Prediction> answers;
  std::vector<int> labels;
  for (const std::int64_t i : chosen) {
    std::copy_n(set.pixels(i, 1).begin(), kPixels, digits.emplace_back().begin());
    answers.push_back(predictions[static_cast<std::size_t>(i)]);
    labels.push_back(set.label(i));
  }
  if (!digits.empty()) draw_digits(digits, answers, labels);
}

void run(Options options) {
  const DigitSet set = options.image.empty() ? load_digits(options) : DigitSet();
  if (options.image.empty()) options.batch = std::min(options.batch, set.count());
  Classifier classifier(options);
  fmt::print("device: {} ({}), {}\n", burin::name(classifier.device()),
             burin::description(classifier.device()), classifier.device_reason());
  fmt::print("precision: {}", name(options.precision));
  if (classifier.device().is_cpu()) fmt::print(", threads: {}", classifier.threads());
  fmt::print("\n\n");
  if (!options.image.empty()) return classify_image(options, classifier);

  std::vector<Prediction> predictions;
  Results results = classify_set(options, set, classifier, predictions);
  if (classifier.has_replayed()) results.comparison = compare_latency(options, set, classifier);
  draw_some(set, predictions);
  print_results(results, options.batch);
  if (!options.json_path.empty()) write_json(options.json_path, results, options, classifier);
}

}  // namespace
}  // namespace cnn

int main(int argc, char** argv) {
  const cnn::Options options = cnn::parse_options(argc, argv);
  try {
    cnn::run(options);
    if (std::fflush(stdout) != 0) throw burin::Error("the output could not be written");
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "cnn: %s\n", error.what());  // fmt would throw where stderr is closed
    return 1;
  }
  return 0;
}
