#include "headrace/rechunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "format/json.h"
#include "headrace/error.h"

namespace headrace::test {
namespace {

constexpr const char* kState = ".rechunk/progress.json";

std::vector<std::int32_t> counting(std::size_t n) {
  std::vector<std::int32_t> values(n);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

Array counting_array(const Shape& shape, const Shape& chunks, const Store& store = memory_store()) {
  CreateOptions options;
  options.shape = shape;
  options.chunks = chunks;
  options.dtype = DType::int32;
  Array array = create_array(store, "", options);
  auto values = counting(TensorView{nullptr, shape, {}, DType::int32, Device::cpu()}.size());
  array.write({}, TensorView{values.data(), shape, {}, DType::int32, Device::cpu()});
  return array;
}

std::vector<std::int32_t> elements(const Array& array) {
  const Tensor tensor = array.read();
  std::vector<std::int32_t> result(tensor.view().size());
  if (!result.empty()) std::memcpy(result.data(), tensor.data(), tensor.nbytes());
  return result;
}

RechunkOptions into(const Shape& chunks, std::size_t max_memory) {
  RechunkOptions options;
  options.chunks = chunks;
  options.max_memory = max_memory;
  return options;
}

TEST(Rechunk, OnePassAndTwoPassesGiveTheSame) {
  const Array source = counting_array({24, 10, 6}, {1, 10, 6});
  for (const auto& [max_memory, passes] : {std::pair<std::size_t, std::size_t>{1 << 20, 1},
                                           std::pair<std::size_t, std::size_t>{960, 2}}) {
    const RechunkOptions options = into({24, 2, 2}, max_memory);
    ASSERT_EQ(plan_rechunk(source, options)[0].passes.size(), passes);
    const Store store = memory_store();
    rechunk(source, store, "a/b", options);
    const Array made = open_array(store, "a/b");
    EXPECT_EQ(made.chunks(), (Shape{24, 2, 2}));
    EXPECT_EQ(elements(made), counting(24 * 10 * 6));
    EXPECT_TRUE(store.list("a/b/.rechunk/").empty());
  }
}

// Stopped after each of its blocks, in either pass.
TEST(Rechunk, GoesOnFromAnyBlock) {
  const Array source = counting_array({12, 8}, {1, 8});
  RechunkOptions options = into({12, 1}, 128);
  std::int64_t blocks = 0;
  const auto plans = plan_rechunk(source, options);
  for (const RechunkPass& pass : plans[0].passes) blocks += pass.nblocks;
  ASSERT_GT(blocks, 4);
  for (std::int64_t stop_at = 1; stop_at <= blocks; ++stop_at) {
    const Store store = memory_store();
    std::int64_t done = 0;
    options.progress = [&](std::int64_t, std::int64_t) {
      if (++done == stop_at) throw Error(ErrorCode::cancelled, "enough");
    };
    EXPECT_EQ(code_of([&] { rechunk(source, store, "", options); }), ErrorCode::cancelled);
    EXPECT_TRUE(store.exists(kState));
    options.progress = nullptr;
    rechunk(source, store, "", options);
    EXPECT_EQ(elements(open_array(store)), counting(96)) << "stopped at block " << stop_at;
    EXPECT_TRUE(store.list(".rechunk/").empty());
  }
}

// Of a store without folders: objects that are written, and removed, fail in turn.
TEST(Rechunk, GoesOnFromAnyRequest) {
  const Array source = counting_array({12, 8}, {1, 8});
  const RechunkOptions options = into({12, 1}, 128);
  bool failed = true;
  for (long n = 1; failed; ++n) {
    ASSERT_LT(n, 1000);
    const auto faults = std::make_shared<Faults>();
    const Store store = Store(make_faulty_store(memory_store().shared_driver(), faults));
    faults->fail_write(n, EIO);
    failed = false;
    try {
      rechunk(source, store, "", options);
    } catch (const Error& error) {
      EXPECT_EQ(error.os_error(), EIO) << error.what();
      failed = true;
      rechunk(source, store, "", options);
    }
    EXPECT_EQ(elements(open_array(store)), counting(96)) << "request " << n;
    EXPECT_TRUE(store.list(".rechunk").empty());
    EXPECT_FALSE(rechunk_is_unfinished(store, ""));
  }
}

TEST(Rechunk, RefusesAMemberThatIsCalledAsItsNotes) {
  const Store source = memory_store(), target = memory_store();
  const Group group = create_group(source, "");
  CreateOptions options;
  options.shape = {3};
  options.chunks = {1};
  options.dtype = DType::int32;
  create_group(source, "sub");
  create_array(source, "sub/.rechunk", options);
  rechunk(group, target, "", {});
  EXPECT_EQ(open_array(target, "sub/.rechunk").shape(), (Shape{3}));
  create_array(source, ".rechunk", options);
  const Store other = memory_store();
  EXPECT_EQ(code_of([&] { rechunk(group, other, "", {}); }), ErrorCode::invalid_argument);
  EXPECT_TRUE(other.list("").empty());
}

TEST(Rechunk, RefusesOtherArgumentsUntilToldToOverwrite) {
  const Array source = counting_array({8, 8}, {2, 8});
  const Store store = memory_store();
  RechunkOptions options = into({8, 2}, 128);
  options.progress = [](std::int64_t, std::int64_t) { throw Error(ErrorCode::cancelled, ""); };
  EXPECT_EQ(code_of([&] { rechunk(source, store, "", options); }), ErrorCode::cancelled);
  RechunkOptions other = into({4, 4}, 1 << 20);
  EXPECT_EQ(code_of([&] { rechunk(source, store, "", other); }), ErrorCode::invalid_argument);
  other.overwrite = true;
  rechunk(source, store, "", other);
  EXPECT_EQ(open_array(store).chunks(), (Shape{4, 4}));
  EXPECT_EQ(elements(open_array(store)), counting(64));
}

// Their URLs are the same.
TEST(Rechunk, GoesOnWithTheSameStoreInMemoryAndNoOther) {
  const Array source = counting_array({8, 8}, {2, 8});
  const Array other = counting_array({8, 8}, {2, 8});
  const Store store = memory_store();
  RechunkOptions options = into({8, 2}, 128);
  options.progress = [](std::int64_t, std::int64_t) { throw Error(ErrorCode::cancelled, ""); };
  EXPECT_EQ(code_of([&] { rechunk(source, store, "", options); }), ErrorCode::cancelled);
  EXPECT_TRUE(rechunk_is_unfinished(store, ""));
  EXPECT_FALSE(rechunk_is_unfinished(store, "a"));
  options.progress = nullptr;
  EXPECT_EQ(code_of([&] { rechunk(other, store, "", options); }), ErrorCode::invalid_argument);
  rechunk(open_array(source.store()), store, "", options);
  EXPECT_EQ(elements(open_array(store)), counting(64));
  EXPECT_FALSE(rechunk_is_unfinished(store, ""));
}

TEST(Rechunk, ANameGivenIsTheSources) {
  const Store store = memory_store();
  RechunkOptions options = into({8, 2}, 128);
  options.source_name = "field of 2020";
  options.progress = [](std::int64_t, std::int64_t) { throw Error(ErrorCode::cancelled, ""); };
  EXPECT_EQ(code_of([&] {
              rechunk(counting_array({8, 8}, {2, 8}), store, "", options);
            }),
            ErrorCode::cancelled);
  options.progress = nullptr;
  options.source_name = "field of 2021";
  EXPECT_EQ(code_of([&] {
              rechunk(counting_array({8, 8}, {2, 8}), store, "", options);
            }),
            ErrorCode::invalid_argument);
  options.source_name = "field of 2020";
  rechunk(counting_array({8, 8}, {2, 8}), store, "", options);
  EXPECT_EQ(elements(open_array(store)), counting(64));
}

TEST(Rechunk, NeverRemovesItsSource) {
  const Store store = memory_store();
  create_group(store);
  CreateOptions create;
  create.shape = {4};
  create.dtype = DType::int32;
  const Array source = create_array(store, "g/a", create);
  RechunkOptions options = into({2}, 1 << 20);
  options.overwrite = true;
  for (const char* path : {"", "g", "g/a", "g/a/b"}) {
    EXPECT_EQ(code_of([&] { rechunk(source, store, path, options); }), ErrorCode::invalid_argument)
        << path;
  }
  rechunk(source, store, "g/ab", options);
  EXPECT_EQ(open_array(store, "g/ab").chunks(), (Shape{2}));
}

TEST(Rechunk, DamagedStateIsAnError) {
  const Array source = counting_array({8}, {2});
  for (const std::string text : {"{", "{}", "{\"arguments\": {}, \"array\": -1}", "[]"}) {
    const Store store = memory_store();
    store.set(kState, std::as_bytes(std::span(text)));
    EXPECT_EQ(code_of([&] { rechunk(source, store, "", into({4}, 1 << 20)); }), ErrorCode::corrupt)
        << text;
  }
}

TEST(Rechunk, ExecutorCopiesTheBlocksInAnyOrder) {
  const Array source = counting_array({16, 4}, {4, 4});
  const Store store = memory_store();
  RechunkOptions options = into({2, 2}, 128);
  options.verify = true;
  std::int64_t told = 0;
  options.progress = [&](std::int64_t done, std::int64_t) { told = done; };
  options.executor = [](const Array& from, const Array& to, const auto& blocks, const auto& done) {
    for (std::size_t i = blocks.size(); i-- > 0;) {
      to.write(blocks[i], from.read(blocks[i]).view());
      done(i);
    }
  };
  rechunk(source, store, "", options);
  EXPECT_EQ(elements(open_array(store)), counting(64));
  EXPECT_EQ(told, 2 * 256);
}

TEST(Rechunk, AnExecutorThatLeavesBlocksOutIsNoSuccess) {
  const Array source = counting_array({16, 4}, {4, 4});
  const Store store = memory_store();
  RechunkOptions options = into({2, 2}, 128);
  const auto fails = [&](RechunkExecutor executor) {
    options.executor = std::move(executor);
    EXPECT_EQ(code_of([&] { rechunk(source, store, "", options); }), ErrorCode::invalid_argument);
    EXPECT_TRUE(store.exists(kState)) << "it goes on where it was";
  };
  fails([](const Array&, const Array&, const auto&, const auto&) {});
  fails([](const Array&, const Array&, const auto&, const auto& done) { done(SIZE_MAX); });
  fails([](const Array& from, const Array& to, const auto& blocks, const auto& done) {
    to.write(blocks[0], from.read(blocks[0]).view());
    done(0);
    done(0);
  });
  options.executor = nullptr;
  rechunk(source, store, "", options);
  EXPECT_EQ(elements(open_array(store)), counting(64));
}

TEST(Rechunk, GroupsKeepWhatIsBesideTheChunks) {
  const Store from = memory_store();
  create_group(from, "", R"({"title": "t"})");
  CreateOptions create;
  create.shape = {6, 4};
  create.dtype = DType::int32;
  create.chunks = {1, 4};
  create.dimension_names = {"y", std::nullopt};
  create.attributes = R"({"units": "K"})";
  create.fill_value = std::vector<std::byte>(4, std::byte{1});
  create_array(from, "g/a", create);
  create.shape = {6};
  create.chunks = {3};
  create.dimension_names = {};
  create_array(from, "line", create);
  consolidate_metadata(from);
  const Store to = memory_store();
  rechunk(open_group(from), to, "", into({3, 2}, 1 << 20));
  const Group made = open_group(to);
  EXPECT_TRUE(made.consolidated());
  EXPECT_EQ(json_compact(made.attributes_json()), R"({"title":"t"})");
  const Array a = made.array("g/a");
  EXPECT_EQ(a.chunks(), (Shape{3, 2}));
  EXPECT_EQ(a.fill_value(), create.fill_value);
  EXPECT_EQ(json_compact(a.attributes_json()), R"({"units":"K"})");
  EXPECT_EQ(a.dimension_names()[0], "y");
  EXPECT_EQ(made.array("line").chunks(), (Shape{3}));
}

}  // namespace
}  // namespace headrace::test
