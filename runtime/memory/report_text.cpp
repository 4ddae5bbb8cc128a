#include <burin/runtime/memory/report_text.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace burin::detail {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes of the well-formed UTF-8 character that `text` begins with; 0 if it begins with none (table 3-7 of
/// the Unicode Standard).
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < count) return 0;
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < count; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return count;
}

/// Calls append(character) for each character, with the replacement for what is none.
template <class Append>
void for_each_character(std::string_view text, Append&& append) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    append(bytes == 0 ? kReplacement : text.substr(0, bytes));
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
}

bool is_control(std::string_view character) {
  return character.size() == 1 && static_cast<unsigned char>(character[0]) < 0x20;
}

std::string_view xml_character(std::string_view character) {
  if (character == "&") return "&amp;";
  if (character == "<") return "&lt;";
  if (character == ">") return "&gt;";
  if (character == "\"") return "&quot;";
  if (character == "'") return "&apos;";
  if (character == "\t") return "&#9;";
  if (character == "\n") return "&#10;";
  if (character == "\r") return "&#13;";
  const bool is_noncharacter = character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF";  // U+FFFE, U+FFFF
  return is_control(character) || is_noncharacter ? kReplacement : character;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view character) { out += xml_character(character); });
  return out;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for_each_character(text, [&](std::string_view character) {
    if (character == "\"" || character == "\\") {
      out += '\\';
      out += character;
    } else if (is_control(character)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", character[0]);
    } else {
      out += character;
    }
  });
  return out + '"';
}

std::string scope_text(std::string_view scope, std::size_t characters) {
  if (scope.empty()) return "(no scope)";
  std::vector<std::string_view> parts;
  for_each_character(scope, [&](std::string_view character) { parts.push_back(xml_character(character)); });
  std::string out;
  if (parts.size() > characters) {
    parts.erase(parts.begin(), parts.end() - static_cast<std::ptrdiff_t>(characters - 1));
    out = "\xE2\x80\xA6";  // an ellipsis
  }
  for (const std::string_view part : parts) out += part;
  return out;
}

std::string bytes_text(std::size_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::string number = fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return fmt::format("{} {}", number, kUnits[unit]);
}

std::string grouped_text(std::size_t number) {
  std::string out = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(out.size()) - 3; at > 0; at -= 3)
    out.insert(static_cast<std::size_t>(at), 1, ',');
  return out;
}

std::string_view state_text(PoolSnapshot::State state) {
  switch (state) {
    case PoolSnapshot::State::live: return "live";
    case PoolSnapshot::State::free: return "free";
    case PoolSnapshot::State::pending: return "pending";
  }
  return "";
}

std::string_view scope_colour(std::string_view scope) {
  constexpr std::array<std::string_view, 16> kPalette = {
      "#7fb2e5", "#f5b06e", "#8fcf8d", "#ea9393", "#b9a0e2", "#cba987", "#f2a9cf", "#79cdc8",
      "#dbd06a", "#9dabf0", "#f39d7d", "#aad76a", "#d99bd7", "#69c3df", "#e8c05f", "#9cc4ad"};
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : scope) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;  // so that names that differ in their end do too
  return kPalette[(hash >> 32) % kPalette.size()];
}

std::vector<ScopeTotal> ScopeTotals::largest_first() const {
  std::vector<ScopeTotal> totals;
  for (const auto& [scope, total] : totals_) totals.push_back({scope, total.bytes, total.blocks});
  std::stable_sort(totals.begin(), totals.end(),
                   [](const ScopeTotal& a, const ScopeTotal& b) { return a.bytes > b.bytes; });
  return totals;
}

std::size_t axis_step(std::size_t bytes) {
  std::size_t step = 1;
  while (bytes / step > 8 || (bytes / step == 8 && bytes % step != 0)) step *= 2;
  return step;
}

}  // namespace burin::detail
