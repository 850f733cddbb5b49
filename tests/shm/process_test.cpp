#include "shm/process.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "shm/shm_kit.h"
#include "support/joining_thread.h"

namespace headrace::shm {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  std::size_t count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

TEST(ShmProcess, SendsBothWays) {
  const Arena arena = Arena::create(kMiB);
  const Channel there = arena.channel(2);
  const Channel back = arena.channel(2);
  const pid_t child = start_child([&] {
    while (true) {
      const std::string text = get_text(there, kSoon);
      if (text == "end") return;
      put_text(back, text + " seen", kSoon);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    const std::string text = std::to_string(i);
    ASSERT_TRUE(put_text(there, text, kSoon));
    ASSERT_EQ(get_text(back, kSoon), text + " seen");
  }
  put_text(there, "end", kSoon);
  expect_success(child);
  EXPECT_EQ(arena.stats().blocks, 2U);
  audit(arena);
}

TEST(ShmProcess, InheritsBlocksThatItsParentLetsGoOf) {
  const Arena arena = Arena::create(kMiB);
  const Channel go = arena.channel(1);
  std::optional<Block> block = arena.allocate(512 * 1024, kNow);
  std::ranges::fill(block->bytes, std::byte{42});
  const pid_t child = start_child([&] {
    if (get_text(go, kSoon) != "look") throw std::runtime_error("no message");
    if (std::ranges::count(block->bytes, std::byte{42}) != 512 * 1024) {
      throw std::runtime_error("somebody wrote into the block");
    }
    block.reset();
    put_text(go, "free", kSoon);
    pause();
  });
  block.reset();
  EXPECT_FALSE(arena.allocate(600 * 1024, kNow)) << "the child holds it";
  put_text(go, "look", kSoon);
  std::optional<Block> large = arena.allocate(600 * 1024, kSoon);
  ASSERT_TRUE(large);
  std::ranges::fill(large->bytes, std::byte{1});
  kill_child(child);
  audit(arena);
}

TEST(ShmProcess, IsReachedThroughADescriptorOfTheArena) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  // As a child by spawn: nothing of the parent's state, only its file descriptor.
  const pid_t child = start_child([&] {
    auto own =
        std::make_shared<ArenaState>(std::make_shared<Segment>(Segment::attach(arena.fd(), true)));
    Waiting waiting(kSoon);
    const Block ring = own->open_channel(channel.handle(), waiting);
    const std::span<const std::byte> part = bytes_of("attached");
    auto message = own->pack({&part, 1}, waiting);
    if (!own->push(ArenaState::block_index(ring), *message, waiting))
      throw std::runtime_error("full");
  });
  EXPECT_EQ(get_text(channel, kSoon), "attached");
  expect_success(child);
}

TEST(ShmProcess, LeavesNothingBehindWhenItIsKilled) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(4);
  const pid_t child = start_child([&] {
    const Block held = arena.allocate(400 * 1024, kNow).value();
    put_text(channel, "sent before", kNow);
    pause();
  });
  EXPECT_EQ(get_text(channel, kSoon), "sent before");
  kill_child(child);
  EXPECT_TRUE(arena.allocate(kMiB - 64 * 1024, kNow)) << "by itself, when room is short";
  EXPECT_EQ(arena.stats().blocks, 1U);
  EXPECT_EQ(arena.stats().processes, 1U);
  audit(arena);
}

TEST(ShmProcess, DeliversWhatADeadSenderSent) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(4);
  expect_success(start_child([&] {
    const Descriptor descriptor = send_text(arena, "by a pipe");
    put_text(channel, text_of(descriptor));
    put_text(channel, "by a channel");
  }));
  EXPECT_EQ(arena.reclaim(), 0U);
  EXPECT_EQ(arena.stats().orphans, 1U);
  Descriptor descriptor{};
  const std::string text = get_text(channel);
  std::ranges::copy(bytes_of(text), descriptor.begin());
  EXPECT_EQ(get_text(channel), "by a channel");
  EXPECT_EQ(text_of(arena.receive(descriptor).at(0).bytes), "by a pipe");
  EXPECT_EQ(arena.stats().blocks, 1U);
}

