#include <fcntl.h>

#include <algorithm>
#include <random>
#include <thread>

#include "shm/shm_kit.h"
#include "support/joining_thread.h"
#include "support/portable.h"

namespace headrace::shm {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(ShmArena, GivesAlignedMemoryThatIsFreedWithItsOwner) {
  const Arena arena = Arena::create(kMiB);
  {
    const Block block = arena.allocate(1000, kNow).value();
    EXPECT_EQ(block.bytes.size(), 1000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes.data()) % 64, 0U);
    std::ranges::fill(block.bytes, std::byte{7});
    EXPECT_EQ(arena.stats().used_nbytes, 1024U);
    EXPECT_EQ(arena.stats().blocks, 1U);
  }
  EXPECT_EQ(arena.stats().used_nbytes, 0U);
  audit(arena);
}

TEST(ShmArena, HasRoomForAllItWasMadeFor) {
  const Arena arena = Arena::create(kMiB);
  EXPECT_GE(arena.stats().nbytes, kMiB);
  EXPECT_TRUE(arena.allocate(kMiB, kNow));
  EXPECT_TRUE(arena.allocate(kMiB, kNow));  // the first is free again
  EXPECT_TRUE(arena.allocate(0, kNow));
}

TEST(ShmArena, WaitsForRoomAndSaysWhenThereNeverIs) {
  const Arena arena = Arena::create(kMiB);
  std::optional<Block> first = arena.allocate(900 * 1024, kNow);
  EXPECT_FALSE(arena.allocate(900 * 1024, kNow));
  EXPECT_FALSE(arena.allocate(900 * 1024, {30ms, {}}));
  JoiningThread later([&] {
    std::this_thread::sleep_for(50ms);
    first.reset();
  });
  EXPECT_TRUE(arena.allocate(900 * 1024, kSoon));
  EXPECT_EQ(code_of([&] { arena.allocate(64 * kMiB); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { arena.allocate(SIZE_MAX); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { Arena::create(0); }), ErrorCode::invalid_argument);
}

TEST(ShmArena, EndsAWaitThatIsInterrupted) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  const Wait interrupted{{}, [] { throw std::runtime_error("stop"); }};
  EXPECT_THROW(channel.get(interrupted), std::runtime_error);
  ASSERT_TRUE(put_text(channel, "full"));
  EXPECT_THROW(put_text(channel, "more", interrupted), std::runtime_error);
  EXPECT_EQ(arena.stats().blocks, 2U);
  audit(arena);
}

TEST(ShmArena, StaysWholeUnderRandomUse) {
  const Arena arena = Arena::create(kMiB, {.max_blocks = 40});
  std::mt19937 random(1);
  std::vector<Block> held;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !held.empty()) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    } else if (auto block = arena.allocate(random() % (kMiB / 16), kNow)) {
      std::ranges::fill(block->bytes, static_cast<std::byte>(held.size()));
      held.push_back(std::move(*block));
    }
    if (i % 500 == 0) audit(arena);
  }
  held.clear();
  EXPECT_EQ(arena.stats().used_nbytes, 0U);
  audit(arena);
}

TEST(ShmArena, FindsRoomInEveryGap) {
  const Arena arena = Arena::create(64 * 64);
  std::vector<std::optional<Block>> blocks;
  while (auto block = arena.allocate(64, kNow)) blocks.push_back(std::move(block));
  ASSERT_GE(blocks.size(), 64U);
  for (const std::size_t i : {3U, 40U, 10U, 11U}) blocks[i].reset();
  blocks[3] = arena.allocate(64, kNow);
  EXPECT_TRUE(blocks[3]);
  std::optional<Block> pair = arena.allocate(128, kNow);
  EXPECT_TRUE(pair);
  EXPECT_FALSE(arena.allocate(128, kNow));
  EXPECT_TRUE(arena.allocate(64, kNow));
  audit(arena);
}

TEST(ShmArena, IsOneInAProcessHoweverOftenItIsAttached) {
  const Arena arena = Arena::create(kMiB);
  const Arena same = Arena::attach(arena.fd());
  EXPECT_EQ(same.fd(), arena.fd());
  EXPECT_EQ(same.memory().data(), arena.memory().data());
  EXPECT_EQ(same.id(), arena.id());
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_NE(Arena::create(kMiB).id(), arena.id());
}

