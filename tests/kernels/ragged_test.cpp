// Elements of variable length: kernels against the host's codec and base/utf8.h.

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/utf8.h"
#include "codec/chain.h"
#include "codec/vlen.h"
#include "headrace/error.h"
#include "kernels/filter_kit.h"

namespace headrace::test {
namespace {

using Texts = std::vector<std::string>;

void append_number(Bytes& bytes, std::size_t number) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(number >> 8 * i));
}

Bytes encode(const Texts& texts) {
  Bytes bytes;
  append_number(bytes, texts.size());
  for (const std::string& text : texts) {
    append_number(bytes, text.size());
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  return bytes;
}

// Characters of all lengths, and with `faults` what is none.
std::string random_text(std::mt19937_64& random, std::size_t characters, bool faults) {
  static const std::vector<std::string> kGood = {"a",
                                                 "~",
                                                 "\x7f",
                                                 std::string(1, '\0'),
                                                 "\xc2\x80",
                                                 "\xdf\xbf",
                                                 "\xe0\xa0\x80",
                                                 "\xed\x9f\xbf",
                                                 "\xee\x80\x80",
                                                 "\xef\xbf\xbf",
                                                 "\xf0\x90\x80\x80",
                                                 "\xf4\x8f\xbf\xbf"};
  static const std::vector<std::string> kBad = {"\x80",
                                                "\xc0\xaf",
                                                "\xc1\xbf",
                                                "\xe0\x9f\xbf",
                                                "\xed\xa0\x80",
                                                "\xf0\x8f\xbf\xbf",
                                                "\xf4\x90\x80\x80",
                                                "\xf5\x80\x80\x80",
                                                "\xff",
                                                "\xc2",
                                                "\xe2\x82",
                                                "\xf0\x9f\x92",
                                                "\xe2\x28\xa1",
                                                "\xc2\x80\x80"};
  std::string text;
  const std::size_t fault = faults ? random() % (characters + 1) : characters + 1;
  for (std::size_t i = 0; i <= characters; ++i) {
    if (i == fault) text += kBad[random() % kBad.size()];
    if (i == characters) break;
    text += random() % 3 == 0 ? kGood[random() % kGood.size()] : kGood[random() % 2];
  }
  return text;
}

struct Parsed {
  std::vector<Texts> texts;  // of chunks without a fault
  std::vector<Fault> faults;
};

Parsed parse(const Place& place,
             const std::vector<Bytes>& encoded,
             const std::vector<std::size_t>& counts,
             const RaggedFormat& format,
             std::uint64_t seed = 1) {
  const auto queue = place.make_queue(seed);
  std::mt19937_64 random(seed);
  Scratch<std::uint32_t> faults(*queue, encoded.size());
  queue->fill(faults.data(), 0, faults.size() * sizeof(std::uint32_t));
  std::vector<const std::uint8_t*> sources;
  // As elements are aligned to their own size, targets are in memory of their own.
  std::vector<Scratch<RaggedElement>> targets;
  std::vector<Scratch<std::uint8_t>> memory;
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const std::size_t n = encoded[i].size(), shift = kSourcePadding + random() % 16;
    Bytes padded = random_bytes(random, shift + n + kSourcePadding);
    if (n > 0) std::memcpy(padded.data() + shift, encoded[i].data(), n);
    memory.push_back(Scratch<std::uint8_t>::of(*queue, padded.data(), padded.size()));
    const std::vector<RaggedElement> nothing(counts[i] + 1, {nullptr, 77});
    targets.push_back(Scratch<RaggedElement>::of(*queue, nothing.data(), nothing.size()));
    sources.push_back(memory.back().data() + shift);
    frames.push_back({sources[i],
                      n,
                      reinterpret_cast<std::uint8_t*>(targets[i].data()),
                      counts[i] * sizeof(RaggedElement),
                      static_cast<std::uint32_t>(i)});
  }
  place.kernels->parse_ragged(*queue, {frames, {}, faults.data()}, format);
  Parsed result;
  result.faults.resize(encoded.size());
  queue->download(result.faults.data(), faults.data(), faults.size() * sizeof(std::uint32_t));
  queue->synchronize();
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    std::vector<RaggedElement> elements(counts[i] + 1);
    queue->download(elements.data(), targets[i].data(), elements.size() * sizeof(RaggedElement));
    queue->synchronize();
    EXPECT_EQ(elements.back().nbytes, 77) << "behind the elements of chunk " << i;
    elements.pop_back();
    Texts& texts = result.texts.emplace_back();
    if (result.faults[i] != Fault::none) continue;
    for (const RaggedElement& element : elements) {
      const auto offset = static_cast<std::size_t>(element.data - sources[i]);
      EXPECT_LE(offset + element.nbytes, encoded[i].size());
      const auto* const text = reinterpret_cast<const char*>(encoded[i].data()) + offset;
      texts.emplace_back(text, element.nbytes);
    }
  }
  return result;
}

