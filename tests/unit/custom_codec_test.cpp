#include "headrace/custom_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "codec/chain.h"
#include "codec/registry.h"
#include "codec/shard_index.h"
#include "headrace/array.h"
#include "tests/conformance/codec_kit.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = CustomCodec::Kind;

CodecOutput owned(Bytes bytes) {
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return {*owner, owner};
}

// Bytes backwards, with so many more at the end.
class Backwards : public CustomCodec {
 public:
  Backwards(Kind kind, std::size_t more, bool fixed_size)
      : kind_(kind), more_(more), fixed_size_(fixed_size) {}

  Kind kind() const override { return kind_; }
  std::string implementation() const override { return "test"; }
  std::optional<std::size_t> encoded_nbytes(std::size_t n) const override {
    if (!fixed_size_) return std::nullopt;
    return n + more_;
  }
  CodecOutput decode(std::span<const std::byte> encoded) const override {
    if (encoded.size() < more_) throw Error(ErrorCode::corrupt, "no tail");
    Bytes bytes(encoded.begin(), encoded.end() - static_cast<std::ptrdiff_t>(more_));
    std::ranges::reverse(bytes);
    return owned(std::move(bytes));
  }
  CodecOutput encode(std::span<const std::byte> decoded) const override {
    Bytes bytes(decoded.rbegin(), decoded.rend());
    bytes.resize(bytes.size() + more_);
    return owned(std::move(bytes));
  }

 private:
  Kind kind_;
  std::size_t more_;
  bool fixed_size_;
};

// uint32 as uint16, and so many bytes fewer than it should make.
class Narrow : public CustomCodec {
 public:
  explicit Narrow(CodecArray in, std::size_t missing) : in_(std::move(in)), missing_(missing) {}

  Kind kind() const override { return Kind::array_to_array; }
  std::string implementation() const override { return "test"; }
  CodecArray encoded() const override { return {DType::uint16, in_.shape, {}}; }
  CodecOutput decode(std::span<const std::byte> encoded) const override {
    Bytes bytes(encoded.size() * 2);
    for (std::size_t i = 0; i < encoded.size() / 2; ++i)
      std::memcpy(&bytes[4 * i], &encoded[2 * i], 2);
    bytes.resize(bytes.size() - missing_);
    return owned(std::move(bytes));
  }
  CodecOutput encode(std::span<const std::byte> decoded) const override {
    Bytes bytes(decoded.size() / 2 - missing_);
    for (std::size_t i = 0; i < bytes.size() / 2; ++i)
      std::memcpy(&bytes[2 * i], &decoded[4 * i], 2);
    return owned(std::move(bytes));
  }

 private:
  CodecArray in_;
  std::size_t missing_;
};

class Provider : public CodecProvider {
 public:
  std::vector<std::pair<std::string, CodecInput>> asked;

  std::shared_ptr<const CustomCodec> make(const CodecSpec& spec, const CodecInput& input) override {
    asked.emplace_back(spec.name, input);
    if (spec.name == "test.backwards")
      return std::make_shared<Backwards>(Kind::bytes_to_bytes, 0, false);
    if (spec.name == "test.tail") return std::make_shared<Backwards>(Kind::bytes_to_bytes, 3, true);
    if (spec.name == "test.serial")
      return std::make_shared<Backwards>(Kind::array_to_bytes, 1, false);
    if (spec.name == "test.narrow") return std::make_shared<Narrow>(input.elements, 0);
    if (spec.name == "test.wrong") return std::make_shared<Narrow>(input.elements, 4);
    return nullptr;
  }
  std::vector<Entry> codecs() override {
    return {{"test.backwards", "test"}, {"zstd", "test"}, {"numcodecs.pickle", "test"}};
  }
};

Provider& provider() {
  static const auto added = [] {
    auto made = std::make_shared<Provider>();
    add_codec_provider(made);
    return made;
  }();
  return *added;
}

CodecChain chain_of(const std::vector<CodecSpec>& specs) {
  provider().asked.clear();
  return CodecChain(specs, {DType::uint32, {4, 6}, {}}, {});
}

Bytes small_numbers() {
  Bytes bytes(4 * 6 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 4) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

void check_round_trip(const CodecChain& chain) {
  Buffer encoded;
  const Bytes data = small_numbers();
  chain.encode(data, encoded);
  if (chain.fixed_encoded_nbytes()) {
    EXPECT_EQ(*chain.fixed_encoded_nbytes(), encoded.size());
  }
  Bytes out(data.size(), std::byte{0xA5});
  chain.decode(encoded, out, {});
  EXPECT_EQ(out, data);
}

std::string message_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CustomCodec, EveryKindInAChain) {
  const CodecSpec backwards{"test.backwards", ""}, tail{"test.tail", ""}, serial{"test.serial", ""},
      narrow{"test.narrow", ""};
  for (const std::vector<CodecSpec>& specs : std::vector<std::vector<CodecSpec>>{
           {codec::bytes(), backwards},
           {codec::bytes(), tail},
           {codec::bytes(), codec::zstd(), tail, backwards, codec::crc32c()},
           {codec::bytes("big"), backwards, codec::lz4(), backwards},
           {serial},
           {serial, codec::zstd()},
           {narrow, codec::bytes()},
           {codec::transpose({1, 0}), narrow, codec::bytes("big"), codec::blosc("lz4", 5)},
           {narrow, serial, tail},
           {codec::sharding({2, 3}, {narrow, codec::bytes(), backwards}, {codec::bytes(), tail})},
       }) {
    SCOPED_TRACE(specs.front().name);
    check_round_trip(chain_of(specs));
  }
}