TEST(ShmArena, RefusesWhatIsNoArena) {
  EXPECT_EQ(code_of([] { Arena::attach(-1); }), ErrorCode::io);
  const int null = open("/dev/null", O_RDWR);
  EXPECT_EQ(code_of([&] { Arena::attach(null); }), ErrorCode::invalid_argument);
  close(null);
  Segment other = Segment::create(1 << 16, {});
  EXPECT_EQ(code_of([&] { Arena::attach(other.fd()); }), ErrorCode::invalid_argument);
  Ledger::format(other.memory(), 16, false, Backing::memfd);
  EXPECT_TRUE(Arena::attach(other.fd()).allocate(1, kNow));
  auto& header = *reinterpret_cast<Header*>(other.memory().data());
  for (const std::uint32_t capacity : {0U, 1700U, 1U << 30, kNone}) {
    header.capacity = capacity;
    EXPECT_EQ(code_of([&] { Arena::attach(other.fd()); }), ErrorCode::invalid_argument) << capacity;
  }
}

TEST(ShmArena, WorksOnPosixSharedMemory) {
  const Arena arena = Arena::create(kMiB, {.backing = Backing::posix});
  EXPECT_EQ(arena.stats().backing, Backing::posix);
  const Channel channel = arena.channel(2);
  expect_success(start_child([&] { put_text(channel, "from the child"); }));
  EXPECT_EQ(get_text(channel, kSoon), "from the child");
}

TEST(ShmArena, SaysThatThereAreNoHugePages) {
  try {
    const Arena arena = Arena::create(kMiB, {.huge_pages = HugePages::always});
    EXPECT_TRUE(arena.stats().huge_pages);
  } catch (const Error& error) {
    const auto code = is_portable() ? ErrorCode::unsupported : ErrorCode::out_of_memory;
    EXPECT_EQ(error.code(), code) << error.what();
  }
  EXPECT_FALSE(Arena::create(kMiB, {.huge_pages = HugePages::never}).stats().huge_pages);
}

TEST(ShmMessage, CopiesPartsOrNamesWhereTheyLie) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(4);
  const Block block = arena.allocate(100, kNow).value();
  std::ranges::copy(bytes_of("in place"), block.bytes.begin());
  const std::vector<std::span<const std::byte>> parts{
      bytes_of("copied"), block.bytes.first(8), {}, bytes_of("more"), block.bytes.subspan(3, 5)};
  ASSERT_TRUE(channel.put(parts, kNow));
  const Message message = channel.get(kNow).value();
  ASSERT_EQ(message.size(), 5U);
  EXPECT_EQ(text_of(message[0].bytes), "copied");
  EXPECT_EQ(message[1].bytes.data(), block.bytes.data());
  EXPECT_EQ(text_of(message[1].bytes), "in place");
  EXPECT_TRUE(message[2].bytes.empty());
  EXPECT_EQ(text_of(message[3].bytes), "more");
  EXPECT_EQ(text_of(message[4].bytes), "place");
  for (const int i : {0, 3}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(message[i].bytes.data()) % 64, 0U);
  }
  audit(arena);
}

TEST(ShmMessage, KeepsWhatItNamesWhileItIsUnderWay) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(4);
  {
    const Block block = arena.allocate(6, kNow).value();
    std::ranges::copy(bytes_of("linked"), block.bytes.begin());
    const std::span<const std::byte> part = block.bytes;
    ASSERT_TRUE(channel.put({&part, 1}, kNow));
    ASSERT_TRUE(channel.put({&part, 1}, kNow));
  }
  EXPECT_EQ(arena.stats().blocks, 4U);
  audit(arena);
  EXPECT_EQ(get_text(channel), "linked");
  EXPECT_EQ(arena.stats().blocks, 3U);
  EXPECT_EQ(get_text(channel), "linked");
  EXPECT_EQ(arena.stats().blocks, 1U);
  audit(arena);
}

TEST(ShmMessage, IsFreedWithItsLastPart) {
  const Arena arena = Arena::create(kMiB);
  const std::vector<std::span<const std::byte>> parts{bytes_of("a"), bytes_of("b")};
  Message message = arena.receive(arena.send(parts, kNow).value());
  message.erase(message.begin());
  EXPECT_EQ(text_of(message[0].bytes), "b");
  EXPECT_EQ(arena.stats().blocks, 1U);
  message.clear();
  EXPECT_EQ(arena.stats().blocks, 0U);
  EXPECT_TRUE(arena.receive(arena.send({}, kNow).value()).empty());
  EXPECT_EQ(arena.stats().blocks, 0U);
}

