#pragma once

#include <burin/io/image.h>

#include <array>
#include <cstdint>

#include "classifier.h"

namespace cnn {

/// A person's picture of one digit as the network expects it, by MNIST's recipe (LeCun et al.): ink light on
/// dark, cropped, fitted into 20 x 20 with its proportions kept, and placed so that its centre of mass is the
/// centre of 28 x 28. Which of dark and light is ink follows from the picture's border. Throws FileError
/// (named `path`) if there is no ink.
std::array<std::uint8_t, kPixels> digit_of(const burin::io::Image& image, const std::string& path);

}  // namespace cnn
