// Arrays over stores that are asked for many chunks at once: what is read, what is asked for, and
// what happens when something goes wrong in the middle.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>

#include "conformance/config_guard.h"
#include "conformance/inject.h"
#include "conformance/temp_folder.h"
#include "headrace/array.h"
#include "headrace/config.h"
#include "headrace/error.h"
#include "store/uring.h"

namespace headrace::test {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 45;
constexpr float kFill = -1;

struct BatchCase {
  std::string name;
  StorageOptions options;  // of a folder; of no meaning for "memory"
};

// A store of the case within one that counts within one that has faults.
class ArrayBatch : public testing::TestWithParam<BatchCase> {
 protected:
  void SetUp() override {
    std::string why_not;
    if (GetParam().options.contains("io") && !uring_available(why_not)) GTEST_SKIP() << why_not;
    if (GetParam().name == "memory") {
      inner_ = make_batching_store(memory_store().shared_driver(), 7);
    } else {
      inner_ = open_store(folder_.path(), StoreMode::append, GetParam().options).shared_driver();
    }
    truth_.resize(kRows * kColumns);
    std::iota(truth_.begin(), truth_.end(), 1.F);
  }

  // 10 x 9 chunks of 4 x 5.
  Array make(bool compressed) {
    CreateOptions options;
    options.shape = {kRows, kColumns};
    options.dtype = DType::float32;
    options.chunks = Shape{4, 5};
    options.codecs = {codec::bytes()};
    if (compressed) options.codecs->push_back(codec::zstd(1, true));
    options.fill_value.emplace(sizeof kFill);
    std::memcpy(options.fill_value->data(), &kFill, sizeof kFill);
    const Store store(make_faulty_store(make_counting_store(inner_, counts_), faults_));
    Array array = create_array(store, "a", options);
    array.write({}, {truth_.data(), {kRows, kColumns}, {}, DType::float32, Device::cpu()});
    counts_->reset();
    return array;
  }

  static std::vector<float> floats(const Tensor& tensor) {
    const auto* p = static_cast<const float*>(tensor.data());
    return {p, p + tensor.nbytes() / sizeof(float)};
  }

  float at(std::int64_t row, std::int64_t column) const {
    return truth_[static_cast<std::size_t>(row * kColumns + column)];
  }

  static Error error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {ErrorCode::invalid_argument, "nothing"};
  }

  TempFolder folder_;
  std::shared_ptr<StoreDriver> inner_;
  std::shared_ptr<StoreCounts> counts_ = std::make_shared<StoreCounts>();
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::vector<float> truth_;
};

TEST_P(ArrayBatch, ReadsAllOnAnyNumberOfThreads) {
  const ConfigGuard guard;
  for (const bool compressed : {true, false}) {
    const Array a = make(compressed);
    for (const int threads : {1, 2, 5}) {
      set_threads(threads);
      counts_->reset();
      EXPECT_EQ(floats(a.read()), truth_);
      EXPECT_EQ(counts_->gets, 90);
      EXPECT_EQ(counts_->opens, 0);
      const long batch = static_cast<long>(inner_->batch_size());
      EXPECT_EQ(counts_->batches, (90 + batch - 1) / batch);
    }
    a.store().driver().erase_prefix("a/");
  }
}

TEST_P(ArrayBatch, ReadsPartsOfChunks) {
  const Array a = make(true);
  std::vector<float> expected;
  for (std::int64_t row = 38; row >= 1; row -= 3) {
    for (std::int64_t column = 2; column < 44; column += 2) expected.push_back(at(row, column));
  }
  EXPECT_EQ(floats(a.read({slice(38, 0, -3), slice(2, 44, 2)})), expected);
  EXPECT_GT(counts_->batches, 1);

  std::mt19937 random(1);
  IndexArray rows, columns;
  expected.clear();
  for (int i = 0; i < 300; ++i) {
    rows.indices.push_back(static_cast<std::int64_t>(random() % kRows));
    columns.indices.push_back(static_cast<std::int64_t>(random() % kColumns));
    expected.push_back(at(rows.indices.back(), columns.indices.back()));
  }
  rows.shape = columns.shape = {300};
  EXPECT_EQ(floats(a.read(Selection::coordinate({rows, columns}))), expected);
  EXPECT_EQ(counts_->opens, 0);
}

TEST_P(ArrayBatch, AsksForNoMoreThanIsWanted) {
  const Array compressed = make(true);
  EXPECT_EQ(floats(compressed.read({7, 9})), std::vector<float>{at(7, 9)});
  const bool local = inner_->local();
  EXPECT_EQ(counts_->batches, local ? 0 : 1) << "one chunk is no batch where opening costs little";
  EXPECT_EQ(counts_->opens, local ? 1 : 0);
  compressed.store().driver().erase_prefix("a/");

  const Array plain = make(false);
  EXPECT_EQ(plain.read({all, 7}).shape(), Shape{kRows});
  EXPECT_EQ(counts_->batches, 0) << "a fifth of plain chunks is read as ranges";
  EXPECT_LT(counts_->bytes_read, 10 * 4 * 5 * 4);
}