TEST(ShmMessage, RefusesPartsInMemoryThatIsNotHeld) {
  const Arena arena = Arena::create(kMiB);
  const Block first = arena.allocate(64, kNow).value();
  const Block second = arena.allocate(64, kNow).value();
  const std::span<const std::byte> across{first.bytes.data(), 128};
  EXPECT_EQ(code_of([&] { arena.send({&across, 1}, kNow); }), ErrorCode::invalid_argument);
  const std::span<const std::byte> beyond{second.bytes.data() + 4096, 8};
  EXPECT_EQ(code_of([&] { arena.send({&beyond, 1}, kNow); }), ErrorCode::invalid_argument);
  EXPECT_EQ(arena.stats().blocks, 2U);
}

TEST(ShmDescriptor, IsReceivedOnce) {
  const Arena arena = Arena::create(kMiB);
  const Descriptor descriptor = send_text(arena, "once");
  EXPECT_EQ(arena.stats().in_transit, 1U);
  EXPECT_EQ(text_of(arena.receive(descriptor).at(0).bytes), "once");
  EXPECT_EQ(code_of([&] { arena.receive(descriptor); }), ErrorCode::not_found);
  const Descriptor other = send_text(arena, "in the same block");
  EXPECT_EQ(code_of([&] { arena.receive(descriptor); }), ErrorCode::not_found);
  EXPECT_EQ(text_of(arena.receive(other).at(0).bytes), "in the same block");
}

