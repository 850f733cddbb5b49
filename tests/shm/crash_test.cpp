// Death at every point of every operation that others could notice, and at random ones.

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

#include "shm/shm_kit.h"

namespace headrace::shm {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

int points_left = 0;

// In this process, from now on.
void die_at_point(int number) {
  points_left = number;
  crash_hook = [] {
    if (points_left-- == 0) kill(getpid(), SIGKILL);
  };
}

// Lets children die at point 0, 1, 2, ... of `body`, until one gets through it. `check` runs after
// each death.
void die_everywhere(const std::function<void()>& body, const std::function<void()>& check) {
  int number = 0;
  for (bool died = true; died; ++number) {
    const pid_t child = start_child([&] {
      die_at_point(number);
      body();
    });
    const int status = wait_for(child);
    died = WIFSIGNALED(status);
    ASSERT_TRUE(died || status == 0);
    ASSERT_NO_FATAL_FAILURE(check()) << "after a death at point " << number;
    if (testing::Test::HasFailure()) FAIL() << "after a death at point " << number;
  }
  EXPECT_GT(number, 5) << "the body has points to die at";
}

class ShmCrash : public testing::Test {
 protected:
  // What the dead held is freed, and the counts are what they should be.
  void expect_blocks(std::size_t blocks) {
    arena_.reclaim(true);
    EXPECT_EQ(arena_.stats().blocks, blocks);
    EXPECT_EQ(arena_.stats().processes, 1U);
    audit(arena_);
  }

  // A message of copied text and of text that lies in the arena.
  void put_both(const std::string& text) {
    const Block block = arena_.allocate(text.size(), kNow).value();
    std::ranges::copy(bytes_of(text), block.bytes.begin());
    const std::vector<std::span<const std::byte>> parts{bytes_of(text), block.bytes};
    EXPECT_TRUE(channel_.put(parts, kNow));
  }

  // "": there is none.
  std::string get_both() {
    const std::optional<Message> message = channel_.get(kNow);
    if (!message) return "";
    EXPECT_EQ(text_of(message->at(0).bytes), text_of(message->at(1).bytes));
    return text_of(message->at(0).bytes);
  }

  Arena arena_ = Arena::create(kMiB, {.max_blocks = 64});
  Channel channel_ = arena_.channel(4);
};

TEST_F(ShmCrash, OfAProducerSendsAllOrNothing) {
  die_everywhere([&] { put_both("whole"); },
                 [&] {
                   const std::string text = get_both();
                   EXPECT_TRUE(text.empty() || text == "whole") << text;
                   expect_blocks(1);
                 });
}

TEST_F(ShmCrash, OfAConsumerLeavesWhatItHasNotGot) {
  put_both("first");
  put_both("second");
  die_everywhere(
      [&] {
        get_both();
        get_both();
      },
      [&] {
        std::string rest;
        for (std::string text = get_both(); !text.empty(); text = get_both()) rest += text + ",";
        EXPECT_TRUE(rest == "first,second," || rest == "second," || rest.empty()) << rest;
        expect_blocks(1);
        put_both("first");
        put_both("second");
      });
}

TEST_F(ShmCrash, OfAReceiverTakesTheMessageOrLeavesIt) {
  const Block block = arena_.allocate(64, kNow).value();
  const std::vector<std::span<const std::byte>> parts{bytes_of("sent"), block.bytes};
  Descriptor descriptor = arena_.send(parts, kNow).value();
  die_everywhere([&] { arena_.receive(descriptor); },
                 [&] {
                   arena_.reclaim(true);
                   audit(arena_);
                   try {
                     EXPECT_EQ(text_of(arena_.receive(descriptor).at(0).bytes), "sent");
                   } catch (const Error& error) {
                     EXPECT_EQ(error.code(), ErrorCode::not_found);
                   }
                   expect_blocks(2);
                   descriptor = arena_.send(parts, kNow).value();
                 });
}

TEST_F(ShmCrash, OfASenderLeavesOrphansThatCanBeFreed) {
  die_everywhere(
      [&] {
        const Block block = arena_.allocate(64, kNow).value();
        const std::vector<std::span<const std::byte>> parts{bytes_of("sent"), block.bytes};
        arena_.send(parts, kNow);
      },
      [&] { expect_blocks(1); });
}

TEST_F(ShmCrash, OfAChannelsOnlyHolderFreesWhatIsInIt) {
  die_everywhere(
      [&] {
        const Channel own = arena_.channel(2);
        const Block block = arena_.allocate(64, kNow).value();
        const std::vector<std::span<const std::byte>> parts{bytes_of("kept"), block.bytes};
        own.put(parts, kNow);
        own.put(parts, kNow);
      },
      [&] { expect_blocks(1); });
}

TEST_F(ShmCrash, InAForkEndsWithTheForksPlaces) {
  const std::uint64_t patience = std::exchange(birth_patience_ns, 0);
  die_everywhere(
      [&] {
        const Block block = arena_.allocate(64, kNow).value();
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(0);
        wait_for(grandchild);
      },
      [&] { expect_blocks(1); });
  birth_patience_ns = patience;
}

// Whoever takes the lock from the dead and dies over the repair leaves it to the next.
TEST_F(ShmCrash, OfTheRepairerIsRepaired) {
  die_everywhere(
      [&] {
        crash_hook = nullptr;
        const int number = points_left;
        put_both("before");
        const pid_t first = start_child([&] {
          die_at_point(12);  // with the lock
          get_both();
        });
        wait_for(first);
        die_at_point(number);
        arena_.reclaim(true);
      },
      [&] {
        const std::string text = get_both();
        EXPECT_TRUE(text.empty() || text == "before") << text;
        expect_blocks(1);
      });
}

// ---------------------------------------------------------------- at random points

// Each byte of a message follows from its first.
std::vector<std::byte> pattern(std::mt19937& random) {
  std::vector<std::byte> bytes(1 + random() % 5000);
  const auto first = static_cast<unsigned>(random());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

void check_pattern(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(std::to_integer<unsigned>(bytes[0]) + i)) {
      throw std::runtime_error("a message holds what nobody sent");
    }
  }
}

