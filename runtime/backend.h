#pragma once

#include <cstdint>
#include <string_view>

namespace burin {

/// Who computes an operator. `cpu` and `cuda` are hand-written and exist for every operator; the others are
/// libraries.
enum class Backend : std::uint8_t { automatic, cpu, cuda, cudnn, cublaslt };

constexpr std::string_view name(Backend backend) {
  switch (backend) {
    case Backend::automatic: return "automatic";
    case Backend::cpu: return "cpu";
    case Backend::cuda: return "cuda";
    case Backend::cudnn: return "cudnn";
    case Backend::cublaslt: return "cublaslt";
  }
  return "?";
}

}  // namespace burin