class RaggedKernel : public testing::TestWithParam<std::size_t> {
 protected:
  const Place& place() const { return places()[GetParam()]; }
};

INSTANTIATE_TEST_SUITE_P(Places,
                         RaggedKernel,
                         testing::Range<std::size_t>(0, places().size()),
                         [](const auto& test) { return places()[test.param].name; });

// More elements than are found at a time, texts of more than a tile, none at all.
TEST_P(RaggedKernel, FindsEachElement) {
  std::mt19937_64 random(1);
  std::vector<Texts> chunks = {{}, {""}, {"one"}, Texts(3000), Texts(2100, "abc")};
  for (const std::size_t characters : {3, 60, 200, 9000}) {
    Texts& texts = chunks.emplace_back();
    for (int i = 0; i < (characters > 1000 ? 7 : 300); ++i)
      texts.push_back(random_text(random, random() % (characters + 1), false));
  }
  std::vector<Bytes> encoded;
  std::vector<std::size_t> counts;
  for (const Texts& texts : chunks) {
    encoded.push_back(encode(texts));
    counts.push_back(texts.size());
  }
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Parsed parsed = parse(place(), encoded, counts, {1, true}, seed);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(parsed.faults[i], Fault::none) << i;
      EXPECT_TRUE(parsed.texts[i] == chunks[i]) << i;
    }
  }
}

// Chunks of many segments, of every kind that a guess could fall for: sizes and what looks like
// such, elements of zeros, elements that are chunks themselves, elements of several segments.
Bytes random_chunk(std::mt19937_64& random, int kind, std::size_t& count) {
  Texts texts;
  const std::size_t wanted = 17'000 + random() % 60'000;
  for (std::size_t nbytes = 0; nbytes < wanted;) {
    std::string text;
    const std::size_t n = random() % 40;
    switch (kind) {
      case 0:
        text = random_text(random, n, false);
        break;
      case 1:
        text = random() % 50 == 0 ? "x" : "";
        break;
      case 2:
        text = std::string(random() % 20 == 0 ? random() % 20'000 : n, 'a');
        break;
      case 3:
        for (std::size_t i = 0; i < n; ++i) text += {static_cast<char>(random() % 3), 0, 0, 0};
        break;
      case 4:
        for (std::size_t i = 0; i < n; ++i) text += static_cast<char>(random());
        break;
      case 5:
        text = std::string(random() % 3000, '\0');
        break;
      default: {
        const Bytes inner = encode(Texts(random() % 2000, std::string(random() % 3, 'b')));
        text.assign(inner.begin() + random() % 4, inner.end());
      }
    }
    nbytes += 4 + text.size();
    texts.push_back(std::move(text));
  }
  count = texts.size();
  return encode(texts);
}

// Whether the bytes are a chunk of so many elements, which are added.
bool parse_on_host(const Bytes& bytes, std::size_t count, bool utf8, Texts& texts) {
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, &bytes[at], sizeof value);
    return std::size_t{value};
  };
  if (bytes.size() < 4 || number(0) != count) return false;
  std::size_t at = 4;
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes.size() - at < 4 || bytes.size() - at - 4 < number(at)) return false;
    const auto* const begin = reinterpret_cast<const char*>(bytes.data()) + at + 4;
    at += 4 + number(at);
    texts.emplace_back(begin, reinterpret_cast<const char*>(bytes.data()) + at);
    if (utf8 && !is_utf8(texts.back())) return false;
  }
  return at == bytes.size();
}

