// A process that is stopped (SIGSTOP, a debugger, a container that is frozen) with the arena's
// lock: it is alive, so nobody takes the lock from it, and nobody waits for it longer than he said.

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "shm/shm_kit.h"
#include "shm/waiting.h"

namespace headrace::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20;
// More than a call's own timeout, and less than for ever, on a machine with much else to do.
constexpr auto kInTime = 20s;

int points_left = 0;

// Stops this process at a point where it has the lock, once.
void stop_with_the_lock() {
  points_left = 1;
  crash_hook = [] {
    if (points_left-- == 0) raise(SIGSTOP);
  };
}

// A child that is stopped with the lock for as long as this lives.
class StoppedHolder {
 public:
  explicit StoppedHolder(const std::function<void()>& body) {
    pid_ = start_child([&] {
      stop_with_the_lock();
      body();
    });
    int status = 0;
    while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    EXPECT_TRUE(WIFSTOPPED(status)) << "the body takes the lock";
  }
  StoppedHolder(const StoppedHolder&) = delete;
  StoppedHolder& operator=(const StoppedHolder&) = delete;
  ~StoppedHolder() { go_on(); }

  void go_on() {
    if (pid_ == 0) return;
    kill(pid_, SIGCONT);
    expect_success(std::exchange(pid_, 0));
  }
  void end() { kill_child(std::exchange(pid_, 0)); }

 private:
  pid_t pid_ = 0;
};

class ShmStopped : public testing::Test {
 protected:
  void SetUp() override {
    // Inherited by the child, and known here.
    ASSERT_TRUE(put_text(channel_, "before"));
    alarm(120);  // a wait without end is a failure, not a hang
  }
  void TearDown() override {
    alarm(0);
    lock_grace = grace_;
  }

  Arena arena_ = Arena::create(kMiB, {.max_blocks = 64});
  Channel channel_ = arena_.channel(4);
  const std::chrono::nanoseconds grace_ = std::exchange(lock_grace, 50ms);
  std::function<void()> body_ = [this] { arena_.allocate(64, kNow); };
};

TEST_F(ShmStopped, EndsEveryCallInItsTime) {
  StoppedHolder holder(body_);
  const Wait brief{50ms, {}};
  const auto begin = Clock::now();
  EXPECT_FALSE(put_text(channel_, "text", brief));
  EXPECT_FALSE(channel_.get(brief));
  EXPECT_FALSE(arena_.allocate(64, brief));
  const std::span<const std::byte> part = bytes_of("text");
  EXPECT_FALSE(arena_.send({&part, 1}, brief));
  const auto expect_timeout = [](const std::function<void()>& call) {
    try {
      call();
      FAIL() << "it needs the lock";
    } catch (const Error& error) {
      EXPECT_EQ(error.os_error(), ETIMEDOUT) << error.what();
    }
  };
  expect_timeout([&] { arena_.stats(brief); });
  expect_timeout([&] { arena_.channel(2, brief); });
  expect_timeout([&] { arena_.open(channel_.handle(), brief); });
  expect_timeout([&] { arena_.receive(Descriptor{}, brief); });
  EXPECT_EQ(arena_.reclaim(false, brief), 0U);
  EXPECT_LT(Clock::now() - begin, kInTime);
  holder.go_on();
  EXPECT_EQ(get_text(channel_, kSoon), "before");
  EXPECT_TRUE(put_text(channel_, "after", kSoon));
  audit(arena_);
}

TEST_F(ShmStopped, LeavesWaitsToBeInterrupted) {
  const StoppedHolder holder(body_);
  int calls = 0;
  const Wait interrupted{{}, [&] {
                           if (++calls == 2) throw std::runtime_error("stop");
                         }};
  EXPECT_THROW(channel_.get(interrupted), std::runtime_error);
  calls = 0;
  EXPECT_THROW(arena_.stats(interrupted), std::runtime_error);
}

// What destructors could not give back the next user of the arena does.
TEST_F(ShmStopped, IsNotWaitedForByDestructors) {
  std::vector<Block> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(arena_.allocate(1000, kNow).value());
  const Block kept = blocks.front();
  const std::size_t used = arena_.stats().used_nbytes;
  std::optional<Channel> other = arena_.channel(2);
  ASSERT_TRUE(put_text(*other, "in a channel that nobody has any more"));
  StoppedHolder holder([this] { arena_.reclaim(); });
  const auto begin = Clock::now();
  blocks.clear();
  other.reset();
  EXPECT_LT(Clock::now() - begin, kInTime);
  holder.go_on();
  const ArenaStats stats = arena_.stats();
  EXPECT_EQ(stats.blocks, 3U) << "the channel, its message, and the one that is kept";
  EXPECT_EQ(stats.used_nbytes, used - 39 * 1024);
  audit(arena_);
}

// The room comes to others without anything that this process does.
TEST_F(ShmStopped, LeavesRoomForOthersToFind) {
  const Channel ready = arena_.channel(1);
  std::optional<Block> block = arena_.allocate(900 * 1024, kNow);
  StoppedHolder holder(body_);
  const pid_t other = start_child([&] {
    block.reset();
    if (!arena_.allocate(900 * 1024, {20s, {}})) throw std::runtime_error("no room");
  });
  block.reset();
  holder.go_on();
  expect_success(other);
  EXPECT_TRUE(arena_.allocate(900 * 1024, kSoon));
  audit(arena_);
}

TEST_F(ShmStopped, IsNotWaitedForByForks) {
  std::optional<Block> block = arena_.allocate(100 * 1024, kNow);
  std::ranges::fill(block->bytes, std::byte{42});
  StoppedHolder holder(body_);
  const auto begin = Clock::now();
  const pid_t child = start_child([&] {
    // It is a process of the arena as any other, and holds what its parent held.
    const std::string text = get_text(channel_, {30s, {}});
    if (text != "before") throw std::runtime_error("no message");
    if (std::ranges::count(block->bytes, std::byte{42}) != 100 * 1024) {
      throw std::runtime_error("somebody wrote into the block");
    }
  });
  EXPECT_LT(Clock::now() - begin, kInTime);
  block.reset();
  holder.go_on();
  std::optional<Block> large = arena_.allocate(800 * 1024, kSoon);
  ASSERT_TRUE(large);
  std::ranges::fill(large->bytes, std::byte{1});
  expect_success(child);
  large.reset();
  arena_.reclaim();
  EXPECT_EQ(arena_.stats().blocks, 1U);
  audit(arena_);
}

TEST_F(ShmStopped, IsLeftBehindByTheEndOfAnArena) {
  const int fd = arena_.fd();
  StoppedHolder holder(body_);
  const auto begin = Clock::now();
  expect_success(start_child([&] {
    auto own = std::make_shared<ArenaState>(std::make_shared<Segment>(Segment::attach(fd, true)));
    own.reset();
  }));
  EXPECT_LT(Clock::now() - begin, kInTime);
  holder.go_on();
  EXPECT_EQ(arena_.stats().processes, 1U);
}

// Killed while it was stopped: dead as any other.
TEST_F(ShmStopped, IsBuriedWhenItIsKilled) {
  StoppedHolder holder(body_);
  EXPECT_FALSE(channel_.get(kNow));
  holder.end();
  EXPECT_EQ(get_text(channel_, {20s, {}}), "before");
  EXPECT_EQ(arena_.stats().blocks, 1U);
  EXPECT_EQ(arena_.stats().processes, 1U);
  audit(arena_);
}

}  // namespace
}  // namespace headrace::shm
