#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "headrace/error.h"
#include "headrace/shm.h"
#include "shm/arena_state.h"

namespace headrace::shm {

namespace {

std::uint64_t milliseconds(Waiting::Clock::time_point time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

// Tells a wait that can never end: all other processes that had the channel open are gone.
class PeerWatch {
 public:
  PeerWatch(ArenaState& arena, const Ring& ring, std::uint32_t block)
      : arena_(arena), ring_(ring), block_(block) {}

  // Whenever the wait has looked in vain. Asks the kernel now and then only.
  void look() {
    const auto now = Waiting::Clock::now();
    if (now < next_look_) return;
    next_look_ = now + kInterval;
    if (ring_.shared.load(std::memory_order_relaxed) == 0 || is_awaited(now) ||
        !arena_.is_alone_with(block_)) {
      alone_since_ = kNever;
      return;
    }
    alone_since_ = std::min(alone_since_, now);
    if (now - alone_since_ < kPatience) return;  // somebody may be about to start another
    throw Error(ErrorCode::io, "[shm] all other processes of the channel are gone", EPIPE);
  }

 private:
  // Whether the channel was handed to a process that may still be starting.
  bool is_awaited(Waiting::Clock::time_point now) const {
    return ring_.unopened.load(std::memory_order_relaxed) > 0 &&
           milliseconds(now) - ring_.handed_over_ms.load(std::memory_order_relaxed) < kStartMs;
  }

  static constexpr std::chrono::milliseconds kInterval{100};
  static constexpr std::chrono::seconds kPatience{1};
  static constexpr std::uint64_t kStartMs = 60'000;
  static constexpr Waiting::Clock::time_point kNever = Waiting::Clock::time_point::max();

  ArenaState& arena_;
  const Ring& ring_;
  std::uint32_t block_;
  Waiting::Clock::time_point next_look_ = Waiting::Clock::now() + kInterval;
  Waiting::Clock::time_point alone_since_ = kNever;
};

// Where this process has it: others cannot move it.
Ring& ring_of(const Block& block) { return *reinterpret_cast<Ring*>(block.bytes.data()); }

}  // namespace

// ---------------------------------------------------------------- Arena

Arena Arena::create(std::size_t nbytes, const ArenaOptions& options) {
  return Arena(ArenaState::create(nbytes, options));
}

Arena Arena::attach(int fd) { return Arena(ArenaState::attach(fd)); }

int Arena::fd() const { return state_->segment()->fd(); }

std::string Arena::id() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : state_->ledger().header().id) {
    text += kDigits[std::to_integer<unsigned>(byte >> 4)];
    text += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return text;
}

std::span<std::byte> Arena::memory() const { return state_->segment()->memory(); }

std::optional<Block> Arena::allocate(std::size_t nbytes, const Wait& wait) const {
  Waiting waiting(wait);
  return state_->allocate(nbytes, waiting);
}

Channel Arena::channel(std::size_t capacity, const Wait& wait) const {
  Waiting waiting(wait);
  return {state_, state_->make_channel(capacity, waiting)};
}

Channel Arena::open(ChannelHandle handle, const Wait& wait) const {
  Waiting waiting(wait);
  Channel channel{state_, state_->open_channel(handle, waiting)};
  std::atomic<std::uint32_t>& unopened = ring_of(channel.ring_).unopened;
  std::uint32_t n = unopened.load(std::memory_order_relaxed);
  while (n > 0 && !unopened.compare_exchange_weak(n, n - 1, std::memory_order_relaxed)) {
  }
  return channel;
}

std::optional<Descriptor> Arena::send(Parts parts, const Wait& wait) const {
  Waiting waiting(wait);
  std::optional<ArenaState::Packed> message = state_->pack(parts, waiting);
  if (!message) return std::nullopt;
  return state_->send(std::move(*message), waiting);
}

Message Arena::receive(const Descriptor& descriptor, const Wait& wait) const {
  Waiting waiting(wait);
  return state_->receive(descriptor, waiting);
}

ArenaStats Arena::stats(const Wait& wait) const {
  Waiting waiting(wait);
  return state_->stats(waiting);
}

std::size_t Arena::reclaim(bool orphans, const Wait& wait) const {
  Waiting waiting(wait);
  return state_->reclaim(orphans ? 0 : UINT64_MAX, waiting);
}

// ---------------------------------------------------------------- Channel

Channel::Channel(std::shared_ptr<ArenaState> arena, Block ring)
    : arena_(std::move(arena)), ring_(std::move(ring)) {}

bool Channel::put(Parts parts, const Wait& wait) const {
  const std::uint32_t index = ArenaState::block_index(ring_);
  Ring& ring = ring_of(ring_);
  Waiting waiting(wait);
  PeerWatch peers(*arena_, ring, index);
  std::optional<ArenaState::Packed> message;
  while (true) {
    const std::uint32_t seen = ring.emptied_event.load();
    // Nothing is copied before there is a place for it.
    if (size() < capacity()) {
      if (!message) message = arena_->pack(parts, waiting);
      if (!message) return false;
      if (arena_->push(index, *message, waiting)) break;
    }
    if (!waiting.sleep(ring.emptied_event, ring.emptied_waiters, seen)) return false;
    peers.look();
  }
  announce(ring.filled_event, ring.filled_waiters, 1);
  return true;
}

std::optional<Message> Channel::get(const Wait& wait) const {
  const std::uint32_t index = ArenaState::block_index(ring_);
  Ring& ring = ring_of(ring_);
  Waiting waiting(wait);
  PeerWatch peers(*arena_, ring, index);
  while (true) {
    const std::uint32_t seen = ring.filled_event.load();
    if (std::optional<Message> message = arena_->pop(index, waiting)) {
      announce(ring.emptied_event, ring.emptied_waiters, 1);
      return message;
    }
    if (!waiting.sleep(ring.filled_event, ring.filled_waiters, seen)) return std::nullopt;
    peers.look();
  }
}

std::size_t Channel::size() const {
  const Ring& ring = ring_of(ring_);
  const std::uint64_t head = ring.head.load(std::memory_order_acquire);
  const std::uint64_t tail = ring.tail.load(std::memory_order_acquire);
  return tail > head ? static_cast<std::size_t>(tail - head) : 0;
}

std::size_t Channel::capacity() const { return static_cast<std::size_t>(ring_of(ring_).capacity); }

ChannelHandle Channel::handle() const {
  Ring& ring = ring_of(ring_);
  ring.handed_over_ms.store(milliseconds(Waiting::Clock::now()), std::memory_order_relaxed);
  ring.unopened.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t index = ArenaState::block_index(ring_);
  return {index, arena_->ledger().block(index).generation};
}

}  // namespace headrace::shm
