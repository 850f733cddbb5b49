// Elements of variable length: bytes as numcodecs lays them out, and bytes that are none.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "codec/chain.h"
#include "codec/vlen.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using Texts = std::vector<std::string>;

std::vector<VlenElement> elements_of(const Texts& texts) {
  std::vector<VlenElement> elements;
  for (const std::string& text : texts) elements.push_back(vlen_element(text));
  return elements;
}

class VlenChain {
 public:
  VlenChain(const DType& dtype, const Shape& shape, const std::vector<CodecSpec>& codecs)
      : chain_(codecs, {dtype, shape, nullptr}, {}) {}

  std::string encode(const Texts& texts) const {
    const std::vector<VlenElement> elements = elements_of(texts);
    Buffer encoded;
    chain_.encode(std::as_bytes(std::span(elements)), encoded);
    return std::string(text_of(encoded));
  }

  Texts decode(std::string_view encoded) const {
    VlenArena arena;
    std::vector<VlenElement> elements(chain_.decoded_nbytes() / sizeof(VlenElement));
    chain_.decode(bytes_of(encoded), std::as_writable_bytes(std::span(elements)), {1, &arena});
    Texts texts;
    for (const VlenElement& element : elements) texts.emplace_back(element.text());
    return texts;
  }

  // "" when it decodes.
  std::string problem(std::string_view encoded) const {
    try {
      decode(encoded);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      return error.what();
    }
    return "";
  }

 private:
  CodecChain chain_;
};

std::string literal(const char* data, std::size_t size) { return {data, size}; }

const std::vector<CodecSpec> kUtf8 = {{"vlen-utf8", ""}};
// What numcodecs makes of ["a", "", "\u00fc"].
const std::string kThree = literal("\3\0\0\0\1\0\0\0a\0\0\0\0\2\0\0\0\xc3\xbc", 19);

