#pragma once
// Reads well-formed XML, to check what the library writes.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace burin::test {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own, without its children's
  int parent = -1;
  double number(const std::string& attribute) const { return std::atof(attributes.at(attribute).c_str()); }
  std::string get(const std::string& attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? "" : found->second;
  }
};

/// Reads well-formed XML without declarations, comments and the like; throws for anything else.
class XmlReader {
 public:
  explicit XmlReader(std::string_view xml) : left_(xml) {
    while (!left_.empty()) {
      if (left_[0] == '<') {
        tag();
      } else {
        const std::string words = decoded(take(left_.find('<')));
        if (open_ >= 0) elements[open_].text += words;
        if (open_ < 0 && words.find_first_not_of(" \n") != std::string::npos) fail("text outside the root");
      }
    }
    if (open_ >= 0) fail("an element is left open: " + elements[open_].name);
    if (elements.empty()) fail("no root");
  }

  std::vector<Element> elements;

 private:
  [[noreturn]] static void fail(const std::string& what) { throw std::runtime_error("not XML: " + what); }
  std::string_view take(std::size_t count) {
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }
  void expect(std::string_view piece) {
    if (take(piece.size()) != piece) fail("expected " + std::string(piece));
  }
  void skip_space() { take(std::min(left_.find_first_not_of(" \n"), left_.size())); }
  std::string name() {
    const std::string_view taken = take(left_.find_first_of(" \n=/>"));
    if (taken.empty() || !std::isalpha(static_cast<unsigned char>(taken[0]))) fail("a name is missing");
    return std::string(taken);
  }

  static std::string decoded(std::string_view raw) {
    static const std::map<std::string_view, char> kEntities = {{"amp", '&'},  {"lt", '<'},    {"gt", '>'},
                                                               {"quot", '"'}, {"apos", '\''}, {"#9", '\t'},
                                                               {"#10", '\n'}, {"#13", '\r'}};
    std::string out;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const char c = raw[i];
      if (c == '<') fail("< in text");
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n') fail("a control character");
      if (c != '&') {
        out += c;
        continue;
      }
      const auto end = raw.find(';', i);
      const auto entity = kEntities.find(raw.substr(i + 1, end - i - 1));
      if (end == std::string_view::npos || entity == kEntities.end()) fail("an unknown entity");
      out += entity->second;
      i = end;
    }
    return out;
  }

  void tag() {
    expect("<");
    if (left_.starts_with("/")) {
      expect("/");
      if (open_ < 0 || name() != elements[open_].name) fail("elements do not nest");
      expect(">");
      open_ = elements[open_].parent;
      return;
    }
    if (open_ < 0 && !elements.empty()) fail("two roots");
    Element element;
    element.name = name();
    element.parent = open_;
    for (skip_space(); !left_.starts_with(">") && !left_.starts_with("/>"); skip_space()) {
      const std::string key = name();
      expect("=\"");
      const std::string value = decoded(take(left_.find('"')));
      expect("\"");
      if (!element.attributes.emplace(key, value).second) fail("an attribute twice: " + key);
    }
    const bool is_empty = left_[0] == '/';
    expect(is_empty ? "/>" : ">");
    elements.push_back(element);
    if (!is_empty) open_ = static_cast<int>(elements.size()) - 1;
  }

  std::string_view left_;
  int open_ = -1;
};

}  // namespace burin::test
