// Reports on memory: what they write is read back, as JSON and as XML, and compared with what went in.

#include <burin/runtime/memory/memory_report.h>
#include <support/xml_reader.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace burin::test {
namespace {

using State = PoolSnapshot::State;
using Kind = PoolEvent::Kind;
using ::testing::HasSubstr;

/// A group of the map that stands for a block.
struct Drawn {
  std::string classes, title;
  int rectangles = 0;
  double width = 0;
};

std::vector<Drawn> blocks_of(const std::vector<Element>& elements) {
  std::map<int, Drawn> groups;
  for (int i = 0; i < static_cast<int>(elements.size()); ++i) {
    const Element& element = elements[i];
    if (element.get("class").starts_with("block ")) groups[i].classes = element.get("class");
    const auto parent = groups.find(element.parent);
    if (parent == groups.end()) continue;
    if (element.name == "title") parent->second.title = element.text;
    if (element.name != "rect") continue;
    ++parent->second.rectangles;
    parent->second.width += element.number("width");
  }
  std::vector<Drawn> drawn;
  for (const auto& [index, group] : groups) drawn.push_back(group);
  return drawn;
}

std::string all_text(const std::vector<Element>& elements) {
  std::string text;
  for (const Element& element : elements) text += element.text + "\n";
  return text;
}

/// Takes its blocks' addresses from where the one before ends.
PoolSnapshot::Segment segment(std::uintptr_t address, std::vector<PoolSnapshot::Block> blocks) {
  PoolSnapshot::Segment result{.address = address, .blocks = std::move(blocks)};
  for (PoolSnapshot::Block& block : result.blocks) {
    block.address = address + result.bytes;
    result.bytes += block.bytes;
  }
  return result;
}

constexpr std::size_t kMiB = 1 << 20;

PoolSnapshot sample() {
  PoolSnapshot snapshot;
  snapshot.device = Device::cuda(1);
  snapshot.segments = {
      segment(0x7f0000000000,
              {{.bytes = 6 * kMiB, .requested_bytes = 6 * kMiB - 5, .stream = 3, .scope = "net.a"},
               {.bytes = 2 * kMiB, .state = State::free, .stream = 3, .scope = "net.b"},
               {.bytes = 4 * kMiB, .state = State::pending, .scope = ""},
               {.bytes = 4 * kMiB, .requested_bytes = 4 * kMiB, .stream = 4, .scope = "net.c"}}),
      segment(0x7f1000000000, {{.bytes = 1 * kMiB, .requested_bytes = 1, .stream = 9, .scope = "net.a"}})};
  for (PoolSnapshot::Segment& segment : snapshot.segments)
    for (PoolSnapshot::Block& block : segment.blocks)
      if (block.requested_bytes != 0) block.state = State::live;
  snapshot.segments[1].graph_pool = 7;
  PoolStats& stats = snapshot.stats;
  stats.allocated_bytes = {11 * kMiB, 12 * kMiB, 13 * kMiB};
  stats.reserved_bytes = {17 * kMiB, 18 * kMiB, 19 * kMiB};
  stats.blocks = {3, 4, 5};
  stats.requested_bytes = 10 * kMiB - 4;
  stats.largest_free_block = kMiB;
  stats.hits = 20;
  stats.splits = 21;
  stats.grows = 22;
  stats.stream_waits = 23;
  stats.trims = 24;
  stats.out_of_memory = 25;
  stats.invalid_frees = 26;
  stats.size_classes = {{1024, 1, 2}, {8 * kMiB, 3, 4}};
  return snapshot;
}

// Quotes, a backslash, markup, control characters; then bytes that are no UTF-8: a lone continuation, an
// overlong slash, a surrogate, one beyond U+10FFFF, a character cut off. Then some that are.
const std::string kHostile =
    std::string("\"\\'</g>&]]>\n\t\x01\x1f\0 ", 17) +
    "\x80 \xC0\xAF \xED\xA0\x80 \xF4\x90\x80\x80 \xE2\x82 \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD
const std::string kHostileTail = kBad + " " + kBad + kBad + " " + kBad + kBad + kBad + " " + kBad + kBad +
                                 kBad + kBad + " " + kBad + kBad + " \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";

void expect_figure(const nlohmann::json& json, const PoolStats::Figure& figure) {
  EXPECT_EQ(json.size(), 3u);
  EXPECT_EQ(json.at("current"), figure.current);
  EXPECT_EQ(json.at("peak"), figure.peak);
  EXPECT_EQ(json.at("total"), figure.total);
}

void expect_stats(const nlohmann::json& json, const PoolStats& stats) {
  EXPECT_EQ(json.size(), 13u);
  expect_figure(json.at("allocated_bytes"), stats.allocated_bytes);
  expect_figure(json.at("reserved_bytes"), stats.reserved_bytes);
  expect_figure(json.at("blocks"), stats.blocks);
  EXPECT_EQ(json.at("requested_bytes"), stats.requested_bytes);
  EXPECT_EQ(json.at("largest_free_block"), stats.largest_free_block);
  EXPECT_EQ(json.at("hits"), stats.hits);
  EXPECT_EQ(json.at("splits"), stats.splits);
  EXPECT_EQ(json.at("grows"), stats.grows);
  EXPECT_EQ(json.at("stream_waits"), stats.stream_waits);
  EXPECT_EQ(json.at("trims"), stats.trims);
  EXPECT_EQ(json.at("out_of_memory"), stats.out_of_memory);
  EXPECT_EQ(json.at("invalid_frees"), stats.invalid_frees);
  ASSERT_EQ(json.at("size_classes").size(), stats.size_classes.size());
  for (std::size_t i = 0; i < stats.size_classes.size(); ++i) {
    EXPECT_EQ(json.at("size_classes")[i].at("largest_bytes"), stats.size_classes[i].largest_bytes);
    EXPECT_EQ(json.at("size_classes")[i].at("live"), stats.size_classes[i].live);
    EXPECT_EQ(json.at("size_classes")[i].at("total"), stats.size_classes[i].total);
  }
}

std::uintptr_t address_of(const nlohmann::json& json) {
  const auto text = json.at("address").get<std::string>();
  EXPECT_TRUE(text.starts_with("0x")) << text;
  return std::strtoull(text.c_str(), nullptr, 16);
}

TEST(MemoryReport, JsonHoldsEveryField) {
  const PoolSnapshot snapshot = sample();
  const nlohmann::json json = nlohmann::json::parse(to_json(snapshot));
  EXPECT_EQ(json.size(), 4u);
  EXPECT_EQ(json.at("device"), "cuda:1");
  EXPECT_EQ(json.at("kind"), "device");
  expect_stats(json.at("stats"), snapshot.stats);
  ASSERT_EQ(json.at("segments").size(), snapshot.segments.size());
  for (std::size_t i = 0; i < snapshot.segments.size(); ++i) {
    const PoolSnapshot::Segment& segment = snapshot.segments[i];
    const nlohmann::json& json_segment = json.at("segments")[i];
    EXPECT_EQ(json_segment.size(), 4u);
    EXPECT_EQ(address_of(json_segment), segment.address);
    EXPECT_EQ(json_segment.at("bytes"), segment.bytes);
    EXPECT_EQ(json_segment.at("graph_pool"), segment.graph_pool);
    ASSERT_EQ(json_segment.at("blocks").size(), segment.blocks.size());
    for (std::size_t b = 0; b < segment.blocks.size(); ++b) {
      const PoolSnapshot::Block& block = segment.blocks[b];
      const nlohmann::json& json_block = json_segment.at("blocks")[b];
      EXPECT_EQ(json_block.size(), 6u);
      EXPECT_EQ(address_of(json_block), block.address);
      EXPECT_EQ(json_block.at("bytes"), block.bytes);
      EXPECT_EQ(json_block.at("requested_bytes"), block.requested_bytes);
      EXPECT_EQ(json_block.at("stream"), block.stream);
      EXPECT_EQ(json_block.at("scope"), block.scope);
    }
  }
  const nlohmann::json& blocks = json.at("segments")[0].at("blocks");
  EXPECT_EQ(blocks[0].at("state"), "live");
  EXPECT_EQ(blocks[1].at("state"), "free");
  EXPECT_EQ(blocks[2].at("state"), "pending");
}

TEST(MemoryReport, JsonOfAnEmptyPool) {
  PoolSnapshot snapshot;
  snapshot.kind = MemoryKind::pinned;
  const nlohmann::json json = nlohmann::json::parse(to_json(snapshot));
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("kind"), "pinned");
  EXPECT_TRUE(json.at("segments").is_array());
  EXPECT_TRUE(json.at("segments").empty());
  expect_stats(json.at("stats"), snapshot.stats);
}

