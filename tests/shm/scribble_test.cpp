// Stray writes into the memory that all processes of an arena share: what one of them wrote over is
// `corrupt` to the others, or goes unnoticed; it never leads out of the memory or into a wait
// without end.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "shm/shm_kit.h"

namespace headrace::shm {
namespace {

constexpr std::size_t kArena = std::size_t{64} << 10;
constexpr std::uint32_t kBlocks = 24;

template <typename T>
void write_at(std::span<std::byte> memory, std::size_t offset, T value) {
  ASSERT_LE(offset + sizeof value, memory.size());
  std::memcpy(memory.data() + offset, &value, sizeof value);
}

class ShmScribble : public testing::Test {
 protected:
  void SetUp() override { alarm(300); }
  void TearDown() override { alarm(0); }

  std::size_t offset_of(const Block& block) const {
    return static_cast<std::size_t>(block.bytes.data() - arena_.memory().data());
  }
  // Where the record of the message's only linked part is.
  std::size_t linked_message() {
    const std::span<const std::byte> part = linked_.bytes;
    EXPECT_TRUE(channel_.put({&part, 1}, kNow));
    const Ledger ledger(arena_.memory());
    const Ring& ring = ledger.ring(channel_.handle().block);
    const Ticket ticket = ring.places.data()[(ring.tail - 1) % ring.capacity];
    return static_cast<std::size_t>(ledger.bytes(ticket.block).data() - arena_.memory().data());
  }

  Arena arena_ = Arena::create(kArena, {.max_blocks = kBlocks});
  Channel channel_ = arena_.channel(4);
  Block linked_ = arena_.allocate(100, kNow).value();
};

// A part's block, generation, offset or size, one at a time.
TEST_F(ShmScribble, OverAPartIsCorruptAndGoneWithThat) {
  const std::size_t size = arena_.memory().size();
  const auto check = [&](const std::function<void(std::size_t)>& scribble) {
    const std::size_t message = linked_message();
    ASSERT_TRUE(put_text(channel_, "behind it"));
    scribble(message + sizeof(MessageRecord));
    EXPECT_EQ(code_of([&] { channel_.get(kNow); }), ErrorCode::corrupt);
    EXPECT_EQ(get_text(channel_), "behind it");
    EXPECT_EQ(arena_.stats().blocks, 2U);
    audit(arena_);
  };
  for (const std::uint32_t block : {kBlocks, kBlocks - 1, kNone, 0x7fffffffU}) {
    check([&](std::size_t part) {
      write_at(arena_.memory(), part + offsetof(PartRecord, block), block);
    });
  }
  check([&](std::size_t part) {
    write_at(arena_.memory(), part + offsetof(PartRecord, generation), 12345U);
  });
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{size}, UINT64_MAX, UINT64_MAX - 64}) {
    check([&](std::size_t part) {
      write_at(arena_.memory(), part + offsetof(PartRecord, offset), offset);
    });
  }
  for (const std::uint64_t nbytes : {std::uint64_t{size}, std::uint64_t{129}, UINT64_MAX}) {
    check([&](std::size_t part) {
      write_at(arena_.memory(), part + offsetof(PartRecord, nbytes), nbytes);
    });
  }
  for (const std::uint64_t parts : {std::uint64_t{3}, std::uint64_t{size}, UINT64_MAX}) {
    check(
        [&](std::size_t part) { write_at(arena_.memory(), part - sizeof(MessageRecord), parts); });
  }
}

