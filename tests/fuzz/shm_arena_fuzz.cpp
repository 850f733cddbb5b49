// Any words anywhere in the memory of an arena, between calls of all kinds: they are `corrupt`, or
// something that a call may say anyway, and lead nowhere else.
//
// Eight bytes each: what to do, where (2), how far on (1), and the word (4).

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "fuzz_check.h"
#include "headrace/error.h"
#include "headrace/shm.h"
#include "shm/ledger.h"

namespace {

using namespace headrace;
using namespace headrace::fuzz;
using namespace headrace::shm;

constexpr std::size_t kNbytes = 16384;
constexpr std::uint32_t kBlocks = 16;

template <typename F>
void tolerate(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    check(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::not_found ||
          error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::out_of_memory ||
          error.code() == ErrorCode::io);
  }
}

class Player {
 public:
  void play(std::span<const std::uint8_t, 8> step) {
    std::uint32_t value = 0;
    std::memcpy(&value, &step[4], sizeof value);
    const std::size_t far = std::size_t{step[2]} << 8 | step[3];
    if (step[0] < kCalls) {
      tolerate([&] { call(step[0], value); });
    } else {
      write(step[1], far, value);
    }
  }

 private:
  static constexpr std::uint8_t kCalls = 9;

  // Not over the lock and the process table: what a holder is waited for for is another matter.
  void write(std::uint8_t area, std::size_t far, std::uint32_t value) {
    const std::span<std::byte> memory = arena_.memory();
    const std::size_t data = memory.size() - Ledger(memory).data().size();
    const std::array<std::size_t, 4> begins{
        offsetof(Header, first), sizeof(Header), data, data + kNbytes / 4};
    const std::array<std::size_t, 4> sizes{32, data - sizeof(Header), 1024, kNbytes / 2};
    const std::size_t at = begins[area % 4] + far % sizes[area % 4] / 4 * 4;
    std::memcpy(memory.data() + at, &value, sizeof value);
  }

  void call(std::uint8_t number, std::uint32_t value) {
    const Wait now{std::chrono::nanoseconds(0), {}};
    const std::array<std::span<const std::byte>, 2> parts{
        std::as_bytes(std::span(text_)), held_ ? held_->bytes : std::span<std::byte>{}};
    switch (number) {
      case 0:
        if (const auto message = channel_.get(now)) read(*message);
        return;
      case 1:
        channel_.put(parts, now);
        return;
      case 2:
        if (const auto sent = arena_.send(parts, now)) sent_ = *sent;
        return;
      case 3:
        read(arena_.receive(sent_, now));
        return;
      case 4:
        if (auto block = arena_.allocate(value % kNbytes, now)) {
          std::ranges::fill(block->bytes, std::byte{1});
          held_ = std::move(*block);
        }
        return;
      case 5:
        held_.reset();
        return;
      case 6:
        arena_.reclaim(value % 2 == 0, now);
        return;
      case 7:
        check(arena_.stats(now).nbytes >= kNbytes);
        return;
      default:
        arena_.open({value % (2 * kBlocks), value / 64}, now);
    }
  }

  void read(const Message& message) {
    for (const Block& part : message) {
      for (const std::byte byte : part.bytes) sum_ = sum_ + std::to_integer<unsigned>(byte);
    }
  }

  const char text_[7] = "copied";
  Arena arena_ = Arena::create(kNbytes, {.max_blocks = kBlocks});
  Channel channel_ = arena_.channel(3);
  std::optional<Block> held_ = arena_.allocate(500, {std::chrono::nanoseconds(0), {}});
  Descriptor sent_{};
  volatile unsigned sum_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostSteps = 500;
  Player player;
  const std::size_t steps = std::min(size / 8, kMostSteps);
  for (std::size_t i = 0; i < steps; ++i) {
    player.play(std::span<const std::uint8_t, 8>(data + 8 * i, 8));
  }
  return 0;
}