TEST(MemoryReport, JsonOfAHostileScope) {
  PoolSnapshot snapshot = sample();
  snapshot.segments[0].blocks[0].scope = kHostile;
  const nlohmann::json json = nlohmann::json::parse(to_json(snapshot));
  EXPECT_EQ(json.at("segments")[0].at("blocks")[0].at("scope"), kHostile.substr(0, 17) + kHostileTail);
}

TEST(MemoryReport, MapHasAGroupForEachBlock) {
  const PoolSnapshot snapshot = sample();
  const std::vector<Element> elements = XmlReader(to_svg(snapshot)).elements;
  const std::vector<Drawn> drawn = blocks_of(elements);
  ASSERT_EQ(drawn.size(), 5u);
  // Both segments are drawn to one scale, in which 16 MiB fill a row.
  const double mib = drawn[0].width / 6;
  const double widths[] = {6, 2, 4, 4, 1};
  const char* states[] = {"block live", "block free", "block pending", "block live", "block live"};
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i].rectangles, 1) << i;
    EXPECT_NEAR(drawn[i].width, widths[i] * mib, 0.01) << i;
    EXPECT_EQ(drawn[i].classes, states[i]) << i;
  }
  EXPECT_EQ(drawn[0].title,
            "net.a\n6 MiB (6,291,456 bytes), 6,291,451 requested\n0x7f0000000000, live, stream 3");
  EXPECT_EQ(drawn[2].title, "4 MiB (4,194,304 bytes)\n0x7f0000800000, pending, any stream");
  double frames = 0;
  for (const Element& element : elements)
    if (element.get("class") == "edge") frames += element.number("width");
  EXPECT_NEAR(frames, 17 * mib, 0.01);

  const std::string text = all_text(elements);
  for (const char* piece : {"Memory of cuda:1", "2 segments, 3 live blocks", "17 MiB", "11 MiB", "10 MiB",
                            "50.0 %", "graph pool 7", "7 MiB in 2 blocks"})
    EXPECT_THAT(text, HasSubstr(piece));
}

