#pragma once
// Private: the header of a safetensors file, which is JSON.

#include <burin/runtime/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace burin::io::safetensors {

/// The element types of the format, in the order in which the reference implementation sorts them, and what
/// they are here.
struct Type {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};
inline constexpr std::array kTypes = {
    Type{"BOOL", 8, DType::boolean},
    Type{"F4", 4, {}},
    Type{"F6_E2M3", 6, {}},
    Type{"F6_E3M2", 6, {}},
    Type{"U8", 8, DType::u8},
    Type{"I8", 8, DType::i8},
    Type{"F8_E5M2", 8, {}},
    Type{"F8_E4M3", 8, {}},
    Type{"F8_E8M0", 8, {}},
    Type{"I16", 16, {}},
    Type{"U16", 16, {}},
    Type{"F16", 16, DType::f16},
    Type{"BF16", 16, DType::bf16},
    Type{"I32", 32, DType::i32},
    Type{"U32", 32, {}},
    Type{"F32", 32, DType::f32},
    Type{"C64", 64, {}},
    Type{"F64", 64, DType::f64},
    Type{"I64", 64, DType::i64},
    Type{"U64", 64, {}},
};

struct Entry {
  std::string name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
};

struct Header {
  std::size_t data_offset = 0;  // bytes from the start of the file
  std::vector<Entry> entries;   // in the order of their data, which they fill without gap or overlap
  std::map<std::string, std::string> metadata;
};

/// Reads and checks everything but the tensors' values. Throws FileError.
Header parse_header(std::span<const std::byte> file, const std::string& path);

/// The bytes before the data: the length and the JSON text, padded to a multiple of 8. Throws Error.
std::string format_header(const std::vector<Entry>& entries,
                          const std::map<std::string, std::string>& metadata);

}  // namespace burin::io::safetensors
