#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/inject.h"
#include "conformance/temp_folder.h"
#include "engine/node/lock.h"
#include "headrace/headrace.h"

namespace headrace::test {
namespace {

CreateOptions numbers(Shape shape, Shape chunks) {
  CreateOptions options;
  options.shape = std::move(shape);
  options.chunks = std::move(chunks);
  options.dtype = DType::int32;
  return options;
}

TensorView view_of(std::vector<std::int32_t>& values) {
  TensorView view;
  view.data = values.data();
  view.dtype = DType::int32;
  view.shape = {static_cast<std::int64_t>(values.size())};
  return view;
}

std::vector<std::int32_t> values_of(const Array& array) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(array.shape().at(0)));
  array.read_into({}, view_of(values));
  return values;
}

// Waits for the child, which says by its status whether it got the lock at once.
bool child_locks(const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    ::_exit(fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(NodeLock, HoldsOffOtherProcessesUntilItIsReleased) {
  const TempFolder folder;
  const Store store = open_store(folder.path(), StoreMode::append);
  {
    const NodeLock lock(store, "a/b", {}, MissingFolder::make);
    EXPECT_TRUE(lock.excludes_processes());
    EXPECT_FALSE(child_locks(folder / "a/b"));
    EXPECT_TRUE(child_locks(folder / "a"));
  }
  EXPECT_TRUE(child_locks(folder / "a/b"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a/b"));
}

TEST(NodeLock, EndsWithItsHolderThoughAChildOfForkLives) {
  const TempFolder folder;
  const Store store = open_store(folder.path(), StoreMode::append);
  int grandchild_lives[2], done[2];
  ASSERT_EQ(::pipe(grandchild_lives), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const NodeLock lock(store, "", {});
    if (::fork() == 0) {
      ::close(done[1]);
      char byte = 0;
      static_cast<void>(::write(grandchild_lives[1], "x", 1));
      static_cast<void>(::read(done[0], &byte, 1));  // until the test is over
      ::_exit(0);
    }
    char byte = 0;
    static_cast<void>(::read(grandchild_lives[0], &byte, 1));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(child_locks(folder.path()));
  for (const int fd : {grandchild_lives[0], grandchild_lives[1], done[0], done[1]}) ::close(fd);
}

TEST(NodeLock, AWaitForAnotherProcessEndsWhenPollThrows) {
  const TempFolder folder;
  const Store store = open_store(folder.path(), StoreMode::append);
  const int fd = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THROW(NodeLock(store, "", [] { throw std::runtime_error("stop"); }), std::runtime_error);
  ::close(fd);
  const NodeLock lock(store, "", {});
  EXPECT_TRUE(lock.excludes_processes());
}

TEST(NodeLock, GoesToTheFolderThatIsThereWhenOneWasReplaced) {
  const TempFolder folder;
  const Store store = open_store(folder.path(), StoreMode::append);
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "new");
  const int fd = ::open((folder / "a").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  std::atomic<bool> is_waiting = false;
  std::thread waits([&] {
    const NodeLock lock(store, "a", [&] { is_waiting = true; });
    EXPECT_FALSE(child_locks(folder / "a"));
  });
  while (!is_waiting) std::this_thread::yield();
  // In one step, as a node without a folder is not locked. The old one stays locked.
  std::filesystem::rename(folder / "new", folder / "a");
  waits.join();
  ::close(fd);
}

TEST(NodeLock, IsOfOneProcessWhereTheStoreHasNone) {
  const auto hook = std::make_shared<StoreHook>();
  const Store store(make_unlocked_store(memory_store().shared_driver(), hook));
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const NodeLock lock(store, "a", {});
        EXPECT_FALSE(lock.excludes_processes());
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

class WithoutLocks : public ::testing::TestWithParam<int> {
 protected:
  WithoutLocks() {
    CreateOptions options = numbers({3}, {4});
    options.zarr_format = GetParam();
    array_.emplace(create_array(store_, "a", options));
    array_->write({}, view_of(rows_));
  }

  std::string document_key() const { return GetParam() == 3 ? "a/zarr.json" : "a/.zarray"; }

  // What another process does, which has no share in the locks of this one.
  void grow_elsewhere(char extent) {
    Buffer bytes;
    ASSERT_TRUE(behind_.driver().get(document_key(), bytes));
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t shape = text.find("\"shape\"");
    text[text.find_first_of("0123456789", shape)] = extent;
    behind_.set(document_key(), std::as_bytes(std::span(text)));
  }

  const Store behind_ = memory_store();
  const std::shared_ptr<StoreHook> hook_ = std::make_shared<StoreHook>();
  const Store store_{make_unlocked_store(behind_.shared_driver(), hook_)};
  std::optional<Array> array_;
  std::vector<std::int32_t> rows_{1, 2, 3};
};

TEST_P(WithoutLocks, AChangeByOthersThatIsSeenIsAConflict) {
  std::vector<std::int32_t> more{7, 8};
  // The document is read first, looked at again before it is replaced, and once more afterwards.
  for (const int when : {1, 2, 3}) {
    const Array fresh = create_array(store_, "a", [&] {
      CreateOptions options = numbers({3}, {4});
      options.zarr_format = GetParam();
      options.overwrite = true;
      return options;
    }());
    int looks = 0;
    *hook_ = [&](std::string_view what, std::string_view key) {
      if (what == "get" && key == document_key() && ++looks == when) grow_elsewhere('4');
    };
    if (when == 1) {
      EXPECT_EQ(fresh.append(view_of(more)), Shape{6}) << "what was before the call is taken up";
    } else {
      EXPECT_EQ(code_of([&] { fresh.append(view_of(more)); }), ErrorCode::conflict) << when;
      EXPECT_EQ(open_array(store_, "a").shape(), Shape{4}) << when;
    }
    *hook_ = nullptr;
  }
}

TEST_P(WithoutLocks, AttributesOfOthersStay) {
  open_array(behind_, "a").set_attributes_json(R"({"x": 1, "y": 2})");
  AttributeChanges changes;
  changes.set = R"({"z": 3, "x": 4})";
  changes.remove = {"y", "w"};
  array_->update_attributes(changes);
  EXPECT_EQ(array_->attributes_json(), R"({"x":4,"z":3})");
  EXPECT_EQ(open_array(behind_, "a").attributes_json(), R"({"x":4,"z":3})");
}

TEST_P(WithoutLocks, AWriteThatFailsPutsTheShapeBack) {
  std::vector<std::int32_t> more{7, 8};
  *hook_ = [](std::string_view what, std::string_view key) {
    if (what == "set" && (key == "a/c/1" || key == "a/1")) throw Error(ErrorCode::io, "no");
  };
  EXPECT_EQ(code_of([&] { array_->append(view_of(more)); }), ErrorCode::io);
  *hook_ = nullptr;
  EXPECT_EQ(array_->shape(), Shape{3});
  EXPECT_EQ(values_of(open_array(store_, "a")), (std::vector<std::int32_t>{1, 2, 3}));
  array_->resize({6});
  EXPECT_EQ(values_of(*array_), (std::vector<std::int32_t>{1, 2, 3, 0, 0, 0}));
}

TEST_P(WithoutLocks, AWriteThatFailsLeavesTheShapeThatOthersHaveGrown) {
  std::vector<std::int32_t> more{7, 8};
  *hook_ = [&](std::string_view what, std::string_view key) {
    if (what != "set" || (key != "a/c/1" && key != "a/1")) return;
    grow_elsewhere('6');
    throw Error(ErrorCode::io, "no");
  };
  EXPECT_EQ(code_of([&] { array_->append(view_of(more)); }), ErrorCode::io);
  *hook_ = nullptr;
  EXPECT_EQ(open_array(store_, "a").shape(), Shape{6});
}

INSTANTIATE_TEST_SUITE_P(Formats, WithoutLocks, ::testing::Values(2, 3));

}  // namespace
}  // namespace headrace::test