TEST(MemoryReport, AScopeHasOneColour) {
  PoolSnapshot snapshot = sample();
  std::vector<std::string> styles;
  for (const Element& element : XmlReader(to_svg(snapshot)).elements)
    if (element.get("class") == "block live") styles.push_back(element.get("style"));
  ASSERT_EQ(styles.size(), 3u);
  EXPECT_THAT(styles[0], HasSubstr("fill:#"));
  EXPECT_EQ(styles[0], styles[2]);
  EXPECT_NE(styles[0], styles[1]);
}

TEST(MemoryReport, LongSegmentsAreCutIntoRows) {
  PoolSnapshot snapshot;
  std::vector<PoolSnapshot::Block> blocks;
  for (std::size_t i = 0; i < 400; ++i)
    blocks.push_back({.bytes = 256 * (1 + i % 13), .requested_bytes = 1, .state = State::live, .scope = "s"});
  snapshot.segments = {segment(0x1000, blocks)};
  const std::vector<Drawn> drawn = blocks_of(XmlReader(to_svg(snapshot)).elements);
  ASSERT_EQ(drawn.size(), blocks.size());
  const double scale = drawn[0].width / 256;
  int cut = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_NEAR(drawn[i].width, scale * static_cast<double>(blocks[i].bytes), 0.02) << i;
    EXPECT_LE(drawn[i].rectangles, 2) << i;
    cut += drawn[i].rectangles == 2;
  }
  EXPECT_GT(cut, 3);
  EXPECT_LT(cut, 12);
}

TEST(MemoryReport, SmallSegmentsAreVisibleBesideHugeOnes) {
  PoolSnapshot snapshot;
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{100} << 30, std::size_t{40} << 20})
    snapshot.segments.push_back(segment(bytes << 8, {{.bytes = bytes, .state = State::live, .scope = "s"}}));
  const std::vector<Drawn> drawn = blocks_of(XmlReader(to_svg(snapshot)).elements);
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_THAT(drawn[0].title, HasSubstr("100 GiB"));  // largest first
  EXPECT_THAT(drawn[2].title, HasSubstr("1 KiB"));
  for (const Drawn& block : drawn) EXPECT_GT(block.width, 700);
}

