#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "headrace/headrace.h"
#include "store/store.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

Json document(const Store& store, const std::string& key) {
  Buffer text;
  if (!store.driver().get(key, text)) return nullptr;
  return Json::parse(text_of(text));
}

template <typename F>
Error error_of(F&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::io, "");
}

CreateOptions floats(Shape shape, Shape chunks = {}) {
  CreateOptions options;
  options.shape = std::move(shape);
  options.chunks = std::move(chunks);
  options.dtype = DType::float32;
  return options;
}

std::vector<std::string> codec_names(const Array& array) {
  std::vector<std::string> names;
  for (const CodecSpec& codec : array.codecs()) names.push_back(codec.name);
  return names;
}

TEST(CreateArray, HasDefaults) {
  const Store store = memory_store();
  const Array a = create_array(store, "x", floats({4, 6}, {2, 3}));
  EXPECT_EQ(a.shape(), (Shape{4, 6}));
  EXPECT_EQ(a.chunks(), (Shape{2, 3}));
  EXPECT_FALSE(a.shards());
  EXPECT_EQ(codec_names(a), (std::vector<std::string>{"bytes", "zstd"}));
  EXPECT_EQ(a.fill_value(), std::vector<std::byte>(4));
  const Json json = document(store, "x/zarr.json");
  EXPECT_EQ(json.at("data_type"), "float32");
  EXPECT_EQ(json.at("chunk_key_encoding").at("configuration").at("separator"), "/");
  EXPECT_EQ(json.at("fill_value"), 0.0);
  EXPECT_EQ(open_array(store, "x").metadata_json(), a.metadata_json());
}

TEST(CreateArray, WritesVersion2) {
  const Store store = memory_store();
  CreateOptions options = floats({4, 6}, {2, 3});
  options.zarr_format = 2;
  options.order = 'F';
  options.attributes = R"({"units": "K"})";
  const Array a = create_array(store, "x", options);
  EXPECT_EQ(codec_names(a), (std::vector<std::string>{"transpose", "bytes", "zstd"}));
  const Json json = document(store, "x/.zarray");
  EXPECT_EQ(json.at("dtype"), "<f4");
  EXPECT_EQ(json.at("order"), "F");
  EXPECT_EQ(json.at("compressor").at("id"), "zstd");
  EXPECT_EQ(document(store, "x/.zattrs").at("units"), "K");
  EXPECT_EQ(document(store, ".zgroup").at("zarr_format"), 2);
  EXPECT_EQ(document(store, "x/zarr.json"), nullptr);
}

TEST(CreateArray, MakesTheGroupsAbove) {
  const Store store = memory_store();
  create_array(store, "/a/b/x/", floats({3}));
  EXPECT_EQ(node_is_group(store), true);
  EXPECT_EQ(node_is_group(store, "a"), true);
  EXPECT_EQ(node_is_group(store, "a/b"), true);
  EXPECT_EQ(node_is_group(store, "a/b/x"), false);
}

