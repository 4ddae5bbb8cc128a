#include "preprocess.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace cnn {
namespace {

struct Gray {
  int width = 0;
  int height = 0;
  std::vector<float> pixels;  // 0..255
  float at(int x, int y) const {
    return pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                  static_cast<std::size_t>(x)];
  }
};

/// Light values over a background of the given brightness where the picture is transparent.
Gray gray_over(const burin::io::Image& image, std::uint8_t background) {
  const burin::io::Image flat = burin::io::to_gray(image, background);
  return {flat.width, flat.height, std::vector<float>(flat.pixels.begin(), flat.pixels.end())};
}

double variance(const Gray& gray) {
  const auto count = static_cast<double>(gray.pixels.size());
  const double mean = std::accumulate(gray.pixels.begin(), gray.pixels.end(), 0.0) / count;
  return std::accumulate(gray.pixels.begin(), gray.pixels.end(), 0.0,
                         [mean](double sum, double v) { return sum + (v - mean) * (v - mean); }) /
         count;
}

float border_median(const Gray& gray) {
  std::vector<float> border;
  for (int x = 0; x < gray.width; ++x)
    border.insert(border.end(), {gray.at(x, 0), gray.at(x, gray.height - 1)});
  for (int y = 0; y < gray.height; ++y)
    border.insert(border.end(), {gray.at(0, y), gray.at(gray.width - 1, y)});
  const auto middle = border.begin() + static_cast<std::ptrdiff_t>(border.size() / 2);
  std::nth_element(border.begin(), middle, border.end());
  return *middle;
}

/// Stretches contrast so that paper is 0 and ink 255, by Otsu's threshold (1979) and the means of its two
/// classes.
bool separate_ink(Gray& gray) {
  std::array<double, 256> histogram{};
  for (const float v : gray.pixels) histogram[static_cast<std::size_t>(std::clamp(v, 0.0f, 255.0f))] += 1;
  const auto total = static_cast<double>(gray.pixels.size());
  double sum = 0;
  for (std::size_t level = 0; level < 256; ++level) sum += static_cast<double>(level) * histogram[level];
  double best = 0, paper = 0, ink = 0, below = 0, below_sum = 0;
  for (std::size_t level = 0; level < 255; ++level) {
    below += histogram[level];
    below_sum += static_cast<double>(level) * histogram[level];
    if (below == 0 || below == total) continue;
    const double low = below_sum / below;
    const double high = (sum - below_sum) / (total - below);
    const double between = below * (total - below) * (high - low) * (high - low);
    if (between > best) {
      best = between;
      paper = low;
      ink = high;
    }
  }
  if (ink - paper < 16) return false;  // one even tone
  const double zero = paper + 0.25 * (ink - paper);
  for (float& v : gray.pixels) v = static_cast<float>(std::clamp((v - zero) / (ink - zero), 0.0, 1.0) * 255);
  return true;
}

/// Mean of the source over the square [x, x + step) x [y, y + step), in source pixels; 0 outside.
float area_mean(const Gray& gray, double x, double y, double step) {
  double sum = 0;
  const double bottom = std::min<double>(y + step, gray.height);
  const double right = std::min<double>(x + step, gray.width);
  for (int row = std::max(static_cast<int>(std::floor(y)), 0); row < bottom; ++row) {
    const double height = std::min(row + 1.0, bottom) - std::max<double>(row, y);
    for (int column = std::max(static_cast<int>(std::floor(x)), 0); column < right; ++column) {
      const double width = std::min(column + 1.0, right) - std::max<double>(column, x);
      sum += width * height * gray.at(column, row);
    }
  }
  return static_cast<float>(sum / (step * step));
}

}  // namespace

std::array<std::uint8_t, kPixels> digit_of(const burin::io::Image& image, const std::string& path) {
  const Gray on_white = gray_over(image, 255);
  const Gray on_black = gray_over(image, 0);
  Gray gray = variance(on_black) > variance(on_white) ? on_black : on_white;
  if (border_median(gray) > 127)
    for (float& v : gray.pixels) v = 255 - v;
  if (!separate_ink(gray))
    throw burin::FileError(path, -1, "", "the picture is one even tone: there is no digit to see");

  // The ink's box and centre of mass.
  int left = gray.width, right = -1, top = gray.height, bottom = -1;
  double mass = 0, mass_x = 0, mass_y = 0;
  for (int y = 0; y < gray.height; ++y) {
    for (int x = 0; x < gray.width; ++x) {
      const double v = gray.at(x, y);
      mass += v;
      mass_x += v * (x + 0.5);
      mass_y += v * (y + 0.5);
      if (v < 128) continue;
      left = std::min(left, x);
      right = std::max(right, x);
      top = std::min(top, y);
      bottom = std::max(bottom, y);
    }
  }
  const double step = std::max(right - left + 1, bottom - top + 1) / 20.0;  // source pixels to one of ours
  const double origin_x = mass_x / mass - step * kSide / 2;
  const double origin_y = mass_y / mass - step * kSide / 2;

  std::array<std::uint8_t, kPixels> digit;
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x)
      digit[static_cast<std::size_t>(y * kSide + x)] = static_cast<std::uint8_t>(
          std::lround(area_mean(gray, origin_x + x * step, origin_y + y * step, step)));
  return digit;
}

}  // namespace cnn