TEST(ShmDescriptor, IsRefusedWhenItIsForged) {
  const Arena arena = Arena::create(kMiB);
  const Arena foreign = Arena::create(kMiB);
  const Channel channel = arena.channel(1);
  const Block block = arena.allocate(64, kNow).value();
  const Descriptor genuine = send_text(arena, "genuine");
  EXPECT_EQ(code_of([&] { foreign.receive(genuine); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { arena.receive(Descriptor{}); }), ErrorCode::invalid_argument);
  auto ticket = std::bit_cast<Ticket>(genuine);
  const std::uint32_t message = ticket.block;
  for (const std::uint32_t forged : {0U, 1U, 3U, 999U, 1024U, kNone}) {
    if (forged == message) continue;
    for (const std::uint32_t generation : {0U, 1U, 2U}) {
      ticket.block = forged;
      ticket.generation = generation;
      EXPECT_EQ(code_of([&] { arena.receive(std::bit_cast<Descriptor>(ticket)); }),
                ErrorCode::not_found);
    }
  }
  EXPECT_EQ(text_of(arena.receive(genuine).at(0).bytes), "genuine");
  audit(arena);
}

TEST(ShmChannel, IsFirstInFirstOutAndBounded) {
  const Arena arena = Arena::create(kMiB);
  const Channel channel = arena.channel(3);
  EXPECT_EQ(channel.capacity(), 3U);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(get_text(channel), "");
    for (const char* text : {"one", "two", "three"}) EXPECT_TRUE(put_text(channel, text));
    EXPECT_EQ(channel.size(), 3U);
    EXPECT_FALSE(put_text(channel, "four"));
    EXPECT_FALSE(put_text(channel, "four", {20ms, {}}));
    for (const char* text : {"one", "two", "three"}) EXPECT_EQ(get_text(channel), text);
  }
  EXPECT_EQ(code_of([&] { arena.channel(0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { arena.channel(SIZE_MAX); }), ErrorCode::invalid_argument);
}

TEST(ShmChannel, TakesItsMessagesAlong) {
  const Arena arena = Arena::create(kMiB);
  std::optional<Channel> channel = arena.channel(3);
  const ChannelHandle handle = channel->handle();
  std::optional<Block> block = arena.allocate(64, kNow);
  const std::vector<std::span<const std::byte>> parts{bytes_of("a"), block->bytes};
  ASSERT_TRUE(channel->put(parts, kNow));
  block.reset();
  EXPECT_EQ(arena.stats().blocks, 3U);
  std::optional<Channel> second = arena.open(handle);
  channel.reset();
  EXPECT_EQ(second->size(), 1U);
  second.reset();
  EXPECT_EQ(arena.stats().blocks, 0U);
  EXPECT_EQ(code_of([&] { arena.open(handle); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { arena.open({12345, 1}); }), ErrorCode::not_found);
  audit(arena);
}

// Threads that share a place take turns by a mutex; those of several places, as processes have
// them, by the lock in the memory. Both here, for ThreadSanitizer.
TEST(ShmChannel, LosesNothingBetweenManyThreads) {
  auto first = ArenaState::create(kMiB, {});
  std::vector<std::shared_ptr<ArenaState>> states{first};
  for (int i = 0; i < 3; ++i) states.push_back(std::make_shared<ArenaState>(first->segment()));
  Waiting for_ever({});
  const Block ring = first->make_channel(4, for_ever);
  const std::uint32_t index = ArenaState::block_index(ring);
  constexpr int kMessages = 500;
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> received{0};
  {
    std::vector<JoiningThread> threads;
    for (int t = 0; t < 4; ++t) {
      ArenaState& state = *states[static_cast<std::size_t>(t)];
      threads.emplace_back([&state, index, t] {
        for (int i = 0; i < kMessages; ++i) {
          const std::int64_t value = t * kMessages + i;
          const std::span<const std::byte> part = std::as_bytes(std::span(&value, 1));
          Waiting waiting({});
          auto message = state.pack({&part, 1}, waiting);
          while (!state.push(index, *message, waiting)) std::this_thread::yield();
        }
      });
      threads.emplace_back([&, index] {
        Waiting waiting({});
        while (received < 4 * kMessages) {
          const std::optional<Message> message = state.pop(index, waiting);
          if (!message) {
            std::this_thread::yield();
            continue;
          }
          std::int64_t value = 0;
          std::memcpy(&value, message->at(0).bytes.data(), sizeof value);
          sum += value;
          ++received;
        }
      });
    }
  }
  constexpr std::int64_t kAll = 4 * kMessages;
  EXPECT_EQ(received, kAll);
  EXPECT_EQ(sum, kAll * (kAll - 1) / 2);
  EXPECT_EQ(first->stats(for_ever).blocks, 1U);
  audit(first->ledger());
}

TEST(ShmPublication, IsAttachedToByNameUntilItIsClosed) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = "test-" + std::to_string(getpid());
  const std::vector<std::span<const std::byte>> parts{bytes_of("head"), {}, bytes_of("body")};
  EXPECT_EQ(code_of([&] { attach(name, kNow); }), ErrorCode::not_found);
  Publication publication = publish(name, parts);
  EXPECT_EQ(publication.name(), name);
  EXPECT_EQ(code_of([&] { publish(name, parts); }), ErrorCode::invalid_argument);
  const Message message = attach(name, kNow);
  expect_success(start_child([&] {
    const Message own = attach(name, kSoon);
    if (text_of(own.at(2).bytes) != "body") throw std::runtime_error("other bytes");
  }));
  publication.close();
  EXPECT_EQ(code_of([&] { attach(name, kNow); }), ErrorCode::not_found);
  ASSERT_EQ(message.size(), 3U);
  EXPECT_EQ(text_of(message[0].bytes), "head");
  EXPECT_TRUE(message[1].bytes.empty());
  EXPECT_EQ(text_of(message[2].bytes), "body");
  EXPECT_TRUE(attach(publish(name, {}).name(), kNow).empty());
  EXPECT_EQ(code_of([&] { publish("", parts); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { publish(std::string(65, 'x'), parts); }), ErrorCode::invalid_argument);
}

TEST(ShmPublication, EndsWithItsProcessThoughAChildOfItLives) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = "orphan-" + std::to_string(getpid());
  const Arena arena = Arena::create(kMiB);
  const Channel to_grandchild = arena.channel(1);
  const Channel from_grandchild = arena.channel(1);
  const pid_t publisher = start_child([&] {
    const std::span<const std::byte> part = bytes_of("x");
    const Publication publication = publish(name, {&part, 1});
    start_child([&] {
      put_text(from_grandchild, "ready", kSoon);
      get_text(to_grandchild, kSoon);
    });
    pause();
  });
  EXPECT_EQ(get_text(from_grandchild, kSoon), "ready");
  EXPECT_EQ(attach(name, kSoon).size(), 1U);
  kill_child(publisher);
  EXPECT_EQ(code_of([&] { attach(name, kNow); }), ErrorCode::not_found);
  put_text(to_grandchild, "end", kSoon);
}

}  // namespace
}  // namespace headrace::shm