TEST_P(RaggedKernel, FindsElementsInManySegments) {
  for (const bool utf8 : {false, true}) {
    std::mt19937_64 random(4);
    std::vector<Bytes> encoded;
    std::vector<std::size_t> counts;
    for (int i = 0; i < 84; ++i) {
      Bytes& bytes = encoded.emplace_back(random_chunk(random, i % 7, counts.emplace_back()));
      const int fault = i / 7 % 4;
      if (fault == 1)
        for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = random() % 4;
      if (fault == 2) bytes.resize(bytes.size() - random() % 200);
      if (fault == 3) {
        counts.back() += random() % 3 - 1;
        std::memcpy(bytes.data(), &counts.back(), 4);
      }
    }
    const Parsed parsed = parse(place(), encoded, counts, {1, utf8}, utf8);
    int good = 0;
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      Texts texts;
      const bool is_good = parse_on_host(encoded[i], counts[i], utf8, texts);
      good += is_good;
      EXPECT_EQ(parsed.faults[i] == Fault::none, is_good) << i;
      EXPECT_TRUE(!is_good || parsed.texts[i] == texts) << i;
    }
    EXPECT_GE(good, utf8 ? 20 : 25);
    EXPECT_LE(good, 60);
  }
}

TEST_P(RaggedKernel, RefusesWhatIsCutOrHasMore) {
  const Bytes whole = encode({"ab", "", "xyz"});
  std::vector<Bytes> encoded;
  std::vector<std::size_t> counts;
  std::vector<Fault> expected;
  const auto add = [&](Bytes bytes, std::size_t count, Fault fault) {
    encoded.push_back(std::move(bytes));
    counts.push_back(count);
    expected.push_back(fault);
  };
  for (std::size_t n = 0; n < whole.size(); ++n)
    add(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)), 3, Fault::truncated);
  Bytes more = whole;
  more.push_back(0);
  add(more, 3, Fault::malformed);
  add(whole, 2, Fault::wrong_size);
  add(whole, 4, Fault::wrong_size);
  Bytes none;
  append_number(none, 0);
  add(none, 0, Fault::none);
  none.push_back(0);
  add(none, 0, Fault::malformed);
  Bytes huge;
  append_number(huge, 2);
  append_number(huge, 0xffffffff);
  huge.resize(huge.size() + 20000);
  add(huge, 2, Fault::truncated);
  const Parsed parsed = parse(place(), encoded, counts, {});
  for (std::size_t i = 0; i < encoded.size(); ++i) EXPECT_EQ(parsed.faults[i], expected[i]) << i;
}

TEST_P(RaggedKernel, ElementsAreWholeUnits) {
  const Bytes encoded = encode({std::string(8, 'a'), std::string(6, 'b'), std::string(4, 'c')});
  EXPECT_EQ(parse(place(), {encoded}, {3}, {2, false}).faults[0], Fault::none);
  EXPECT_EQ(parse(place(), {encoded}, {3}, {4, false}).faults[0], Fault::malformed);
}

// Faults lie anywhere, at borders of slices too.
TEST_P(RaggedKernel, TellsUtf8AsTheHostDoes) {
  std::mt19937_64 random(2);
  std::vector<Bytes> encoded;
  std::vector<Texts> chunks;
  for (int i = 0; i < 600; ++i) {
    Texts texts = {"before", random_text(random, random() % 200, i % 4 != 0), "behind"};
    encoded.push_back(encode(texts));
    chunks.push_back(std::move(texts));
  }
  const std::vector<std::size_t> counts(encoded.size(), 3);
  const Parsed text = parse(place(), encoded, counts, {1, true});
  const Parsed bytes = parse(place(), encoded, counts, {1, false});
  int good = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const bool is_good = is_utf8(chunks[i][1]);
    good += is_good;
    EXPECT_EQ(text.faults[i], is_good ? Fault::none : Fault::malformed) << i;
    EXPECT_EQ(bytes.faults[i], Fault::none);
    EXPECT_TRUE(bytes.texts[i] == chunks[i]);
  }
  EXPECT_GE(good, 150);
  EXPECT_LE(good, 200);
}