TEST(MemoryReport, MapShowsGapsInAddresses) {
  PoolSnapshot snapshot = sample();
  EXPECT_THAT(to_svg(snapshot), ::testing::Not(HasSubstr("without memory")));
  snapshot.segments[0].blocks[3].address += 32 * kMiB;
  EXPECT_THAT(all_text(XmlReader(to_svg(snapshot)).elements),
              HasSubstr("32 MiB of addresses without memory"));
}

TEST(MemoryReport, MapOfAnEmptyPool) {
  const std::vector<Element> elements = XmlReader(to_svg(PoolSnapshot{})).elements;
  EXPECT_TRUE(blocks_of(elements).empty());
  EXPECT_THAT(all_text(elements), HasSubstr("No memory is held."));
  PoolSnapshot unmapped;
  unmapped.segments = {{.address = 0x1000, .blocks = {}}};
  EXPECT_THAT(all_text(XmlReader(to_svg(unmapped)).elements), HasSubstr("0x1000"));
}

TEST(MemoryReport, MapOfAHostileScope) {
  PoolSnapshot snapshot = sample();
  snapshot.segments[0].blocks[0].scope = kHostile;
  snapshot.segments[0].blocks[3].scope = "<script>";  // short enough for a label
  const std::vector<Element> elements = XmlReader(to_svg(snapshot)).elements;
  const std::vector<Drawn> drawn = blocks_of(elements);
  ASSERT_EQ(drawn.size(), 5u);
  const std::string scope = "\"\\'</g>&]]>\n\t" + kBad + kBad + kBad + " " + kHostileTail;
  EXPECT_EQ(drawn[0].title.substr(0, scope.size()), scope);
  EXPECT_EQ(std::count_if(elements.begin(), elements.end(),
                          [](const Element& e) { return e.name == "text" && e.text == "<script>"; }),
            2);  // legend and label
}

PoolEvent event(Kind kind, std::uint64_t time_ns, std::uintptr_t address, std::size_t bytes,
                std::string scope, std::size_t allocated_bytes, std::size_t reserved_bytes) {
  return {kind, time_ns, address, bytes, 5, std::move(scope), allocated_bytes, reserved_bytes};
}