TEST_F(ShmScribble, OverASentMessageIsCorruptOnce) {
  const std::span<const std::byte> part = linked_.bytes;
  const Descriptor descriptor = arena_.send({&part, 1}, kNow).value();
  const auto ticket = std::bit_cast<Ticket>(descriptor);
  const Ledger ledger(arena_.memory());
  const auto message =
      static_cast<std::size_t>(ledger.bytes(ticket.block).data() - arena_.memory().data());
  write_at(arena_.memory(), message + sizeof(MessageRecord) + offsetof(PartRecord, block), kNone);
  EXPECT_EQ(code_of([&] { arena_.receive(descriptor); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { arena_.receive(descriptor); }), ErrorCode::not_found);
  EXPECT_EQ(arena_.stats().blocks, 2U);
  audit(arena_);
}

// rebuild() meets the same: the next one that takes the lock from the dead must get through it.
TEST_F(ShmScribble, OverMessagesDoesNotStopARepair) {
  for (const std::uint32_t block : {kBlocks, kNone}) {
    const std::size_t message = linked_message();
    write_at(arena_.memory(), message + sizeof(MessageRecord) + offsetof(PartRecord, block), block);
  }
  kill_child(start_child([&] {
    crash_hook = [] { kill(getpid(), SIGKILL); };  // with the lock
    arena_.stats();
  }));
  EXPECT_EQ(code_of([&] { channel_.get({20s, {}}); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { channel_.get(kNow); }), ErrorCode::corrupt);
  EXPECT_FALSE(channel_.get(kNow));
  EXPECT_EQ(arena_.stats().blocks, 2U);
  audit(arena_);
}

TEST_F(ShmScribble, OverAChannelIsCorrupt) {
  const Ledger ledger(arena_.memory());
  Ring& ring = ledger.ring(channel_.handle().block);
  ASSERT_TRUE(put_text(channel_, "text"));
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1000}, UINT64_MAX}) {
    ring.capacity = capacity;
    EXPECT_EQ(code_of([&] { channel_.get(kNow); }), ErrorCode::corrupt);
    EXPECT_EQ(code_of([&] { arena_.open(channel_.handle()); }), ErrorCode::corrupt);
    arena_.reclaim();
  }
  ring.capacity = 4;
  ring.tail = 0x7fffffffffffULL;
  EXPECT_EQ(code_of([&] { channel_.get(kNow); }), ErrorCode::corrupt);
  ring.head = ring.tail.load();
  EXPECT_FALSE(channel_.get(kNow));
  EXPECT_TRUE(put_text(channel_, "goes on"));
  EXPECT_EQ(get_text(channel_), "goes on");
  audit(arena_);
}

// Lists and counts: made anew from what is true.
TEST_F(ShmScribble, OverWhatFollowsIsMended) {
  Header& header = *reinterpret_cast<Header*>(arena_.memory().data());
  const Ledger ledger(arena_.memory());
  const std::vector<std::function<void(std::uint32_t)>> scribbles{
      [&](std::uint32_t value) { header.first = value; },
      [&](std::uint32_t value) { header.first_free = value; },
      [&](std::uint32_t value) { header.full_until = value; },
      [&](std::uint32_t value) { ledger.block(header.first).next = value; },
      [&](std::uint32_t value) { ledger.block(header.first_free).next = value; },
  };
  for (const auto& scribble : scribbles) {
    for (const std::uint32_t value : {0U, 1U, kBlocks, 0x80000000U, kNone - 1}) {
      scribble(value);
      for (int i = 0; i < 4; ++i) {
        try {
          std::vector<Block> blocks;
          for (int n = 0; n < 5; ++n) {
            if (auto block = arena_.allocate(200, kNow)) blocks.push_back(std::move(*block));
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
        }
      }
      ledger.rebuild();
      EXPECT_EQ(arena_.stats().blocks, 2U);
      audit(arena_);
    }
  }
}

// ---------------------------------------------------------------- at random places

std::size_t rounds_wanted() {
  const char* text = std::getenv("HEADRACE_SHM_SCRIBBLES");
  return text ? std::strtoul(text, nullptr, 10) : 300;
}

// Every call of the interface, of what is left of an arena.
void use(const Arena& arena, const Channel& channel, const Block& held, std::mt19937& random) {
  const auto tolerate = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::not_found ||
                  error.code() == ErrorCode::invalid_argument ||
                  error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::io)
          << error.what();
    }
  };
  const std::vector<std::span<const std::byte>> parts{bytes_of("copied"), held.bytes};
  // Every byte of what comes is read.
  const auto read = [](const Message& message) {
    unsigned sum = 0;
    for (const Block& part : message) {
      for (const std::byte byte : part.bytes) sum += std::to_integer<unsigned>(byte);
    }
    return sum;
  };
  std::optional<Descriptor> descriptor;
  tolerate([&] { descriptor = arena.send(parts, kNow); });
  tolerate([&] { channel.put(parts, kNow); });
  tolerate([&] { arena.stats(kNow); });
  tolerate([&] {
    if (const auto message = channel.get(kNow)) read(*message);
  });
  tolerate([&] {
    if (descriptor) read(arena.receive(*descriptor, kNow));
  });
  tolerate([&] { arena.open({static_cast<std::uint32_t>(random() % kBlocks), 1}, kNow); });
  tolerate([&] {
    if (const auto block = arena.allocate(random() % 9000, kNow)) {
      std::ranges::fill(block->bytes, std::byte{1});
    }
  });
  tolerate([&] { arena.reclaim(random() % 2 == 0, kNow); });
}