// Offsets and values of elements that lie anywhere, in any order.
TEST_P(RaggedKernel, PacksElements) {
  std::mt19937_64 random(3);
  for (const std::uint32_t unit : {1u, 4u, 7u}) {
    for (const std::size_t count : {0u, 1u, 255u, 5000u}) {
      const Bytes pool = random_bytes(random, 100'000);
      const auto queue = places()[GetParam()].make_queue(count);
      const auto there = Scratch<std::uint8_t>::of(*queue, pool.data(), pool.size());
      std::vector<RaggedElement> elements;
      Bytes expected;
      std::vector<std::int64_t> ends{0};
      for (std::size_t i = 0; i < count; ++i) {
        const bool is_long = random() % 500 == 0;
        const std::size_t n = random() % 3 == 0 ? 0 : random() % (is_long ? 9000 : 9) * unit;
        const std::size_t at = random() % (pool.size() - n);
        elements.push_back({n == 0 ? nullptr : there.data() + at, n});
        expected.insert(expected.end(), &pool[at], &pool[at] + n);
        ends.push_back(static_cast<std::int64_t>(expected.size() / unit));
      }
      const auto list = Scratch<RaggedElement>::of(*queue, elements.data(), elements.size());
      const Scratch<std::int64_t> offsets(*queue, count + 1);
      const RaggedBatch batch{list.data(), count, unit, offsets.data()};
      place().kernels->ragged_offsets(*queue, batch);
      std::vector<std::int64_t> found(count + 1);
      queue->download(found.data(), offsets.data(), found.size() * sizeof(std::int64_t));
      queue->synchronize();
      ASSERT_EQ(found, ends) << unit << ' ' << count;
      Bytes values(expected.size() + 16, 0xee);
      const auto packed = Scratch<std::uint8_t>::of(*queue, values.data(), values.size());
      place().kernels->ragged_values(*queue, batch, packed.data(), expected.size());
      queue->download(values.data(), packed.data(), values.size());
      queue->synchronize();
      expected.resize(expected.size() + 16, 0xee);
      EXPECT_TRUE(values == expected) << unit << ' ' << count;
    }
  }
}

// Runs of empty elements of any length, at the borders of what threads and blocks copy too.
TEST_P(RaggedKernel, PacksBetweenEmptyElements) {
  std::mt19937_64 random(6);
  const Bytes pool = random_bytes(random, 100'000);
  const auto queue = place().make_queue(6);
  const auto there = Scratch<std::uint8_t>::of(*queue, pool.data(), pool.size());
  std::vector<RaggedElement> elements;
  Bytes expected;
  for (int i = 0; i < 1500; ++i) {
    elements.insert(elements.end(), random() % (i % 50 == 0 ? 20'000 : 12), {nullptr, 0});
    const std::size_t n = 1 + random() % (i % 3 == 0 ? 150 : 3), at = random() % (pool.size() - n);
    elements.push_back({there.data() + at, n});
    expected.insert(expected.end(), &pool[at], &pool[at] + n);
  }
  elements.insert(elements.end(), 10'000, {nullptr, 0});
  const auto list = Scratch<RaggedElement>::of(*queue, elements.data(), elements.size());
  const Scratch<std::int64_t> offsets(*queue, elements.size() + 1);
  const RaggedBatch batch{list.data(), elements.size(), 1, offsets.data()};
  place().kernels->ragged_offsets(*queue, batch);
  Bytes values(expected.size());
  const Scratch<std::uint8_t> packed(*queue, values.size());
  place().kernels->ragged_values(*queue, batch, packed.data(), values.size());
  queue->download(values.data(), packed.data(), values.size());
  queue->synchronize();
  EXPECT_TRUE(values == expected);
}

}  // namespace
}  // namespace headrace::test