void produce(const Arena& arena, const Channel& channel, unsigned seed) {
  std::mt19937 random(seed);
  while (true) {
    const std::vector<std::byte> bytes = pattern(random);
    const auto block = arena.allocate(bytes.size(), {50ms, {}});
    if (!block) continue;
    std::ranges::copy(bytes, block->bytes.begin());
    const std::vector<std::span<const std::byte>> parts{bytes, block->bytes};
    channel.put(parts, {50ms, {}});
  }
}

void consume(const Channel& channel) {
  std::vector<Message> held;
  while (true) {
    std::optional<Message> message = channel.get({50ms, {}});
    if (!message) continue;
    for (const Block& part : *message) check_pattern(part.bytes);
    held.push_back(std::move(*message));
    if (held.size() > 5) {
      for (const Block& part : held.front()) check_pattern(part.bytes);
      held.erase(held.begin());
    }
  }
}

int kills_wanted() {
  const char* text = std::getenv("HEADRACE_SHM_KILLS");
  return text ? std::atoi(text) : 400;
}

TEST(ShmKill, AtRandomPointsLosesNoMemoryAndStopsNobody) {
  const Arena arena = Arena::create(kMiB, {.max_blocks = 64});
  const Channel channel = arena.channel(4);
  const std::uint64_t patience = std::exchange(birth_patience_ns, 2'000'000'000);
  std::mt19937 random(7);
  const auto start = [&](bool producer) {
    const unsigned seed = static_cast<unsigned>(random());
    return start_child([&, producer, seed] {
      if (producer) {
        produce(arena, channel, seed);
      } else {
        consume(channel);
      }
    });
  };
  // Producers in even places.
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) children.push_back(start(i % 2 == 0));
  int kills = 0;
  int next_audit = 50;
  while (kills < kills_wanted()) {
    usleep(static_cast<unsigned>(random() % 3000));
    const std::size_t victim = random() % children.size();
    const bool pair = random() % 4 == 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (i != victim && !(pair && i == (victim ^ 1U))) continue;
      kill(children[i], SIGKILL);
      const int status = wait_for(children[i]);
      ASSERT_TRUE(WIFSIGNALED(status)) << "a child ended by itself";
      children[i] = start(i % 2 == 0);
      ++kills;
    }
    if (kills >= next_audit) {  // all of it, from time to time
      for (const pid_t child : children) kill_child(child);
      kills += static_cast<int>(children.size());
      next_audit = kills + 200;
      while (const std::optional<Message> message = channel.get(kNow)) {
        for (const Block& part : *message) check_pattern(part.bytes);
      }
      // Some died before they arrived in their places.
      while (arena.stats().processes > 1) std::this_thread::sleep_for(100ms);
      EXPECT_EQ(arena.stats().blocks, 1U);
      audit(arena);
      for (std::size_t i = 0; i < children.size(); ++i) children[i] = start(i % 2 == 0);
    }
    // The survivors go on: something comes through soon.
    const std::optional<Message> message = channel.get({10s, {}});
    ASSERT_TRUE(message) << "after " << kills << " kills";
    for (const Block& part : *message) check_pattern(part.bytes);
  }
  for (const pid_t child : children) kill_child(child);
  birth_patience_ns = patience;
}

}  // namespace
}  // namespace headrace::shm
