#include <gtest/gtest.h>

#include <cerrno>

#include "conformance/inject.h"
#include "headrace/error.h"
#include "headrace/store.h"

namespace headrace::test {
namespace {

template <typename F>
int os_error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::io ? error.os_error() : -1;
  }
  return 0;
}

class InjectTest : public testing::Test {
 protected:
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::shared_ptr<StoreCounts> counts_ = std::make_shared<StoreCounts>();
  std::shared_ptr<StoreDriver> store_ =
      make_faulty_store(make_counting_store(memory_store().shared_driver(), counts_), faults_);
  Buffer buffer_;
};

TEST_F(InjectTest, NthReadFailsOnce) {
  store_->set("k", bytes_of("0123456789"));
  faults_->fail_read(2, EIO);
  EXPECT_TRUE(store_->get("k", buffer_));
  auto reader = store_->open("k");
  EXPECT_EQ(os_error_of([&] { reader->read(0, buffer_.bytes()); }), EIO);
  EXPECT_EQ(os_error_of([&] { reader->read(0, buffer_.bytes()); }), 0);
}

TEST_F(InjectTest, FullDiskKeepsTheOldObject) {
  faults_->limit_space(12);
  store_->set("k", bytes_of("0123456789"));
  EXPECT_EQ(os_error_of([&] { store_->set("k", bytes_of("abc")); }), ENOSPC);
  store_->set("l", bytes_of("ab"));
  ASSERT_TRUE(store_->get("k", buffer_));
  EXPECT_EQ(text_of(buffer_), "0123456789");
  faults_->clear();
  store_->set("k", bytes_of("abc"));
  EXPECT_EQ(counts_->bytes_written, 15);
}

TEST_F(InjectTest, ShortAndDamagedObjects) {
  store_->set("k", bytes_of("0123456789"));
  faults_->shorten("k", 4);
  faults_->flip_byte("k", 1);
  ASSERT_TRUE(store_->get("k", buffer_));
  EXPECT_EQ(text_of(buffer_),
            "0\xce"
            "23");
  auto reader = store_->open("k");
  EXPECT_EQ(reader->size(), 4u);
  EXPECT_TRUE(reader->mapped().empty()) << "mapped bytes would be free of faults";
  Buffer part(2);
  reader->read(1, part.bytes());
  EXPECT_EQ(text_of(part),
            "\xce"
            "2");
  EXPECT_EQ(os_error_of([&] { reader->read(3, part.bytes()); }), -1);
}

TEST_F(InjectTest, CountsWhatPasses) {
  store_->set("k", bytes_of("0123456789"));
  counts_->reset();
  store_->get("k", buffer_);
  store_->get("none", buffer_);
  auto reader = store_->open("k");
  reader->read(2, buffer_.bytes().first(3));
  store_->list("");
  EXPECT_EQ(counts_->gets, 2);
  EXPECT_EQ(counts_->opens, 1);
  EXPECT_EQ(counts_->range_reads, 1);
  EXPECT_EQ(counts_->bytes_read, 13);
  EXPECT_EQ(counts_->lists, 1);
  EXPECT_EQ(counts_->sets, 0);
  EXPECT_EQ(counts_->most_at_once, 1);
}

}  // namespace
}  // namespace headrace::test