TEST(CreateArray, RefusesNodesThatAreThere) {
  const Store store = memory_store();
  create_array(store, "a/x", floats({3}));
  EXPECT_EQ(error_of([&] { create_array(store, "a/x", floats({4})); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { create_array(store, "a", floats({4})); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { create_group(store, "a"); }).code(), ErrorCode::invalid_argument);
  // Only groups have members, whether something is overwritten or not.
  CreateOptions over = floats({4});
  over.overwrite = true;
  EXPECT_EQ(error_of([&] { create_array(store, "a/x/y", over); }).code(),
            ErrorCode::invalid_argument);
  // A hierarchy is of one format: a v3 node would hide the v2 ones around it.
  over.zarr_format = 2;
  EXPECT_EQ(error_of([&] { create_array(store, "a/y", over); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(open_array(store, "a/x").shape(), Shape{3});
}

// They would be elements of the new one.
TEST(CreateArray, RefusesChunksOfAnArrayThatIsGone) {
  for (const std::string key : {"c", "c/0", "c/0/1", "c.0", "0", "0.1", "0/1"}) {
    for (const std::string path : {"", "x", "a/x"}) {
      const Store store = memory_store();
      const std::string left = path.empty() ? key : path + '/' + key;
      store.set(left, bytes_of("old"));
      const Error error = error_of([&] { create_array(store, path, floats({3})); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("('" + key + "' is one)"), std::string::npos)
          << error.what();
      EXPECT_EQ(store.list(""), std::vector<std::string>{left});
      CreateOptions over = floats({3});
      over.overwrite = true;
      create_array(store, path, over);
      EXPECT_FALSE(store.exists(left));
    }
  }
  // No chunks, or not of what is made.
  for (const char* key : {"x/c/README", "x/notes", "x/c0", "x/01", "x/0/zarr.json", "y/c/0"}) {
    const Store store = memory_store();
    store.set(key, bytes_of("{}"));
    create_array(store, "x", floats({3}));
    EXPECT_TRUE(store.exists(key));
  }
  const Store store = memory_store();
  store.set("x/.zattrs", bytes_of("{}"));  // as a removal of a v2 array that failed leaves it
  store.set("x/0", bytes_of("old"));
  EXPECT_EQ(error_of([&] { create_array(store, "x", floats({3})); }).code(),
            ErrorCode::invalid_argument);
  create_group(store, "x");
}

TEST(CreateArray, OverwriteRemovesTheWholeNode) {
  const Store store = memory_store();
  CreateOptions v2 = floats({3}, {1});
  v2.zarr_format = 2;
  const Array old = create_array(store, "", v2);
  store.driver().set("0", bytes_of("xxxx"));
  CreateOptions options = floats({5});
  options.overwrite = true;
  create_array(store, "", options);
  EXPECT_EQ(store.driver().list(""), std::vector<std::string>{"zarr.json"});
  EXPECT_EQ(open_array(store).shape(), Shape{5});
}

TEST(CreateArray, ShardsHoldTheCodecs) {
  const Store store = memory_store();
  CreateOptions options = floats({8, 8}, {2, 4});
  options.shards = {4, 8};
  const Array a = create_array(store, "", options);
  EXPECT_EQ(a.chunks(), (Shape{2, 4}));
  EXPECT_EQ(a.shards(), (Shape{4, 8}));
  const Json json = document(store, "zarr.json");
  EXPECT_EQ(json.at("chunk_grid").at("configuration").at("chunk_shape"), Json({4, 8}));
  ASSERT_EQ(json.at("codecs").size(), 1U);
  EXPECT_EQ(json.at("codecs")[0].at("name"), "sharding_indexed");
  EXPECT_EQ(json.at("codecs")[0].at("configuration").at("chunk_shape"), Json({2, 4}));

  options.overwrite = true;
  options.shards = {3, 8};
  EXPECT_EQ(error_of([&] { create_array(store, "", options); }).code(),
            ErrorCode::invalid_argument);
  options.shards = {4};
  EXPECT_EQ(error_of([&] { create_array(store, "", options); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(open_array(store).shards(), (Shape{4, 8}));  // what was refused touched nothing
}

TEST(CreateArray, ChosenChunksDivideShards) {
  CreateOptions options = floats({3000, 3000});
  options.shards = {1500, 1501};
  const Array a = create_array(memory_store(), "", options);
  EXPECT_EQ(1500 % a.chunks()[0], 0);
  EXPECT_EQ(1501 % a.chunks()[1], 0);
}

TEST(CreateArray, PutsInTheCodecThatMakesBytes) {
  CreateOptions options = floats({4, 6});
  options.codecs = std::vector<CodecSpec>{};
  EXPECT_EQ(codec_names(create_array(memory_store(), "", options)),
            std::vector<std::string>{"bytes"});
  options.codecs = {codec::transpose({1, 0})};
  EXPECT_EQ(codec_names(create_array(memory_store(), "", options)),
            (std::vector<std::string>{"transpose", "bytes"}));
  options.codecs = {codec::transpose({1, 0}), codec::zstd(1)};
  EXPECT_EQ(codec_names(create_array(memory_store(), "", options)),
            (std::vector<std::string>{"transpose", "bytes", "zstd"}));
  options.codecs = {codec::bytes("big")};
  EXPECT_EQ(codec_names(create_array(memory_store(), "", options)),
            std::vector<std::string>{"bytes"});
}

TEST(CreateArray, KeysAreAsAskedFor) {
  const auto encoding = [](const CreateOptions& options) {
    const Store store = memory_store();
    const Array a = create_array(store, "", options);
    a.write({}, TensorView{const_cast<char*>("\1\2\3\4"), {}, {}, DType::float32, Device::cpu()});
    std::string keys;
    for (const std::string& key : store.driver().list("")) {
      if (key.find("json") == std::string::npos && key[0] != '.') keys += key + ' ';
    }
    return keys;
  };
  CreateOptions options = floats({1, 2}, {1, 1});
  EXPECT_EQ(encoding(options), "c/0/0 c/0/1 ");
  options.dimension_separator = ".";
  EXPECT_EQ(encoding(options), "c.0.0 c.0.1 ");
  options.v2_chunk_keys = true;
  options.dimension_separator = "";
  EXPECT_EQ(encoding(options), "0.0 0.1 ");
  options.zarr_format = 2;
  options.v2_chunk_keys = false;
  EXPECT_EQ(encoding(options), "0.0 0.1 ");
  options.dimension_separator = "/";
  EXPECT_EQ(encoding(options), "0/0 0/1 ");
}

TEST(CreateArray, FillValueIsCheckedAndKept) {
  CreateOptions options = floats({2});
  const float value = 1.5F;
  options.fill_value.emplace(sizeof value);
  std::memcpy(options.fill_value->data(), &value, sizeof value);
  const Store store = memory_store();
  EXPECT_EQ(create_array(store, "", options).fill_value(), options.fill_value);
  EXPECT_EQ(document(store, "zarr.json").at("fill_value"), 1.5);
  options.fill_value->push_back(std::byte{0});
  EXPECT_EQ(error_of([&] { create_array(memory_store(), "", options); }).code(),
            ErrorCode::invalid_argument);
}

TEST(CreateArray, SaysWhatIsWrong) {
  const auto refuses = [](const CreateOptions& options,
                          const char* what,
                          ErrorCode code = ErrorCode::invalid_argument) {
    const Store store = memory_store();
    const Error error = error_of([&] { create_array(store, "x", options); });
    EXPECT_EQ(error.code(), code) << what << ": " << error.what();
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    EXPECT_TRUE(store.driver().list("").empty()) << what;
  };
  const auto max = std::numeric_limits<std::int64_t>::max();
  refuses(floats({-1}), "shape");
  refuses(floats({max, max}), "shape");
  refuses(floats({2, 2}, {2}), "chunks");
  refuses(floats({2, 2}, {2, 0}), "chunks");
  refuses(floats({2, 2}, {max, 2}), "chunks");
  refuses(floats(Shape(65, 1)), "dimensions");
  CreateOptions options = floats({2});
  options.zarr_format = 4;
  refuses(options, "zarr_format");
  options = floats({2});
  options.order = 'F';
  refuses(options, "order");
  options = floats({2});
  options.dimension_separator = "-";
  refuses(options, "dimension_separator");
  options = floats({2});
  options.dimension_names = {"a", "b"};
  refuses(options, "dimension_names");
  options = floats({2});
  options.attributes = "[1]";
  refuses(options, "attributes");
  options = floats({2});
  options.codecs = {CodecSpec{"no-such-codec", ""}};
  refuses(options, "no-such-codec", ErrorCode::unsupported);
  options = floats({2});
  options.codecs = {codec::zstd(3), codec::bytes()};
  refuses(options, "bytes");
  options = floats({2});
  options.zarr_format = 2;
  options.shards = {2};
  refuses(options, "shards");
  options = floats({2});
  options.zarr_format = 2;
  options.codecs = {codec::sharding({1}, {codec::bytes()})};
  refuses(options, "sharding_indexed", ErrorCode::unsupported);
  options = floats({2});
  options.dtype = DType();
  refuses(options, "dtype");
}

TEST(CreateArray, ZeroDimensionsAndZeroExtents) {
  const Array scalar = create_array(memory_store(), "", floats({}));
  EXPECT_EQ(scalar.nchunks(), 1);
  const Array nothing = create_array(memory_store(), "", floats({0, 5}));
  EXPECT_EQ(nothing.nchunks(), 0);
  EXPECT_EQ(nothing.read().nbytes(), 0U);
}

TEST(CreateArray, ReadsBackWhatIsWritten) {
  for (const int zarr_format : {2, 3}) {
    const Store store = memory_store();
    CreateOptions options = floats({5, 7}, {2, 3});
    options.zarr_format = zarr_format;
    const Array a = create_array(store, "x", options);
    std::vector<float> values(35);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    a.write({}, TensorView{values.data(), {5, 7}, {}, DType::float32, Device::cpu()});
    const Tensor back = open_array(store, "x").read();
    EXPECT_EQ(std::memcmp(back.data(), values.data(), 140), 0);
    EXPECT_GT(a.nbytes_stored(), 0);
  }
}

TEST(CreateGroup, StoresItsAttributes) {
  for (const int zarr_format : {2, 3}) {
    const Store store = memory_store();
    const Group g = create_group(store, "a/b", R"({"units": "K"})", zarr_format);
    EXPECT_EQ(g.zarr_format(), zarr_format);
    EXPECT_EQ(g.path(), "a/b");
    EXPECT_EQ(Json::parse(open_group(store, "a/b").attributes_json()).at("units"), "K");
    EXPECT_EQ(node_is_group(store), true);
    create_group(store, "a", "", zarr_format, true);
    EXPECT_TRUE(open_group(store, "a").members().empty());
  }
  EXPECT_EQ(error_of([] { create_group(memory_store(), "", "[1]"); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([] { create_group(memory_store(), "", "", 1); }).code(),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace headrace