TEST(Utf8, KnowsWellFormedText) {
  for (const char* good : {"",
                           "plain text",
                           "\xc3\xbc",
                           "\xe4\xb8\xad",
                           "\xf0\x9f\x98\x80",
                           "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf",
                           "12345678\xc3\xbc"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80",
                          "\xc3",
                          "\xc0\x80",
                          "\xc1\xbf",
                          "\xe0\x80\x80",
                          "\xed\xa0\x80",
                          "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80",
                          "\xff",
                          "12345678\x80",
                          "\xe4\xb8",
                          "\xc3\x28"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(Vlen, BytesAreThoseOfNumcodecs) {
  const VlenChain chain(DType::string(), {3}, kUtf8);
  EXPECT_EQ(chain.encode({"a", "", "\xc3\xbc"}), kThree);
  EXPECT_EQ(chain.decode(kThree), (Texts{"a", "", "\xc3\xbc"}));
}

TEST(Vlen, EveryCutIsCorrupt) {
  const VlenChain chain(DType::string(), {3}, kUtf8);
  for (std::size_t n = 0; n < kThree.size(); ++n) {
    EXPECT_NE(chain.problem(kThree.substr(0, n)), "") << n;
  }
  EXPECT_NE(chain.problem(kThree + "x"), "");
}

TEST(Vlen, RejectsOtherCountsAndLies) {
  const VlenChain chain(DType::string(), {3}, kUtf8);
  EXPECT_NE(
      chain.problem(literal("\2\0\0\0\0\0\0\0\0\0\0\0", 12)).find("expected 3 elements, got 2"),
      std::string::npos);
  EXPECT_NE(chain.problem(literal("\xff\xff\xff\xff", 4)), "");
  EXPECT_NE(chain.problem(literal("\3\0\0\0\xff\xff\xff\xff", 8) + std::string(100, 'x')), "");
}

TEST(Vlen, RejectsWhatIsNoUtf8) {
  const std::string bad = literal("\1\0\0\0\2\0\0\0\xc3\x28", 10);
  EXPECT_NE(VlenChain(DType::string(), {1}, kUtf8).problem(bad).find("not UTF-8"),
            std::string::npos);
  EXPECT_EQ(VlenChain(DType::bytes(), {1}, {{"vlen-bytes", ""}}).decode(bad), (Texts{"\xc3\x28"}));
  const VlenChain chain(DType::string(), {1}, kUtf8);
  EXPECT_THROW(chain.encode({"\xc3\x28"}), Error);
}

TEST(Vlen, CompressorsShardsAndTransposesStandAroundIt) {
  const CodecSpec transpose = codec::transpose({1, 0});
  const Texts texts = {"a", "bb", "ccc", "", "eeeee", std::string(100000, 'f')};
  for (const std::vector<CodecSpec>& codecs :
       {std::vector<CodecSpec>{{"vlen-utf8", ""}, codec::zstd(3)},
        {{"vlen-utf8", ""}, codec::gzip(5), codec::crc32c()},
        {{"vlen-utf8", ""}, codec::blosc()},
        {{"vlen-utf8", ""}, codec::lz4()},
        {transpose, {"vlen-utf8", ""}, codec::zlib()},
        {transpose, codec::sharding({1, 2}, {{"vlen-utf8", ""}, codec::zstd(1)})},
        {codec::sharding({2, 3}, {codec::sharding({1, 3}, kUtf8)}), codec::zstd(1)}}) {
    const VlenChain chain(DType::string(), {2, 3}, codecs);
    EXPECT_EQ(chain.decode(chain.encode(texts)), texts) << codecs.back().name;
  }
}

// 64 MiB of one letter make a few KiB: far more than the usual size that is tried first.
TEST(Vlen, ExpandsAsFarAsTheBytesSay) {
  const Texts texts = {std::string(64 << 20, 'x')};
  for (const CodecSpec& compressor :
       {codec::zstd(1), codec::gzip(1), codec::blosc(), codec::lz4()}) {
    const VlenChain chain(DType::string(), {1}, {{"vlen-utf8", ""}, compressor});
    EXPECT_EQ(chain.decode(chain.encode(texts)), texts) << compressor.name;
  }
}

TEST(Vlen, ArraysAreWholeItems) {
  const std::vector<CodecSpec> codecs = {{"numcodecs.vlen-array", R"({"dtype":">i2"})"}};
  const VlenChain chain(DType::array(DType::int16), {2}, codecs);
  const std::string stored = literal("\2\0\0\0\4\0\0\0\1\2\3\4\0\0\0\0", 16);
  EXPECT_EQ(chain.decode(stored), (Texts{"\2\1\4\3", ""}));
  EXPECT_EQ(chain.encode({"\2\1\4\3", ""}), stored);
  EXPECT_NE(chain.problem(literal("\2\0\0\0\3\0\0\0\1\2\3\0\0\0\0", 15)), "");
  EXPECT_THROW(VlenChain(DType::array(DType::int32), {2}, codecs), Error);
}

TEST(Vlen, TakesItsOwnTypeOnly) {
  EXPECT_THROW(VlenChain(DType::bytes(), {1}, kUtf8), Error);
  EXPECT_THROW(VlenChain(DType::uint8, {1}, kUtf8), Error);
  EXPECT_THROW(VlenChain(DType::string(), {1}, {codec::bytes(), {"vlen-utf8", ""}}), Error);
  EXPECT_THROW(VlenChain(DType::string(), {1}, {codec::bytes()}), Error);
}

const std::vector<CodecSpec> kJson = {{"numcodecs.json2", R"({"encoding":"utf-8"})"}};
const std::vector<CodecSpec> kMsgpack = {{"numcodecs.msgpack2", R"({"raw":false})"}};

TEST(Objects, JsonIsAListThatIsNestedAsTheShape) {
  const VlenChain chain(DType::object(), {2, 2}, kJson);
  EXPECT_EQ(chain.decode(R"([["a",1],[null,{"k":[2]}],"|O",[2,2]])"),
            (Texts{"\"a\"", "1", "null", "{\"k\":[2]}"}));
  EXPECT_EQ(chain.decode(R"([1,2,3,NaN,"|O",[4]])"), (Texts{"1", "2", "3", "NaN"}));
  EXPECT_EQ(chain.encode({"\"a\"", "1", "null", "[2, 3]"}), R"(["a",1,null,[2,3],"|O",[4]])");
  EXPECT_EQ(VlenChain(DType::object(), {}, kJson).decode(R"(["x","|O",[]])"), (Texts{"\"x\""}));
}

TEST(Objects, RejectsOtherLists) {
  const VlenChain chain(DType::object(), {2}, kJson);
  for (const char* bad : {"",
                          "{}",
                          "[]",
                          "[1,2]",
                          R"([1,2,"|O",[3]])",
                          R"([1,"|O",[2]])",
                          R"([1,2,"|O",[-2]])",
                          R"([1,2,"|O",[1,2]])",
                          R"([1,2,"|O",[4294967296,4294967296]])",
                          R"([1,2,"|O",[2]]x)"}) {
    EXPECT_NE(chain.problem(bad), "") << bad;
  }
  EXPECT_NE(chain.problem(std::string(100000, '[')), "");
  EXPECT_THROW(chain.encode({"{", "1"}), Error);
}

TEST(Objects, MsgpackIsThatOfNumcodecs) {
  const VlenChain chain(DType::object(), {3}, kMsgpack);
  // msgpack.packb(["a", -1, None, "|O", [3]])
  const std::string packed = literal(
      "\x95\xa1"
      "a\xff\xc0\xa2|O\x91\x03",
      10);
  EXPECT_EQ(chain.decode(packed), (Texts{"\"a\"", "-1", "null"}));
  EXPECT_EQ(chain.encode({"\"a\"", "-1", "null"}), packed);
  const Texts values = {R"({"k":[1.5,true,{"n":18446744073709551615}]})", "NaN", "-Infinity"};
  EXPECT_EQ(chain.decode(chain.encode(values)), values);
}

TEST(Objects, MsgpackKeepsValuesOrRefuses) {
  const VlenChain chain(DType::object(), {3}, kMsgpack);
  // msgpack.packb([{"b": 1, "a": 2}, -(2**63), "\U0001f600", "|O", [3]])
  const std::string packed = literal(
      "\x95\x82\xa1"
      "b\1\xa1"
      "a\2\xd3\x80\0\0\0\0\0\0\0\xa4\xf0\x9f\x98\x80\xa2|O\x91\3",
      27);
  EXPECT_EQ(chain.encode({R"({"b":1,"a":2})", "-9223372036854775808", R"("\ud83d\ude00")"}),
            packed);
  EXPECT_NO_THROW(chain.encode({R"("\\ud800")", "1e300", "-0"}));
  for (const char* bad : {"18446744073709551616",
                          "-9223372036854775809",
                          R"([{"k":1000000000000000000000000000000}])",
                          R"("\ud800")",
                          R"("\udc00\ud800")",
                          R"(["\ud83d","\ude00"])",
                          R"({"\uDFFF":1})"}) {
    try {
      chain.encode({"1", "2", bad});
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << bad;
    }
  }
}

TEST(Objects, MsgpackThatIsNone) {
  const VlenChain chain(DType::object(), {3}, kMsgpack);
  const std::string packed = chain.encode({"\"abc\"", "[1,2]", "{\"k\":1}"});
  for (std::size_t n = 0; n < packed.size(); ++n) {
    EXPECT_NE(chain.problem(packed.substr(0, n)), "") << n;
  }
  EXPECT_NE(chain.problem(std::string(1000000, '\x91')), "");  // a list in a list in a list
  EXPECT_NE(chain.problem(literal("\xdd\xff\xff\xff\xff\1", 6)), "");
  EXPECT_NE(chain.problem(literal("\x95\xa1\xff\1\2\xa2|O\x91\3", 10)), "");  // no UTF-8
  const std::string binary = literal("\x95\xc4\1x\1\2\xa2|O\x91\3", 11);
  try {
    chain.decode(binary);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

TEST(Categorize, NumbersStandForLabels) {
  const VlenChain chain(
      DType::string(),
      {4},
      {{"numcodecs.categorize", R"({"labels":["a","\u00fc"],"dtype":"|O","astype":">u2"})"}});
  EXPECT_EQ(chain.decode(literal("\0\1\0\2\0\0\0\3", 8)), (Texts{"a", "\xc3\xbc", "", ""}));
  EXPECT_EQ(chain.encode({"\xc3\xbc", "other", "", "a"}), literal("\0\2\0\0\0\0\0\1", 8));
  EXPECT_NE(chain.problem("123"), "");
}

TEST(VlenArena, AdoptsWhatAnotherKeeps) {
  VlenArena kept;
  ConstBytes bytes;
  {
    VlenArena arena;
    bytes = arena.keep(bytes_of("abc"));
    kept.adopt(arena);
    EXPECT_EQ(arena.nbytes(), 0u);
  }
  EXPECT_EQ(text_of(bytes), "abc");
  EXPECT_EQ(kept.nbytes(), 3u);
}

}  // namespace
}  // namespace headrace