TEST(CustomCodec, KnowsWhatItIsGiven) {
  chain_of({codec::transpose({1, 0}),
            {"test.narrow", ""},
            codec::bytes("big"),
            codec::zstd(),
            {"test.backwards", ""}});
  ASSERT_EQ(provider().asked.size(), 2);
  const CodecInput& narrow = provider().asked[0].second;
  EXPECT_TRUE(narrow.is_array);
  EXPECT_EQ(narrow.elements.dtype, DType::uint32);
  EXPECT_EQ(narrow.elements.shape, (Shape{6, 4}));
  const CodecInput& backwards = provider().asked[1].second;
  EXPECT_FALSE(backwards.is_array);
  EXPECT_EQ(backwards.elements.shape, Shape{0});
  EXPECT_EQ(backwards.chunk.dtype, DType::uint16);
  EXPECT_EQ(backwards.chunk.shape, (Shape{6, 4}));

  chain_of({codec::bytes("big"), {"test.backwards", ""}});
  EXPECT_TRUE(provider().asked[0].second.swapped);
  EXPECT_EQ(provider().asked[0].second.elements.dtype, DType::uint32);
}

TEST(CustomCodec, IsNotAskedForWhatHeadraceHas) {
  chain_of({codec::bytes(), codec::zstd(), {"numcodecs.bz2", ""}});
  EXPECT_TRUE(provider().asked.empty());
}

TEST(CustomCodec, PickleStaysRefused) {
  for (const char* name : {"pickle", "numcodecs.pickle"}) {
    const std::string what = message_of(
        [&] {
          chain_of({codec::bytes(), {name, ""}});
        },
        ErrorCode::unsupported);
    EXPECT_NE(what.find("runs code"), std::string::npos) << what;
  }
  EXPECT_TRUE(provider().asked.empty());
}

TEST(CustomCodec, UnknownToAllIsUnsupported) {
  const std::string what = message_of(
      [] {
        chain_of({codec::bytes(), {"test.nobody", ""}});
      },
      ErrorCode::unsupported);
  EXPECT_NE(what.find("test.nobody is not known"), std::string::npos) << what;
}

TEST(CustomCodec, WrongSizesAreNamed) {
  const CodecChain chain = chain_of({{"test.wrong", ""}, codec::bytes()});
  Buffer encoded;
  const std::string encode =
      message_of([&] { chain.encode(small_numbers(), encoded); }, ErrorCode::invalid_argument);
  EXPECT_NE(encode.find("codec test.wrong: encode: expected 48 bytes, got 44"), std::string::npos)
      << encode;
  Bytes out(96);
  const std::string decode =
      message_of([&] { chain.decode(Bytes(48), out, {}); }, ErrorCode::corrupt);
  EXPECT_NE(decode.find("codec test.wrong: expected 96 bytes, got 92"), std::string::npos)
      << decode;
}

TEST(CustomCodec, ErrorsOfReadsNameArrayAndChunk) {
  provider();
  Store store = memory_store();
  CreateOptions options;
  options.shape = {4, 6};
  options.dtype = DType::uint32;
  options.chunks = {2, 6};
  options.codecs = std::vector{CodecSpec{"test.tail", ""}};
  const Array array = create_array(store, "x", options);
  Bytes data = small_numbers();
  array.write({}, {data.data(), {4, 6}, {}, DType::uint32, Device::cpu()});
  const Tensor read = array.read();
  EXPECT_EQ(std::memcmp(read.data(), data.data(), data.size()), 0);

  const CodecSpec tail{"test.tail", ""};
  ASSERT_EQ(array.codecs().back(), tail);
  store.set("x/c/1/0", Bytes(2));
  const std::string what = message_of([&] { array.read(); }, ErrorCode::corrupt);
  EXPECT_NE(what.find("x chunk c/1/0: codec test.tail: no tail"), std::string::npos) << what;
}

TEST(CustomCodec, IsInTheTable) {
  provider();
  const auto rows = codec_table();
  const auto of_test = [](const CodecInfo& row) { return row.implementation == "test"; };
  ASSERT_EQ(std::ranges::count_if(rows, of_test), 1);
  EXPECT_EQ(std::ranges::find_if(rows, of_test)->codec, "test.backwards");
}

}  // namespace
}  // namespace headrace
