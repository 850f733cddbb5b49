// Who is in which place of the process table: processes that leave while messages of theirs are
// under way, children that come late, and other PID namespaces.

#include <sched.h>

#include <utility>

#include "shm/process.h"
#include "shm/shm_kit.h"
#include "support/portable.h"

namespace headrace::shm {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// As another process has the arena that this one has.
std::shared_ptr<ArenaState> another(const Arena& arena) {
  return std::make_shared<ArenaState>(std::make_shared<Segment>(Segment::attach(arena.fd(), true)));
}

Descriptor send_from(ArenaState& state, std::string_view text) {
  Waiting waiting(kNow);
  const std::span<const std::byte> part = bytes_of(text);
  return state.send(state.pack({&part, 1}, waiting).value(), waiting).value();
}

// ---------------------------------------------------------------- leaving

TEST(ShmPlace, OfASenderThatLeftLeavesOrphansNotLeaks) {
  const Arena arena = Arena::create(kMiB);
  const Descriptor kept = send_from(*another(arena), "kept");
  const Descriptor lost = send_from(*another(arena), "lost");
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_EQ(arena.stats().orphans, 2U);
  EXPECT_EQ(arena.reclaim(false), 0U) << "somebody may still receive them";
  EXPECT_EQ(text_of(arena.receive(kept).at(0).bytes), "kept");
  EXPECT_GT(arena.reclaim(true), 0U);
  EXPECT_EQ(code_of([&] { arena.receive(lost); }), ErrorCode::not_found);
  EXPECT_EQ(arena.stats().blocks, 0U);
  audit(arena);
}

// The next process in the place is not the sender, whatever becomes of it.
TEST(ShmPlace, IsNotGivenToAnotherWithTheMessagesOfTheFirst) {
  const Arena arena = Arena::create(kMiB);
  const Channel ready = arena.channel(1);
  const Descriptor first = send_from(*another(arena), "of the first");
  Descriptor second{};
  const pid_t child = start_child([&] {
    const Descriptor mine = send_text(arena, "of the second");
    put_text(ready, text_of(mine));
    pause();
  });
  const std::string text = get_text(ready, kSoon);
  ASSERT_EQ(text.size(), second.size());
  std::ranges::copy(bytes_of(text), second.begin());
  // The first sender has left, the second lives: only the first's is an orphan.
  EXPECT_EQ(arena.stats().orphans, 1U);
  EXPECT_GT(arena.reclaim(true), 0U);
  EXPECT_EQ(code_of([&] { arena.receive(first); }), ErrorCode::not_found);
  EXPECT_EQ(text_of(arena.receive(second).at(0).bytes), "of the second");
  kill_child(child);
  audit(arena);
}

TEST(ShmPlace, CanBeTakenAndLeftMoreOftenThanThereArePlaces) {
  const Arena arena = Arena::create(4 * kMiB);
  std::vector<Descriptor> sent;
  for (std::uint32_t i = 0; i < 2 * kMaxProcesses; ++i) {
    const auto state = another(arena);
    if (i % 16 == 0) sent.push_back(send_from(*state, std::to_string(i)));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(text_of(arena.receive(sent[i]).at(0).bytes), std::to_string(16 * i));
  }
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_EQ(arena.stats().blocks, 0U);
  audit(arena);
}

// ---------------------------------------------------------------- being born

TEST(ShmPlace, IsNotTakenByAChildThatComesTooLate) {
  const Arena arena = Arena::create(kMiB);
  const Ledger ledger(arena.memory());
  const std::uint64_t patience = std::exchange(birth_patience_ns, 0);
  const std::uint64_t born = monotonic_ns() - 1'000'000;
  const std::uint32_t place = ledger.join_unborn(born);
  arena.reclaim();
  // Another fork has the place by now.
  birth_patience_ns = patience;
  const std::uint64_t later = monotonic_ns();
  ASSERT_EQ(ledger.join_unborn(later), place);
  EXPECT_FALSE(ledger.arrive(place, born));
  EXPECT_TRUE(ledger.arrive(place, later));
  EXPECT_FALSE(ledger.arrive(place, later));
  EXPECT_EQ(arena.stats().processes, 2U);
  ledger.leave(place);
  EXPECT_EQ(arena.stats().processes, 1U);
}

// A place whose child never came is inherited as any dead process's, and not taken back once more.
TEST(ShmPlace, OfAChildThatNeverCameIsInherited) {
  const Arena arena = Arena::create(kMiB);
  const Ledger ledger(arena.memory());
  for (std::uint32_t i = 1; i < kMaxProcesses; ++i) ledger.join_unborn(1);  // long ago
  const auto state = another(arena);
  EXPECT_EQ(arena.stats().processes, 2U);
  EXPECT_EQ(send_from(*state, "text").size(), 64U);
  EXPECT_EQ(arena.stats().in_transit, 1U);
  EXPECT_EQ(arena.stats().orphans, 0U);
}

// ---------------------------------------------------------------- PID namespaces

TEST(ShmNamespace, ThatIsAnotherIsRefused) {
  SKIP_IF_PORTABLE("PID namespaces");
  const Arena arena = Arena::create(kMiB);
  auto& header = *reinterpret_cast<Header*>(arena.memory().data());
  EXPECT_EQ(header.pid_namespace, pid_namespace());
  ++header.pid_namespace;
  try {
    another(arena);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("PID namespace"), std::string::npos) << error.what();
  }
  // A child that is forked into another one.
  expect_success(start_child([&] {
    if (code_of([&] { arena.allocate(64, kNow); }) != ErrorCode::unsupported) {
      throw std::runtime_error("it takes part");
    }
  }));
  --header.pid_namespace;
  EXPECT_EQ(arena.stats().processes, 1U) << "the child gave its place back";
  EXPECT_TRUE(arena.allocate(64, kNow));
}

TEST(ShmNamespace, ThatIsAnotherIsRefusedForReal) {
  SKIP_IF_PORTABLE("PID namespaces");
  const Arena arena = Arena::create(kMiB);
  const Block block = arena.allocate(64, kNow).value();
  constexpr int kCannot = 77;
  const pid_t child = start_child([&] {
    if (unshare(CLONE_NEWPID) != 0) _exit(kCannot);
    if (!arena.allocate(64, kNow)) throw std::runtime_error("it has not moved itself");
    const pid_t inside = start_child([&] {
      for (const auto& call : std::vector<std::function<void()>>{[&] { arena.allocate(64, kNow); },
                                                                 [&] { another(arena); }}) {
        if (code_of(call) != ErrorCode::unsupported) throw std::runtime_error("it takes part");
      }
    });
    if (wait_for(inside) != 0) _exit(1);
  });
  const int status = wait_for(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "no rights to unshare";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_EQ(arena.stats().blocks, 1U);
  audit(arena);
}

}  // namespace
}  // namespace headrace::shm
