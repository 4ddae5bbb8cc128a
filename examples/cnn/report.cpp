#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cnn {
namespace {

constexpr int kBarWidth = 40;

/// Two rows of pixels in one row of text, as characters get denser with the ink.
std::string text_row(const std::array<std::uint8_t, kPixels>& digit, std::int64_t row) {
  constexpr std::string_view kRamp = " .:-=+*#%@";
  std::string text;
  for (std::int64_t column = 0; column < kSide; ++column) {
    const auto at = static_cast<std::size_t>(row * kSide + column);
    const int ink = (digit[at] + digit[at + kSide]) / 2;
    text += kRamp[static_cast<std::size_t>(ink) * (kRamp.size() - 1) / 255];
  }
  return text;
}

/// How many digits fit side by side: 30 columns each, of 80 where the width is not known.
std::size_t digits_abreast() {
  winsize window{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return std::max<std::size_t>(1, (is_known ? window.ws_col : 80u) / 30u);
}

void draw_row(const std::vector<std::array<std::uint8_t, kPixels>>& digits,
              const std::vector<Prediction>& predictions, const std::vector<int>& labels, std::size_t first,
              std::size_t last) {
  for (std::int64_t row = 0; row + 1 < kSide; row += 2) {
    std::string line;
    for (std::size_t i = first; i < last; ++i) line += text_row(digits[i], row) + "  ";
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
  std::string answers;
  std::string truth;
  for (std::size_t i = first; i < last; ++i) {
    std::string answer;
    for (const int digit : predictions[i].top3())
      answer += fmt::format("{} {:.1f}%  ", digit,
                            100 * predictions[i].probabilities[static_cast<std::size_t>(digit)]);
    answers += fmt::format("{:<30}", answer);
    if (labels[i] >= 0)
      truth += fmt::format("{:<30}", fmt::format("label {}{}", labels[i],
                                                 labels[i] == predictions[i].digit() ? "" : " (wrong)"));
  }
  answers.erase(answers.find_last_not_of(' ') + 1);
  truth.erase(truth.find_last_not_of(' ') + 1);
  fmt::print("{}\n", answers);
  if (!truth.empty()) fmt::print("{}\n", truth);
  fmt::print("\n");
}

nlohmann::ordered_json latency(const std::vector<double>& ms) {
  return {{"median", percentile(ms, 50)}, {"p90", percentile(ms, 90)}, {"p99", percentile(ms, 99)}};
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank - 1, 0.0))];
}

Progress::Progress(std::int64_t total) : total_(total), visible_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (visible_) std::fputs("\r\033[K", stderr);
}

void Progress::show(std::int64_t done) {
  const int filled = total_ == 0 ? kBarWidth : static_cast<int>(done * kBarWidth / total_);
  if (!visible_ || filled == shown_) return;
  shown_ = filled;
  fmt::print(stderr, "\r[{:<{}}] {} of {}", std::string(static_cast<std::size_t>(filled), '#'), kBarWidth,
             done, total_);
  std::fflush(stderr);
}

void draw_digits(const std::vector<std::array<std::uint8_t, kPixels>>& digits,
                 const std::vector<Prediction>& predictions, const std::vector<int>& labels) {
  const std::size_t abreast = digits_abreast();
  for (std::size_t first = 0; first < digits.size(); first += abreast)
    draw_row(digits, predictions, labels, first, std::min(digits.size(), first + abreast));
}

void print_results(const Results& results, std::int64_t batch) {
  struct Confused {
    std::int64_t times;
    std::size_t label, answer;
  };
  std::vector<Confused> confused;
  for (std::size_t label = 0; label < kClasses; ++label)
    for (std::size_t answer = 0; answer < kClasses; ++answer)
      if (label != answer && results.confusion[label][answer] > 0)
        confused.push_back({results.confusion[label][answer], label, answer});
  std::stable_sort(confused.begin(), confused.end(),
                   [](const Confused& a, const Confused& b) { return a.times > b.times; });

  fmt::print("accuracy: {:.2f} % ({} of {})\n", results.accuracy_percent(), results.right, results.count);
  if (!confused.empty()) {
    fmt::print("most confused:");
    const std::size_t shown = std::min<std::size_t>(confused.size(), 5);
    for (std::size_t i = 0; i < shown; ++i)
      fmt::print("{} {} read as {} ({}x)", i == 0 ? "" : ",", confused[i].label, confused[i].answer,
                 confused[i].times);
    fmt::print("\n");
  }
  fmt::print("throughput: {:.0f} digits/s\n", results.digits_per_second());
  const std::vector<double>& ms = results.batch_ms;
  fmt::print(
      "latency of a batch of {}, host to host: median {:.3f} ms, p90 {:.3f} ms, p99 {:.3f} ms ({} batches)\n",
      batch, percentile(ms, 50), percentile(ms, 90), percentile(ms, 99), ms.size());
  if (!results.comparison) return;
  const double eager = percentile(results.comparison->eager_ms, 50);
  const double graph = percentile(results.comparison->graph_ms, 50);
  fmt::print("  eager {:.3f} ms, replayed {:.3f} ms: {:.2f} times as fast (medians of {} in turns)\n", eager,
             graph, eager / graph, results.comparison->graph_ms.size());
}

void write_json(const std::string& path, const Results& results, const Options& options,
                Classifier& classifier) {
  nlohmann::ordered_json json = {
      {"device", burin::name(classifier.device())},
      {"device_description", burin::description(classifier.device())},
      {"device_reason", classifier.device_reason()},
      {"precision", name(options.precision)},
      {"batch", options.batch},
      {"count", results.count},
      {"right", results.right},
      {"accuracy_percent", results.accuracy_percent()},
      {"confusion", results.confusion},
      {"digits_per_second", results.digits_per_second()},
      {"batch_latency_ms", latency(results.batch_ms)},
      {"graph", results.comparison.has_value()},  // whether passes were replayed
  };
  if (results.comparison) {
    json["eager_latency_ms"] = latency(results.comparison->eager_ms);
    json["graph_latency_ms"] = latency(results.comparison->graph_ms);
  }
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) throw burin::FileError(path, -1, "", "could not be written");
}

std::string name(Precision precision) {
  switch (precision) {
    case Precision::f32: return "f32";
    case Precision::tf32: return "tf32";
    case Precision::f16: return "f16";
    case Precision::bf16: return "bf16";
  }
  return "?";
}

}  // namespace cnn