TEST(ShmProcess, FreesOrphansWhenItIsTold) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  expect_success(start_child([&] { put_text(channel, text_of(send_text(arena, "lost"))); }));
  Descriptor descriptor{};
  const std::string text = get_text(channel);
  std::ranges::copy(bytes_of(text), descriptor.begin());
  EXPECT_GT(arena.reclaim(true), 0U);
  EXPECT_EQ(code_of([&] { arena.receive(descriptor); }), ErrorCode::not_found);
  EXPECT_EQ(arena.stats().blocks, 1U);
}

TEST(ShmProcess, TellsThatAllOthersAreGone) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  expect_success(start_child([&] { put_text(channel, "last words"); }));
  EXPECT_EQ(get_text(channel, kSoon), "last words");
  try {
    channel.get();  // for ever, but for the death of all who could send
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.os_error(), EPIPE);
  }
  ASSERT_TRUE(put_text(channel, "full"));
  EXPECT_EQ(code_of([&] { put_text(channel, "more", {}); }), ErrorCode::io);
}

// One that starts slowly is not gone.
TEST(ShmProcess, WaitsForWhoTheChannelWasHandedTo) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  expect_success(start_child([&] { put_text(channel, "first"); }));
  EXPECT_EQ(get_text(channel, kSoon), "first");
  const ChannelHandle handle = channel.handle();
  EXPECT_FALSE(channel.get({.timeout = std::chrono::milliseconds(1500)}));
  expect_success(start_child([&] { put_text(arena.open(handle), "late"); }));
  EXPECT_EQ(get_text(channel, kSoon), "late");
  EXPECT_EQ(code_of([&] { channel.get(); }), ErrorCode::io) << "nobody is awaited any more";
}

TEST(ShmProcess, WorksWith64AtOnceAnd256InTurn) {
  const Arena arena = Arena::create(4 * kMiB);
  const Channel channel = arena.channel(8);
  const auto run = [&](int count) {
    std::vector<pid_t> children;
    for (int i = 0; i < count; ++i) {
      children.push_back(start_child([&, i] {
        for (int n = 0; n < 5; ++n) put_text(channel, std::to_string(i * 5 + n), {});
      }));
    }
    std::vector<int> got;
    for (int i = 0; i < count * 5; ++i) got.push_back(std::stoi(get_text(channel, {30s, {}})));
    for (const pid_t child : children) expect_success(child);
    std::ranges::sort(got);
    for (int i = 0; i < count * 5; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i);
  };
  for (int round = 0; round < 6; ++round) run(64);
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_EQ(arena.stats().blocks, 1U);
  audit(arena);
}

TEST(ShmProcess, AsksAboutProcessesThatEndMeanwhile) {
  std::atomic<pid_t> newest = getpid();
  std::atomic<bool> all = false;
  JoiningThread parent([&] {
    for (int i = 0; i < 2000; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      newest = child;
      wait_for(child);
    }
    all = true;
  });
  std::size_t asked = 0;
  // A number alone names a process of which no start is known.
  for (; !all; ++asked) is_alive(static_cast<ProcessIdentity>(newest.load()));
  parent.join();
  EXPECT_GT(asked, 0U);
  EXPECT_FALSE(is_alive(static_cast<ProcessIdentity>(newest.load())));
}

TEST(ShmProcess, TakesOneDescriptorAnArena) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::size_t descriptors = open_descriptors();
  {
    const Arena arena = Arena::create(4 * kMiB);
    EXPECT_EQ(open_descriptors(), descriptors + 1);
    std::vector<Channel> channels;
    for (int i = 0; i < 300; ++i) channels.push_back(arena.channel(2));
    std::vector<Message> messages;
    for (const Channel& channel : channels) {
      ASSERT_TRUE(put_text(channel, "a message"));
      messages.push_back(channel.get(kNow).value());
    }
    EXPECT_EQ(open_descriptors(), descriptors + 1);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace headrace::shm