/// Begins with the end of a block that was there before; peaks at the third allocation.
std::vector<PoolEvent> sample_timeline() {
  return {event(Kind::deallocate, 1'000, 0x900, 100, "", 300, 512),
          event(Kind::allocate, 2'500, 0x100, 200, "a", 500, 512),
          event(Kind::grow, 3'000, 0x400, 512, "b", 500, 1024),
          event(Kind::allocate, 3'001, 0x400, 400, "b", 900, 1024),
          event(Kind::deallocate, 4'000, 0x100, 200, "a", 700, 1024),
          event(Kind::allocate, 5'000, 0x100, 250, kHostile, 950, 1024),
          event(Kind::out_of_memory, 6'000, 0, 4096, "c", 950, 1024),
          event(Kind::deallocate, 7'000, 0x400, 400, "b", 550, 1024),
          event(Kind::trim, 9'000, 0x400, 512, "", 550, 512)};
}

TEST(MemoryReport, TraceHoldsSlicesAndCounters) {
  const nlohmann::json json = nlohmann::json::parse(to_chrome_trace(sample_timeline()));
  std::vector<nlohmann::json> begins, ends, marks, counters;
  double last = 0;
  for (const nlohmann::json& entry : json.at("traceEvents")) {
    if (entry.at("ph") == "M") continue;
    EXPECT_GE(entry.at("ts").get<double>(), last);
    last = entry.at("ts");
    if (entry.at("ph") == "b") begins.push_back(entry);
    if (entry.at("ph") == "e") ends.push_back(entry);
    if (entry.at("ph") == "i") marks.push_back(entry);
    if (entry.at("ph") == "C") counters.push_back(entry);
  }
  ASSERT_EQ(begins.size(), 3u);
  EXPECT_EQ(begins[0].at("name"), "a");
  EXPECT_EQ(begins[0].at("ts"), 2.5);
  EXPECT_EQ(begins[1].at("ts"), 3.001);
  EXPECT_EQ(begins[1].at("args").at("bytes"), 400);
  EXPECT_EQ(begins[1].at("args").at("address"), "0x400");
  EXPECT_EQ(begins[1].at("args").at("stream"), 5);
  EXPECT_EQ(begins[2].at("name"), kHostile.substr(0, 17) + kHostileTail);
  ASSERT_EQ(ends.size(), 2u) << "the first block was allocated before the timeline, the last is in use";
  EXPECT_EQ(ends[0].at("id"), begins[0].at("id"));
  EXPECT_EQ(ends[1].at("id"), begins[1].at("id"));
  EXPECT_NE(begins[2].at("id"), begins[0].at("id")) << "another block at the same address";
  ASSERT_EQ(marks.size(), 3u);
  EXPECT_EQ(marks[0].at("name"), "grow");
  EXPECT_EQ(marks[1].at("name"), "out of memory");
  EXPECT_EQ(marks[2].at("name"), "trim");
  ASSERT_EQ(counters.size(), 18u);
  EXPECT_EQ(counters[6].at("name"), "allocated");
  EXPECT_EQ(counters[6].at("args").at("bytes"), 900);
  EXPECT_EQ(counters[7].at("name"), "reserved");
  EXPECT_EQ(counters[7].at("args").at("bytes"), 1024);
}

TEST(MemoryReport, TraceOfNothing) {
  EXPECT_EQ(nlohmann::json::parse(to_chrome_trace({})).at("traceEvents").size(), 1u);  // the process's name
}

TEST(MemoryReport, TimelineNamesThePeak) {
  const std::vector<Element> elements = XmlReader(to_svg(sample_timeline())).elements;
  const std::string text = all_text(elements);
  EXPECT_THAT(text, HasSubstr("peak: 950 B allocated of 1 KiB reserved"));
  EXPECT_THAT(text, HasSubstr("9 events in 8 us"));
  EXPECT_THAT(text, HasSubstr("400 B (42 %)"));
  EXPECT_THAT(text, HasSubstr("250 B (26 %)"));
  EXPECT_THAT(text, HasSubstr("allocated before the timeline begins"));
  EXPECT_THAT(text, HasSubstr("300 B (32 %)"));
  EXPECT_THAT(text, HasSubstr("out of memory: 4 KiB for c"));
  EXPECT_LT(text.find("400 B (42 %)"), text.find("250 B (26 %)"));
  const auto peak = std::find_if(elements.begin(), elements.end(),
                                 [](const Element& element) { return element.name == "circle"; });
  ASSERT_NE(peak, elements.end());
  EXPECT_NEAR(peak->number("cx"), (104 + 1164) / 2.0, 0.1) << "half of the time: 5 of 1 to 9 us";
}

/// The ys of a path's vertical lines.
std::vector<double> ys_of(const std::string& path) {
  std::vector<double> ys;
  for (auto at = path.find('V'); at != std::string::npos; at = path.find('V', at + 1))
    ys.push_back(std::atof(path.c_str() + at + 1));
  return ys;
}

TEST(MemoryReport, LongTimelinesKeepTheirPeakAndStayShort) {
  std::vector<PoolEvent> timeline;
  for (std::uint64_t i = 0; i < 100'000; ++i)
    timeline.push_back(event(Kind::allocate, i, 256 * i, 1, "s", i == 77'777 ? 1024 : i % 2, 1024));
  const std::string svg = to_svg(timeline);
  EXPECT_LT(svg.size(), 200'000u);
  int areas = 0;
  for (const Element& element : XmlReader(svg).elements) {
    if (element.name != "path" || element.get("class") != "allocated") continue;
    ++areas;
    const std::vector<double> ys = ys_of(element.get("d"));
    EXPECT_EQ(*std::min_element(ys.begin(), ys.end()), 128) << "the top of the chart";
  }
  EXPECT_EQ(areas, 1);
}

TEST(MemoryReport, TimelineOfNothing) {
  EXPECT_THAT(all_text(XmlReader(to_svg(std::vector<PoolEvent>{})).elements),
              HasSubstr("No events were kept."));
  const std::vector<PoolEvent> one = {event(Kind::allocate, 7, 0x100, 1, "", 1, 1)};
  EXPECT_THAT(all_text(XmlReader(to_svg(one)).elements), HasSubstr("(no scope)"));
}

TEST(XmlReader, RefusesWhatIsNotWellFormed) {
  for (const char* xml : {"", "<a>", "<a></b>", "<a/><b/>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&no;</a>",
                          "<a>\x01</a>", "<a b=\"<\"/>", "x<a/>", "<a>&amp</a>"})
    EXPECT_THROW(XmlReader{xml}, std::runtime_error) << xml;
  EXPECT_EQ(XmlReader("<a x=\"&lt;\">y<b/></a>").elements[0].attributes.at("x"), "<");
}

}  // namespace
}  // namespace burin::test