// Anything but the lock and the process table, which say that somebody is at work who is not.
TEST(ShmScribbles, AtRandomPlacesCrashNobody) {
  std::mt19937 random(17);
  alarm(300);
  for (std::size_t round = 0; round < rounds_wanted(); ++round) {
    const Arena arena = Arena::create(kArena, {.max_blocks = kBlocks});
    const Channel channel = arena.channel(3);
    const Block held = arena.allocate(500, kNow).value();
    const std::vector<std::span<const std::byte>> parts{bytes_of("first"), held.bytes};
    channel.put(parts, kNow);
    arena.send(parts, kNow);
    const std::span<std::byte> memory = arena.memory();
    const Ledger ledger(memory);
    const std::size_t lists = offsetof(Header, first);
    const std::size_t records = sizeof(Header);
    const std::size_t data = memory.size() - ledger.data().size();
    for (int i = 0; i < 4; ++i) {
      const auto count = 1 + random() % 20;
      for (unsigned n = 0; n < count; ++n) {
        // Words of lists, of records, and of the first blocks, where messages and rings are.
        const std::size_t areas[][2] = {{lists, lists + 32},
                                        {records, records + 6 * sizeof(BlockRecord)},
                                        {records, data},
                                        {data, data + 2048},
                                        {data, memory.size()}};
        const auto& area = areas[random() % std::size(areas)];
        const std::size_t at = (area[0] + random() % (area[1] - area[0])) / 4 * 4;
        const std::uint32_t values[] = {0,
                                        1,
                                        kNone,
                                        static_cast<std::uint32_t>(random()),
                                        static_cast<std::uint32_t>(random() % 64)};
        write_at(memory, at, values[random() % std::size(values)]);
      }
      use(arena, channel, held, random);
    }
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
  alarm(0);
}

// A peer does not wait for a call to end: what was right when a block was made is not when it is
// used.
TEST(ShmScribbles, WhileCallsAreUnderWayCrashNobody) {
  alarm(300);
  const Arena arena = Arena::create(std::size_t{1} << 20, {.max_blocks = kBlocks});
  const Channel channel = arena.channel(4);
  std::atomic<bool> is_over{false};
  std::thread peer([&, memory = arena.memory()] {
    const Ledger ledger(memory);
    while (!is_over) {
      for (std::uint32_t i = 1; i < kBlocks; ++i) {
        ledger.block(i).offset.store(memory.size() - kBlockAlignment, std::memory_order_relaxed);
        ledger.block(i).nbytes.store(kBlockAlignment, std::memory_order_relaxed);
      }
      std::this_thread::yield();
    }
  });
  const std::vector<std::byte> large(std::size_t{300} << 10);
  const std::span<const std::byte> part(large);
  for (int i = 0; i < 20000; ++i) {
    try {
      if (const auto block = arena.allocate(large.size(), kNow)) block->bytes.back() = std::byte{1};
      channel.put({&part, 1}, kNow);
      channel.get(kNow);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    }
  }
  is_over = true;
  peer.join();
  alarm(0);
}

// The lock's word, too: nobody waits without end, nobody crashes.
TEST(ShmScribbles, OverTheLockAndThePlacesCrashNobody) {
  std::mt19937 random(3);
  for (int round = 0; round < 8; ++round) {
    const Arena arena = Arena::create(kArena, {.max_blocks = kBlocks});
    const Channel channel = arena.channel(3);
    const Block held = arena.allocate(500, kNow).value();
    Header& header = *reinterpret_cast<Header*>(arena.memory().data());
    // A holder that there is not; one that is there would be waited for, for each call's time.
    header.lock.store((static_cast<std::uint32_t>(random()) & ~lock_word::kHolder) |
                      (2 + static_cast<std::uint32_t>(random()) % 500));
    for (int i = 0; i < 40; ++i) {
      const std::uint32_t place = 1 + static_cast<std::uint32_t>(random()) % (kMaxProcesses - 1);
      header.processes[place].identity.store(random() % 2 == 0 ? random() : place_word::kLeft);
    }
    use(arena, channel, held, random);
  }
}

}  // namespace
}  // namespace headrace::shm
