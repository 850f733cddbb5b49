#include "unit/fault_scenarios.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "conformance/config_guard.h"
#include "headrace/array.h"
#include "headrace/cached_store.h"
#include "headrace/config.h"
#include "headrace/error.h"
#include "headrace/rechunk.h"
#include "headrace/store.h"

namespace headrace::test {

namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::int32_t>;

constexpr std::int64_t kExtent = 60;  // the last chunk is cut off
constexpr std::int64_t kChunk = 16;

// Distinct values of each time an array is written.
std::int32_t value(int time, std::int64_t index) {
  return static_cast<std::int32_t>(time * 1000 + index + 1);
}

Values values(int time, std::int64_t start, std::int64_t stop) {
  Values result;
  for (std::int64_t i = start; i < stop; ++i) result.push_back(value(time, i));
  return result;
}

TensorView view_of(Values& data) {
  return {data.data(), {static_cast<std::int64_t>(data.size())}, {}, DType::int32, Device::cpu()};
}

CreateOptions of_extent(std::int64_t extent, int zarr_format = 3) {
  CreateOptions options;
  options.shape = {extent};
  options.chunks = {kChunk};
  options.dtype = DType::int32;
  options.zarr_format = zarr_format;
  options.attributes = R"({"title": "old"})";
  return options;
}

std::string& fsync_option() {
  static std::string option = "metadata";
  return option;
}

Store folder(const std::string& root, const char* name = "/s.zarr") {
  return open_store(root + name, StoreMode::append, {{"fsync", fsync_option()}});
}

void write(const Array& array, int time, std::int64_t start, std::int64_t stop) {
  Values data = values(time, start, stop);
  array.write({slice(start, stop)}, view_of(data));
}

Array make(const Store& store, const std::string& path, const CreateOptions& options) {
  Array array = create_array(store, path, options);
  write(array, 1, 0, options.shape[0]);
  return array;
}

Values read(const Array& array) {
  const Tensor tensor = array.read();
  Values result(tensor.view().size());
  if (!result.empty()) std::memcpy(result.data(), tensor.data(), tensor.nbytes());
  return result;
}

Values joined(const std::vector<Values>& parts) {
  Values result;
  for (const Values& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

// Each unit of storage is that of `before` or that of `after`, whole.
void expect_whole_units(
    const Values& found, const Values& before, const Values& after, std::int64_t unit, bool done) {
  ASSERT_EQ(found.size(), before.size());
  ASSERT_EQ(found.size(), after.size());
  const auto n = static_cast<std::int64_t>(found.size());
  for (std::int64_t start = 0; start < n; start += unit) {
    const auto part = [&](const Values& all) {
      return Values(all.begin() + start, all.begin() + std::min(start + unit, n));
    };
    EXPECT_TRUE(part(found) == part(after) || (!done && part(found) == part(before)))
        << "the unit at " << start << " begins with " << found[static_cast<std::size_t>(start)];
  }
}

// An array that no scenario touches, in the same group.
void prepare_neighbour(const std::string& root, int zarr_format = 3) {
  const Store store = folder(root);
  create_group(store, "", R"({"title": "old"})", zarr_format);
  make(store, "neighbour", of_extent(kExtent, zarr_format));
}

void check_neighbour(const std::string& root) {
  const Array neighbour = open_array(folder(root), "neighbour");
  EXPECT_EQ(read(neighbour), values(1, 0, kExtent));
  EXPECT_NE(neighbour.attributes_json().find("old"), std::string::npos);
}

template <int zarr_format>
void prepare_array(const std::string& root) {
  prepare_neighbour(root, zarr_format);
  make(folder(root), "a", of_extent(kExtent, zarr_format));
}

CreateOptions sharded(std::int64_t extent) {
  CreateOptions options = of_extent(extent);
  options.chunks = {8};
  options.shards = {32};
  return options;
}

void prepare_sharded(const std::string& root) {
  prepare_neighbour(root);
  make(folder(root), "a", sharded(kExtent));
}

void prepare_rectilinear(const std::string& root) {
  prepare_neighbour(root);
  CreateOptions options = of_extent(kExtent);
  options.chunks = {};
  options.edges = {Shape{8, 40, 16}};
  make(folder(root), "a", options);
}

void prepare_scalar(const std::string& root) {
  prepare_neighbour(root);
  CreateOptions options = of_extent(kExtent);
  options.shape = {};
  options.chunks = {};
  Values data = values(1, 0, 1);
  create_array(folder(root), "a", options)
      .write({}, TensorView{data.data(), {}, {}, DType::int32, Device::cpu()});
}

template <std::int64_t start, std::int64_t stop>
void act_write(const std::string& root) {
  write(open_array(folder(root), "a"), 2, start, stop);
}

// Small slabs, whose chunks the device encodes and decodes.
Config of_device() {
  Config small = config();
  small.device_min_decode_nbytes = 0;
  small.device_slab_nbytes = 64;
  return small;
}

template <std::int64_t start, std::int64_t stop>
void act_write_from_device(const std::string& root) {
  const ConfigGuard guard;
  set_config(of_device());
  Values data = values(2, start, stop);
  const Tensor there = copy(view_of(data), Device::simt());
  open_array(folder(root), "a").write({slice(start, stop)}, there.view());
}

template <std::int64_t start, std::int64_t stop, std::int64_t unit>
void check_write(const std::string& root, bool done) {
  check_neighbour(root);
  const Values after =
      joined({values(1, 0, start), values(2, start, stop), values(1, stop, kExtent)});
  expect_whole_units(read(open_array(folder(root), "a")), values(1, 0, kExtent), after, unit, done);
}

// Reading finds what is there or raises; never fill values in its place.
void act_read(const std::string& root) {
  const Store store = open_store(root + "/s.zarr");
  const Group group = open_group(store);
  EXPECT_EQ(group.members().size(), 2u);
  EXPECT_EQ(read(group.array("a")), values(1, 0, kExtent));
  Values part(5);
  group.array("a").read_into({slice(14, 19)}, view_of(part));
  EXPECT_EQ(part, values(1, 14, 19));
  const Array array = open_array(store, "a");
  EXPECT_GT(array.nbytes_stored(), 0);
  EXPECT_EQ(array.nchunks_initialized(), array.nchunks());
  std::int64_t bad = 0;
  array.verify([&](const std::string&, const Error& error) {
    ++bad;
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  });
  if (bad > 0) throw Error(ErrorCode::io, "verify: " + root);
}

void act_read_to_device(const std::string& root) {
  const ConfigGuard guard;
  set_config(of_device());
  const Array array = open_array(open_store(root + "/s.zarr"), "a");
  const Tensor here = copy(array.to(Device::simt()).read().view(), Device::cpu());
  Values found(kExtent);
  ASSERT_EQ(here.nbytes(), kExtent * sizeof(std::int32_t));
  std::memcpy(found.data(), here.data(), here.nbytes());
  EXPECT_EQ(found, values(1, 0, kExtent));
}

void check_read(const std::string& root, bool) {
  check_neighbour(root);
  EXPECT_EQ(read(open_array(folder(root), "a")), values(1, 0, kExtent));
}

template <int zarr_format>
void prepare_group(const std::string& root) {
  prepare_neighbour(root, zarr_format);
}

template <int zarr_format>
void act_create(const std::string& root) {
  make(folder(root), "g/h/a", of_extent(kExtent, zarr_format));
}

void check_create(const std::string& root, bool done) {
  check_neighbour(root);
  const Store store = folder(root);
  EXPECT_EQ(open_group(store).zarr_format(), open_array(store, "neighbour").zarr_format());
  for (const char* above : {"g", "g/h"}) {
    if (node_is_group(store, above).value_or(false)) open_group(store, above);
  }
  const auto is_group = node_is_group(store, "g/h/a");
  EXPECT_TRUE(is_group || !done);
  if (!is_group) return;
  const Array made = open_array(store, "g/h/a");
  EXPECT_NE(made.attributes_json().find("old"), std::string::npos);
  expect_whole_units(read(made), Values(kExtent, 0), values(1, 0, kExtent), kChunk, done);
}

// Some chunks are removed, others made; what is there after a failure is one of the two arrays, or
// the first without elements: before its chunks go.
template <int zarr_format>
void act_overwrite(const std::string& root) {
  CreateOptions options = of_extent(40, zarr_format);
  options.attributes = R"({"title": "new"})";
  options.overwrite = true;
  const Array array = create_array(folder(root), "a", options);
  write(array, 2, 16, 32);
}

void check_overwrite(const std::string& root, bool done) {
  check_neighbour(root);
  const Store store = folder(root);
  if (!node_is_group(store, "a")) {
    EXPECT_FALSE(done);
    return;
  }
  const Array array = open_array(store, "a");
  if (array.shape().empty() || array.shape()[0] == kExtent) {
    EXPECT_FALSE(done);
    EXPECT_EQ(read(array), values(1, 0, array.shape().empty() ? 1 : kExtent));
    return;
  }
  if (array.shape()[0] == 0) {
    EXPECT_FALSE(done);
    return;
  }
  EXPECT_NE(array.attributes_json().find("new"), std::string::npos);
  expect_whole_units(read(array),
                     Values(40, 0),
                     joined({Values(16, 0), values(2, 16, 32), Values(8, 0)}),
                     kChunk,
                     done);
}

// The node and all that is its own.
void act_remove(const std::string& root) { remove_nodes(folder(root), "a"); }

void check_remove(const std::string& root, bool done) {
  check_neighbour(root);
  const Store store = folder(root);
  if (done) {
    EXPECT_TRUE(store.list("a/").empty());
  }
  if (!node_is_group(store, "a")) return;
  EXPECT_FALSE(done);
  const Array array = open_array(store, "a");
  EXPECT_TRUE(array.shape()[0] == 0 || read(array) == values(1, 0, kExtent));
}

void act_append(const std::string& root) {
  Values data = values(2, kExtent, kExtent + 10);
  open_array(folder(root), "a").append(view_of(data));
}

template <std::int64_t unit>
void check_append(const std::string& root, bool done) {
  check_neighbour(root);
  Values found = read(open_array(folder(root), "a"));
  EXPECT_TRUE(found.size() == kExtent + 10 || (!done && found.size() == kExtent)) << found.size();
  found.resize(kExtent + 10);
  // Within the last chunk that there was, and in one of its own.
  const Values before = joined({values(1, 0, kExtent), Values(10, 0)});
  const Values after = joined({values(1, 0, kExtent), values(2, kExtent, kExtent + 10)});
  if (open_array(folder(root), "a").shape()[0] == kExtent) {
    EXPECT_EQ(found, before);
  } else {
    expect_whole_units(found, before, after, unit, done);
  }
}

void act_shrink(const std::string& root) { open_array(folder(root), "a").resize({20}); }

void check_shrink(const std::string& root, bool done) {
  check_neighbour(root);
  const Values found = read(open_array(folder(root), "a"));
  const auto n = static_cast<std::int64_t>(found.size());
  EXPECT_TRUE(n == 20 || (!done && n == kExtent)) << n;
  EXPECT_EQ(found, values(1, 0, n));
}

// What was cut off does not come back, but where cutting it off failed.
void act_resize(const std::string& root) {
  const Array array = open_array(folder(root), "a");
  array.resize({20});
  array.resize({kExtent + 10});
}

void check_resize(const std::string& root, bool done) {
  check_neighbour(root);
  const Values found = read(open_array(folder(root), "a"));
  const auto n = static_cast<std::int64_t>(found.size());
  if (n == kExtent + 10) {
    EXPECT_EQ(found, joined({values(1, 0, 20), Values(kExtent - 10, 0)}));
  } else {
    EXPECT_TRUE(!done && (n == 20 || n == kExtent)) << n;
    EXPECT_EQ(found, values(1, 0, n));
  }
}

void act_attributes(const std::string& root) {
  const Store store = folder(root);
  open_array(store, "a").set_attributes_json(R"({"title": "new"})");
  open_group(store).set_attributes_json(R"({"title": "new"})");
}

void check_attributes(const std::string& root, bool done) {
  check_neighbour(root);
  const Store store = folder(root);
  EXPECT_EQ(read(open_array(store, "a")), values(1, 0, kExtent));
  for (const std::string& found :
       {open_array(store, "a").attributes_json(), open_group(store).attributes_json()}) {
    const bool is_new = found.find("new") != std::string::npos;
    EXPECT_TRUE(is_new || (!done && found.find("old") != std::string::npos)) << found;
  }
}

void act_consolidate(const std::string& root) { consolidate_metadata(folder(root)); }

void check_consolidate(const std::string& root, bool done) {
  check_neighbour(root);
  const Group group = open_group(folder(root));
  EXPECT_TRUE(group.consolidated() || !done);
  EXPECT_EQ(read(group.array("a")), values(1, 0, kExtent));
}

void act_erase(const std::string& root) {
  const Store store = folder(root);
  for (const std::string& key : store.list("a/c/")) store.erase(key);
  store.erase_prefix("a/");
}

void check_erase(const std::string& root, bool done) {
  check_neighbour(root);
  const Store store = folder(root);
  if (done) {
    EXPECT_TRUE(store.list("a/").empty());
    return;
  }
  if (node_is_group(store, "a"))
    expect_whole_units(
        read(open_array(store, "a")), values(1, 0, kExtent), Values(kExtent, 0), kChunk, false);
}

void prepare_rechunk(const std::string& root) {
  prepare_neighbour(root);
  CreateOptions options = of_extent(48);
  options.shape = {12, 8};
  options.chunks = {1, 8};
  Values data = values(1, 0, 96);
  create_array(folder(root), "a", options)
      .write({}, TensorView{data.data(), {12, 8}, {}, DType::int32, Device::cpu()});
}

template <std::size_t max_memory>
void act_rechunk(const std::string& root) {
  RechunkOptions options;
  options.chunks = {12, 1};
  options.max_memory = max_memory;
  options.overwrite = true;
  rechunk(open_array(open_store(root + "/s.zarr"), "a"), folder(root, "/d.zarr"), "", options);
}

// Without overwriting: a call that goes on, or one that finds nothing but a copy that is over.
template <std::size_t max_memory>
void act_rechunk_once(const std::string& root) {
  const std::filesystem::path made = root + "/d.zarr";
  const bool is_over = std::filesystem::exists(made / "zarr.json") &&
                       !std::filesystem::exists(made / ".rechunk") &&
                       !std::filesystem::exists(made / ".rechunk.json");
  if (is_over) return;
  RechunkOptions options;
  options.chunks = {12, 1};
  options.max_memory = max_memory;
  rechunk(open_array(open_store(root + "/s.zarr"), "a"), folder(root, "/d.zarr"), "", options);
}

void check_rechunk(const std::string& root, bool done) {
  check_neighbour(root);
  EXPECT_EQ(read(open_array(folder(root), "a")), values(1, 0, 96));
  if (!done) return;
  const Store made = open_store(root + "/d.zarr");
  EXPECT_EQ(read(open_array(made)), values(1, 0, 96));
  EXPECT_FALSE(rechunk_is_unfinished(made, ""));
  EXPECT_FALSE(std::filesystem::exists(root + "/d.zarr/.rechunk"));
}

void prepare_zip(const std::string& root) {
  prepare_neighbour(root);
  Store archive = open_store(root + "/a.zip", StoreMode::create);
  make(archive, "", of_extent(kExtent));
  archive.close();
}

void act_zip(const std::string& root) {
  Store archive = open_store(root + "/a.zip", StoreMode::overwrite);
  write(create_array(archive, "", of_extent(kExtent)), 2, 0, kExtent);
  archive.close();
}

void check_zip(const std::string& root, bool done) {
  check_neighbour(root);
  const Values found = read(open_array(open_store(root + "/a.zip")));
  EXPECT_TRUE(found == values(2, 0, kExtent) || (!done && found == values(1, 0, kExtent)));
}

void act_read_zip(const std::string& root) {
  EXPECT_EQ(read(open_array(open_store(root + "/a.zip"))), values(1, 0, kExtent));
}

void check_read_zip(const std::string& root, bool) { act_read_zip(root); }

void act_cached(const std::string& root) {
  const Store store =
      cached_store(open_store(root + "/s.zarr"),
                   {.memory_nbytes = 1000, .directory = root + "/cache", .block_nbytes = 64});
  const Array array = open_array(store, "a");
  for (int time = 0; time < 2; ++time) EXPECT_EQ(read(array), values(1, 0, kExtent));
}

}  // namespace

void use_fsync(const std::string& way) { fsync_option() = way; }

const std::vector<FaultScenario>& fault_scenarios() {
  static const std::vector<FaultScenario> all = {
      {"read", prepare_array<3>, act_read, check_read},
      {"read_v2", prepare_array<2>, act_read, check_read},
      {"read_shards", prepare_sharded, act_read, check_read},
      {"create", prepare_group<3>, act_create<3>, check_create, false},
      {"create_v2", prepare_group<2>, act_create<2>, check_create, false},
      {"overwrite", prepare_array<3>, act_overwrite<3>, check_overwrite},
      {"overwrite_v2", prepare_array<2>, act_overwrite<2>, check_overwrite},
      {"overwrite_shards", prepare_sharded, act_overwrite<3>, check_overwrite},
      {"overwrite_scalar", prepare_scalar, act_overwrite<3>, check_overwrite, false},
      {"remove", prepare_array<3>, act_remove, check_remove},
      {"remove_v2", prepare_array<2>, act_remove, check_remove},
      {"write", prepare_array<3>, act_write<0, kExtent>, check_write<0, kExtent, kChunk>},
      {"write_part", prepare_array<3>, act_write<9, 40>, check_write<9, 40, kChunk>},
      {"write_v2_part", prepare_array<2>, act_write<9, 40>, check_write<9, 40, kChunk>},
      {"write_shards", prepare_sharded, act_write<0, kExtent>, check_write<0, kExtent, 32>},
      {"write_shards_part", prepare_sharded, act_write<9, 40>, check_write<9, 40, 32>},
      {"write_from_device",
       prepare_array<3>,
       act_write_from_device<0, kExtent>,
       check_write<0, kExtent, kChunk>},
      {"write_shards_from_device",
       prepare_sharded,
       act_write_from_device<0, kExtent>,
       check_write<0, kExtent, 32>},
      {"write_shards_part_from_device",
       prepare_sharded,
       act_write_from_device<0, 40>,
       check_write<0, 40, 32>},
      {"read_to_device", prepare_sharded, act_read_to_device, check_read},
      {"append", prepare_array<3>, act_append, check_append<kChunk>, false},
      {"append_v2", prepare_array<2>, act_append, check_append<kChunk>, false},
      {"append_shards", prepare_sharded, act_append, check_append<32>, false},
      {"append_rectilinear", prepare_rectilinear, act_append, check_append<1>, false},
      {"shrink", prepare_array<3>, act_shrink, check_shrink},
      {"resize", prepare_array<3>, act_resize, check_resize, false},
      {"resize_v2", prepare_array<2>, act_resize, check_resize, false},
      {"resize_shards", prepare_sharded, act_resize, check_resize, false},
      {"attributes", prepare_array<3>, act_attributes, check_attributes},
      {"attributes_v2", prepare_array<2>, act_attributes, check_attributes},
      {"consolidate", prepare_array<3>, act_consolidate, check_consolidate},
      {"erase", prepare_array<3>, act_erase, check_erase},
      {"rechunk", prepare_rechunk, act_rechunk<(1 << 20)>, check_rechunk},
      {"rechunk_twice", prepare_rechunk, act_rechunk<128>, check_rechunk},
      {"rechunk_once", prepare_rechunk, act_rechunk_once<128>, check_rechunk},
      {"zip", prepare_zip, act_zip, check_zip},
      {"read_zip", prepare_zip, act_read_zip, check_read_zip},
      {"cached", prepare_array<3>, act_cached, check_read},
  };
  return all;
}

}  // namespace headrace::test
