// Bounds on what comes from outside: each is an error before memory or time is spent.

#include "base/limits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/bytes.h"
#include "base/memory_errors.h"
#include "codec/chain.h"
#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "engine/query/inner_order.h"
#include "format/codec_specs.h"
#include "format/json.h"
#include "headrace/cached_store.h"
#include "headrace/codec.h"
#include "headrace/headrace.h"
#include "headrace/store.h"

namespace headrace::test {
namespace {

std::string repeated(const std::string& text, std::size_t n) {
  std::string out;
  out.reserve(text.size() * n);
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Limits, ListsOfJsonAreBoundedBeforeTheyAreBuilt) {
  const std::string zeros = "[0" + repeated(",0", 3'000'000) + "]";
  const Json list = Json::parse(zeros, "zarr.json: shape");
  std::string message;
  EXPECT_EQ(code_of([&] { shape_from_json(list, 0); }, &message), ErrorCode::unsupported);
  EXPECT_NE(message.find("more dimensions than 64"), std::string::npos) << message;
  EXPECT_EQ(code_of([&] { codecs_from_json(list, 1); }, &message), ErrorCode::unsupported);
  EXPECT_NE(message.find("more codecs than 64"), std::string::npos) << message;
  EXPECT_EQ(code_of([&] { list.items(); }), ErrorCode::unsupported);
  const std::string members = "{\"a\":0" + repeated(",\"a\":0", 2'000'000) + "}";
  const Json object = Json::parse(members, "zarr.json");
  EXPECT_EQ(code_of([&] { object.members(); }), ErrorCode::unsupported);
  EXPECT_EQ(shape_from_json(Json::parse("[1" + repeated(",1", 63) + "]", "x"), 0).size(), 64u);
  EXPECT_EQ(Json::parse("[0" + repeated(",0", 100'000) + "]", "x").items().size(), 100'001u);
}

TEST(Limits, ShardsOfTooManyInnerChunksAreAnError) {
  for (const ShardOrder order :
       {ShardOrder::morton, ShardOrder::colexicographic, ShardOrder::lexicographic}) {
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    InnerOrder(order, {1 << 20, 1 << 20});
                  },
                  &message),
              ErrorCode::unsupported);
    EXPECT_NE(message.find("larger inner chunks or smaller shards"), std::string::npos) << message;
    EXPECT_EQ(code_of([&] {
                InnerOrder(order, {std::int64_t{1} << 40, std::int64_t{1} << 40});
              }),
              ErrorCode::unsupported);
    InnerOrder(order, {64, 64});
  }
}

TEST(Limits, WantOfMemoryIsAnErrorOfTheLibrary) {
  EXPECT_EQ(code_of([] { with_memory_errors([] { throw std::bad_alloc(); }); }),
            ErrorCode::out_of_memory);
  EXPECT_EQ(code_of([] { with_memory_errors([] { throw std::length_error("vector"); }); }),
            ErrorCode::out_of_memory);
  EXPECT_EQ(with_memory_errors([] { return 7; }), 7);
}

// A file without bytes on the disk.
void make_sparse(const std::string& path, std::uint64_t nbytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream{path};
  std::filesystem::resize_file(path, nbytes);
}

constexpr std::uint64_t kHuge = std::uint64_t{100} << 30;

std::vector<Store> views_of(const std::string& folder) {
  std::vector<Store> stores{open_store(folder)};
  stores.push_back(cached_store(stores[0]));
  try {
    stores.push_back(open_store(folder, StoreMode::read, {{"io", "uring"}}));
  } catch (const Error&) {  // not on this machine
  }
  return stores;
}

TEST(Limits, DocumentsAreMeasuredBeforeTheyAreRead) {
  for (const char* name : {"zarr.json", ".zarray", ".zgroup"}) {
    const TempFolder folder;
    make_sparse(folder / ("s/" + std::string(name)), kHuge);
    for (const Store& store : views_of(folder / "s")) {
      std::string message;
      EXPECT_EQ(code_of([&] { open_array(store); }, &message), ErrorCode::corrupt) << name;
      EXPECT_NE(message.find("at most 268435456"), std::string::npos) << message;
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find("large data belong into arrays"), std::string::npos) << message;
      EXPECT_EQ(code_of([&] { open_group(store); }), ErrorCode::corrupt) << name;
    }
  }
}