TEST_P(ArrayBatch, FillsChunksThatAreMissing) {
  const Array a = make(true);
  std::vector<float> expected = truth_;
  for (const auto& [i, j] : {std::pair{0, 0}, {3, 8}, {9, 4}, {9, 5}}) {
    a.store().driver().erase("a/c/" + std::to_string(i) + "/" + std::to_string(j));
    for (std::int64_t row = i * 4; row < i * 4 + 4; ++row) {
      for (std::int64_t column = j * 5; column < j * 5 + 5; ++column) {
        expected[static_cast<std::size_t>(row * kColumns + column)] = kFill;
      }
    }
  }
  counts_->reset();
  EXPECT_EQ(floats(a.read()), expected);
  EXPECT_EQ(counts_->opens, 0);
  a.store().driver().erase_prefix("a/c/");
  EXPECT_EQ(floats(a.read()), std::vector<float>(truth_.size(), kFill));
}

TEST_P(ArrayBatch, FailureInTheMiddleOfABatchNamesItsChunk) {
  for (const bool compressed : {true, false}) {
    const Array a = make(compressed);
    for (const long nth : {1L, 5L, 23L, 90L}) {
      faults_->fail_read(nth, EIO);
      const Error error = error_of([&] { a.read(); });
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_EQ(error.os_error(), EIO);
      // "[read] a chunk c/1/2: read a/c/1/2: ...": both name the same one.
      const std::string what = error.what();
      const std::string start = "[read] a chunk ";
      ASSERT_TRUE(what.starts_with(start)) << what;
      const std::string key = what.substr(start.size(), what.find(':') - start.size());
      EXPECT_NE(what.find(": read a/" + key + ": "), std::string::npos) << what;
      EXPECT_EQ(floats(a.read()), truth_) << "after fault " << nth;
    }
    a.store().driver().erase_prefix("a/");
  }
}

TEST_P(ArrayBatch, DamagedAndShortChunksAreNamed) {
  const Array zstd = make(true);
  for (const bool damaged : {true, false}) {
    damaged ? faults_->flip_byte("a/c/4/4", 30) : faults_->shorten("a/c/4/4", 11);
    const Error error = error_of([&] { zstd.read(); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_TRUE(std::string(error.what()).starts_with("[read] a chunk c/4/4: codec zstd: "))
        << error.what();
    faults_->clear();
  }
  zstd.store().driver().erase_prefix("a/");

  const Array plain = make(false);
  faults_->shorten("a/c/9/8", 79);
  const Error error = error_of([&] { plain.read(); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_STREQ(error.what(), "[read] a chunk c/9/8: codec bytes: expected 80 bytes, got 79");
}

TEST_P(ArrayBatch, FolderInThePlaceOfAChunkIsAMissingChunk) {
  if (GetParam().name == "memory") GTEST_SKIP() << "has no folders";
  const Array a = make(true);
  const std::string place = folder_ / "a/c/2/3";
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);
  std::vector<float> expected = truth_;
  for (std::int64_t row = 8; row < 12; ++row) {
    for (std::int64_t column = 15; column < 20; ++column)
      expected[static_cast<std::size_t>(row * kColumns + column)] = kFill;
  }
  EXPECT_EQ(floats(a.read()), expected);
}

TEST_P(ArrayBatch, HoldsToTheMemoryBudget) {
  const ConfigGuard guard;
  const Array a = make(true);
  Config changed = config();
  changed.memory_budget = 2 * 3 * 2 * 80;  // three batches of two chunks of 80 bytes in half of it
  set_config(changed);
  EXPECT_EQ(floats(a.read()), truth_);
  EXPECT_EQ(counts_->batches, 45);
  counts_->reset();
  changed.memory_budget = 1;
  set_config(changed);
  EXPECT_EQ(floats(a.read()), truth_);
  EXPECT_EQ(counts_->batches, 0);
  EXPECT_EQ(counts_->opens, 90);
}

TEST_P(ArrayBatch, StopsWhenCancelledOrWhenPollThrows) {
  const Array a = make(true);
  faults_->delay_reads_ms(5);
  Future<Tensor> future = a.read_async();
  EXPECT_FALSE(future.wait_for(std::chrono::milliseconds(1)));
  EXPECT_TRUE(future.cancel());
  EXPECT_EQ(error_of([&] { future.get(); }).code(), ErrorCode::cancelled);
  EXPECT_LT(counts_->gets, 90) << "the rest was asked for nevertheless";
  ReadOptions options;
  options.poll = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(a.read({}, options), std::runtime_error);
  faults_->clear();
  EXPECT_EQ(floats(a.read()), truth_);
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         ArrayBatch,
                         testing::Values(BatchCase{"memory", {}},
                                         BatchCase{"uring", {{"io", "uring"}}},
                                         BatchCase{"uring_direct",
                                                   {{"io", "uring"}, {"direct", "true"}}}),
                         [](const auto& param) { return param.param.name; });

// The plain file store opens one object after the other, as before.
TEST(ArrayBatchOfOne, FileStoreIsNotAskedForBatches) {
  const TempFolder folder;
  auto counts = std::make_shared<StoreCounts>();
  const Store files = open_store(folder.path(), StoreMode::append);
  const Store store(make_counting_store(files.shared_driver(), counts));
  CreateOptions options;
  options.shape = {64};
  options.dtype = DType::uint8;
  options.chunks = Shape{1};
  const Array a = create_array(store, "a", options);
  std::vector<std::uint8_t> data(64, 7);
  a.write({}, {data.data(), {64}, {}, DType::uint8, Device::cpu()});
  counts->reset();
  a.read();
  EXPECT_EQ(counts->batches, 0);
  EXPECT_EQ(counts->opens, 64);
}

}  // namespace
}  // namespace headrace::test
