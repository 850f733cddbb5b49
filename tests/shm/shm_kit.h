#pragma once

// What the tests of shared memory share: parts from text, child processes, and an audit of the
// ledger that relies on none of its counts.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/error_code.h"
#include "headrace/error.h"
#include "headrace/shm.h"
#include "shm/arena_state.h"

namespace headrace::shm {

using namespace std::chrono_literals;

inline const Wait kNow{0ns, {}};
inline const Wait kSoon{5s, {}};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline bool put_text(const Channel& channel, std::string_view text, const Wait& wait = kNow) {
  const std::span<const std::byte> part = bytes_of(text);
  return channel.put({&part, 1}, wait);
}

// "": nothing came.
inline std::string get_text(const Channel& channel, const Wait& wait = kNow) {
  const std::optional<Message> message = channel.get(wait);
  return message ? text_of(message->at(0).bytes) : "";
}

inline Descriptor send_text(const Arena& arena, std::string_view text) {
  const std::span<const std::byte> part = bytes_of(text);
  return arena.send({&part, 1}, kNow).value();
}

// Runs `body` in a forked child, which ends with 0 when it returns and 1 when it throws.
inline pid_t start_child(const std::function<void()>& body) {
  std::cout.flush();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    body();
  } catch (const std::exception& error) {
    std::cerr << "child: " << error.what() << std::endl;
    _exit(1);
  }
  _exit(0);
}

inline int wait_for(pid_t pid) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

inline void expect_success(pid_t pid) { EXPECT_EQ(wait_for(pid), 0); }

inline void kill_child(pid_t pid) {
  kill(pid, SIGKILL);
  wait_for(pid);
}

// Compares what follows from the truth with the truth. Nobody else may use the arena meanwhile.
inline void audit(const Ledger& ledger) {
  const Header& header = ledger.header();
  std::map<std::uint32_t, std::uint32_t> links;
  std::map<std::uint32_t, std::uint32_t> in_ring;
  const auto count_links = [&](std::uint32_t message) {
    for (const PartRecord& part : ledger.parts(message)) {
      if (part.block != message) ++links[part.block];
    }
  };
  std::map<std::uint64_t, std::uint32_t> by_offset;
  std::uint64_t used = 0;
  for (std::uint32_t i = 0; i < header.capacity; ++i) {
    const BlockRecord& record = ledger.block(i);
    if (record.state == BlockState::free) continue;
    used += record.nbytes;
    EXPECT_TRUE(by_offset.emplace(record.offset, i).second) << "two blocks at one offset";
    EXPECT_GE(record.offset, header.data_offset);
    EXPECT_LE(record.offset + record.nbytes, header.nbytes);
    if (record.state == BlockState::taken && record.ticket != kNoTicket) count_links(i);
    if (record.state != BlockState::channel) continue;
    const Ring& ring = ledger.ring(i);
    ASSERT_LE(ring.tail - ring.head, ring.capacity);
    for (std::uint64_t place = ring.head; place != ring.tail; ++place) {
      const Ticket& ticket = ring.places.data()[place % ring.capacity];
      EXPECT_EQ(ledger.block(ticket.block).state, BlockState::taken);
      EXPECT_EQ(ledger.block(ticket.block).generation, ticket.generation);
      in_ring[ticket.block] = 1;
      count_links(ticket.block);
    }
  }
  EXPECT_EQ(header.used_nbytes, used);
  EXPECT_EQ(header.blocks, by_offset.size());

  std::uint32_t listed = header.first;
  std::uint32_t previous = kNone;
  std::uint64_t end = header.data_offset;
  for (const auto& [offset, i] : by_offset) {
    const BlockRecord& record = ledger.block(i);
    ASSERT_EQ(listed, i);
    EXPECT_EQ(record.previous, previous);
    EXPECT_GE(offset, end) << "blocks overlap";
    EXPECT_EQ(record.links, links[i]);
    EXPECT_EQ(record.in_ring, in_ring[i]);
    EXPECT_TRUE(ledger.is_held(record) || record.ticket != kNoTicket || record.in_ring != 0 ||
                record.links != 0)
        << "a block that nobody needs";
    end = offset + record.nbytes;
    previous = i;
    listed = record.next;
  }
  EXPECT_EQ(listed, kNone);

  std::size_t free_records = 0;
  for (std::uint32_t i = header.first_free; i != kNone; i = ledger.block(i).next) {
    EXPECT_EQ(ledger.block(i).state, BlockState::free);
    ASSERT_LE(++free_records, header.capacity);
  }
  EXPECT_EQ(free_records + by_offset.size(), header.capacity);
}

inline void audit(const Arena& arena) { audit(Ledger(arena.memory())); }

}  // namespace headrace::shm