// Whose documents do not match their checksum.
class Damaged final : public CustomStore {
 public:
  std::string url() const override { return "damaged://"; }
  bool read_only() const override { return true; }
  std::size_t batch_size() const override { return 1; }
  std::vector<std::optional<StoredBytes>> get(std::span<const std::string>) override {
    throw Error(ErrorCode::corrupt, "the bytes do not match their checksum");
  }
  std::optional<std::uint64_t> size(const std::string&) override { return 2; }
  std::optional<StoredBytes> get_range(const std::string&, const ByteRange&) override {
    return std::nullopt;
  }
  void set(const std::string&, std::span<const std::byte>) override {}
  void erase(const std::string&) override {}
  void erase_prefix(const std::string&) override {}
  std::vector<std::string> list(const std::string&) override { return {}; }
  std::vector<std::string> list_dir(const std::string&) override { return {}; }
};

TEST(Limits, WhatIsDamagedIsNotCalledTooLarge) {
  std::string message;
  const Store store = make_store(std::make_shared<Damaged>());
  EXPECT_EQ(code_of([&] { open_array(store); }, &message), ErrorCode::corrupt);
  EXPECT_NE(message.find("do not match their checksum"), std::string::npos) << message;
  EXPECT_EQ(message.find("large data"), std::string::npos) << message;
}

TEST(Limits, ChunksThatSwellAreCorruptBeforeTheyAreRead) {
  for (const CodecSpec& codec : {codec::zstd(1), codec::gzip(1), codec::crc32c()}) {
    SCOPED_TRACE(codec.name);
    const TempFolder folder;
    CreateOptions options;
    options.shape = {64, 64};
    options.dtype = DType::float32;
    options.chunks = {32, 64};
    options.codecs = {codec::bytes(), codec};
    options.write_empty_chunks = true;
    Array array = create_array(open_store(folder / "s", StoreMode::append), "", options);
    array.write({}, array.read().view());
    make_sparse(folder / "s/c/0/0", kHuge);
    for (const Store& store : views_of(folder / "s")) {
      std::string message;
      EXPECT_EQ(code_of([&] { open_array(store).read(); }, &message), ErrorCode::corrupt);
      EXPECT_NE(message.find("c/0/0"), std::string::npos) << message;
    }
    const Array again = open_array(open_store(folder / "s", StoreMode::read_write));
    const Tensor row = Tensor::empty({1, 64}, DType::float32);
    EXPECT_EQ(code_of([&] { again.write({slice(0, 1), all}, row.view()); }), ErrorCode::corrupt);
    int bad = 0;
    again.verify([&](const std::string&, const Error&) { ++bad; });
    EXPECT_EQ(bad, 1);
  }
}

// A shard that holds as many bytes as its index claims for an inner chunk.
TEST(Limits, InnerChunksThatSwellAreCorruptBeforeTheyAreRead) {
  const TempFolder folder;
  CreateOptions options;
  options.shape = {64, 64};
  options.dtype = DType::float32;
  options.chunks = {32, 64};
  options.shards = {64, 64};
  options.codecs = {codec::bytes(), codec::zstd(1)};
  options.write_empty_chunks = true;
  Array array = create_array(open_store(folder / "s", StoreMode::append), "", options);
  array.write({}, array.read().view());
  const std::string path = folder / "s/c/0/0";
  make_sparse(path, kHuge);
  // At the end: (offset, size) of both inner chunks, and the checksum.
  std::byte index[36];
  const std::uint64_t entries[] = {0, kHuge - 36, 8, kHuge - 44};
  for (std::size_t i = 0; i < 4; ++i) store_le(index + 8 * i, entries[i]);
  Buffer sum;
  CodecChain({codec::bytes(), codec::crc32c()}, {DType::uint8, {32}, {}}, {})
      .encode(ConstBytes(index, 32), sum);
  std::memcpy(index + 32, sum.data() + 32, 4);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(kHuge - 36));
  file.write(reinterpret_cast<const char*>(index), sizeof index);
  file.close();
  for (const Store& store : views_of(folder / "s")) {
    std::string message;
    EXPECT_EQ(code_of([&] { open_array(store).read(); }, &message), ErrorCode::corrupt);
    EXPECT_NE(message.find("its codecs make at most"), std::string::npos) << message;
    EXPECT_EQ(code_of([&] { open_array(store).read({slice(0, 1), all}); }), ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace headrace::test
