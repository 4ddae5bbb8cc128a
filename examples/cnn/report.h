#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "classifier.h"

namespace cnn {

/// The smallest of these values that `percent` of them do not exceed; 0 if there are none.
double percentile(std::vector<double> values, double percent);

/// Times of a batch, host to host.
struct Comparison {
  std::vector<double> eager_ms;
  std::vector<double> graph_ms;  // as many
};

/// What a run over a labelled set gave.
struct Results {
  std::int64_t count = 0;
  std::int64_t right = 0;
  std::array<std::array<std::int64_t, kClasses>, kClasses> confusion{};  // [label][answer]
  std::vector<double> batch_ms;                                          // host to host, one a batch
  double seconds = 0;                                                    // of all batches
  std::optional<Comparison> comparison;                                  // if graphs were replayed

  double accuracy_percent() const {
    return count == 0 ? 0 : 100.0 * static_cast<double>(right) / static_cast<double>(count);
  }
  double digits_per_second() const { return seconds == 0 ? 0 : static_cast<double>(count) / seconds; }
};

/// A progress bar on stderr; prints nothing where that is no terminal.
class Progress {
 public:
  explicit Progress(std::int64_t total);
  ~Progress();
  void show(std::int64_t done);

 private:
  std::int64_t total_;
  bool visible_;
  int shown_ = -1;
};

/// Digits side by side, each above its three most probable readings and, where known (>= 0), its label.
void draw_digits(const std::vector<std::array<std::uint8_t, kPixels>>& digits,
                 const std::vector<Prediction>& predictions, const std::vector<int>& labels);
void print_results(const Results& results, std::int64_t batch);
void write_json(const std::string& path, const Results& results, const Options& options,
                Classifier& classifier);

std::string name(Precision precision);

}  // namespace cnn
