#pragma once

// The reads of a cached store whose source is asked asynchronously:
//  1. What lies in memory is answered inside submit(), what lies on the disk by threads that wait
//     for it.
//  2. What is missing goes to the source, all of a submit() at once: neighbouring blocks by one
//     request, of the version that is known. Of an object that nobody has seen yet exactly what is
//     wanted is asked for: its size comes with the answer.
//  3. What is under way already is not asked for again: who wants it too waits for the same answer,
//     its error included. It is given up when the last of them is cancelled.
//  4. Where the source has another version by now, the object is forgotten, and who had seen
//     nothing of the old one is answered of the new one; others by the error of throw_changed().
// A child of fork starts with nothing under way.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/per_process.h"
#include "store/async.h"
#include "store/cached_copies.h"
#include "store/io_threads.h"

namespace headrace {

// To read an object that is written all the time.
inline constexpr int kReadAttempts = 4;

// What AsyncRead::version is told of an object: its number and its version in the source; empty
// where neither is known.
std::string told_version(const KnownObject& object);

class CachedReads final : public AsyncReads {
 public:
  // All of these outlive it.
  CachedReads(CachedCopies& copies, AsyncReads& source, std::string url);
  // Waits until the source has nothing of it any more.
  ~CachedReads() override;

  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;
  std::size_t depth() const override { return source_.depth(); }
  bool keeps_parts(std::string_view key) override;

 private:
  struct Want;
  struct Group;
  struct Ask;
  class Flight;
  struct State;
  struct Plan;
  class Large;
  using GroupOwner = std::shared_ptr<Group>;
  using AskOwner = std::shared_ptr<Ask>;

  bool may_tell_version(const AsyncRead& read);
  void submit_large(AsyncRead& read) noexcept;
  void submit_one(AsyncRead& read) noexcept;
  void begin(std::vector<GroupOwner> groups) noexcept;
  void begin_on_threads(std::vector<GroupOwner> groups) noexcept;
  void on_thread(std::function<void()> job) noexcept;
  std::vector<GroupOwner> plan_all(std::span<const GroupOwner> groups, bool looks_on_disk) noexcept;
  void plan(const Group& group, Plan& plan);
  bool find_version(const Group& group, const Plan& plan, std::optional<KnownObject>& object);
  void plan_whole(const AskOwner& ask, Plan& plan);
  void plan_end(const AskOwner& ask, Plan& plan);
  void plan_ranges(const AskOwner& ask, Plan& plan);
  static std::string exact_condition(const Ask& ask);
  static std::string exact_name(const Ask& ask);
  bool join_exact(const AskOwner& ask);
  void fetch_exact(const AskOwner& ask, Plan& plan);
  void fetch_pieces(const AskOwner& ask, Plan& plan);
  void find_pieces(Ask& ask, Want& want, const Plan& plan);
  CachedBytes find(Ask& ask, const std::string& name, std::uint64_t nbytes, const Plan& plan);
  void send(Plan& plan) noexcept;

  void landed(Flight& flight) noexcept;
  void take(Flight& flight) noexcept;
  void take_exact(Flight& flight);
  void take_pieces(Flight& flight);
  void keep_along_blocks(const Flight& flight, std::uint64_t offset);
  void finish(const AskOwner& ask) noexcept;
  void finish_pieces(Ask& ask);
  void deliver_all(Ask& ask) noexcept;
  void deliver(const Ask& ask, const Want& want, AsyncRead& read);
  void begin_again(Ask& ask) noexcept;
  void end_by_change(Ask& ask) noexcept;
  void end_all(std::span<const Want> wants, const std::exception_ptr& error) noexcept;
  AsyncRead* claim(const Want& want) noexcept;
  std::exception_ptr changed(const std::string& key) const noexcept;
  std::exception_ptr cancelled(const std::string& key) const noexcept;

  CachedCopies& copies_;
  AsyncReads& source_;
  const std::string url_;
  IoThreads threads_;
  PerProcess<State> state_;
};

}  // namespace headrace
