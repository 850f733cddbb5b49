#pragma once

// Makes the batches of a loader, by one thread at a time:
//
//   needs of the batch -> chunks: resident, or read many at once -> gather -> batch
//
// Chunks are decoded by the engine into a cache that knows the order, or, where a chunk is one part
// of one sample and stays as it is, straight into the batch. A batch never needs all of its chunks
// at a time: what does not fit is gathered, let go, and the next are read.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/batch_memory.h"
#include "loader/chunk_cache.h"
#include "loader/needs.h"
#include "loader/order.h"
#include "loader/plan.h"
#include "loader/stats_board.h"

namespace headrace::loader {

// How much is read at once.
struct ReadLimit {
  std::size_t reserved_nbytes;  // of the budget, for what reading takes beside the chunks
  std::size_t chunks, nbytes;   // decoded
  std::size_t together;         // chunks; as many are worth asking for
  // Of stores across a network: what is read beside the batch in the making, for those that follow.
  std::size_t beside_chunks = 0;
  std::size_t beside_nbytes = 0;  // decoded
};

// What the budget leaves for chunks; `out_of_memory` when that is less than one.
std::size_t cache_nbytes(const Plan& plan);

class BatchMaker {
 public:
  // `stop`: reading ends with `cancelled` once it is set.
  BatchMaker(std::shared_ptr<const Plan> plan, StatsBoard& board, const std::atomic<bool>& stop);
  ~BatchMaker();

  void begin_epoch(std::shared_ptr<const Order> order, std::int64_t epoch);
  // This rank's part of the global batch from `position` on. `poll` is called now and then, and may
  // throw.
  Batch make(std::int64_t position, const std::function<void()>& poll = {});
  // Reads what the global batch from `position` on will need, while the next to be made is that
  // from `now` on. False: there is no room for all. Where chunks are read beside, it begins that,
  // and waits only where enough is under way.
  bool read_ahead(std::int64_t position, std::int64_t now);

 private:
  struct ReadJob;
  struct BesideRead;

  std::vector<std::int64_t> samples_of_rank(std::int64_t position) const;
  Batch new_batch(std::int64_t samples);
  void serve(std::vector<Need>& needs, std::int64_t position);
  void read_missing(std::vector<ReadJob> missing, std::int64_t position);
  void use_cached(Need& need, std::int64_t position);
  bool is_direct(const Need& need) const;
  ReadRequest read_request(const ReadJob& job) const;
  void read(std::span<ReadJob> jobs);
  void read_together(std::span<ReadJob> jobs);
  void read_alone(ReadJob& job, const ReadRequest& request, const ReadOptions& options);
  void add_following(std::vector<ReadJob>& jobs, std::int64_t position, std::int64_t now);
  bool make_room(std::size_t nbytes, std::int64_t now, std::int64_t needed_until);
  bool reads_beside() const { return limit_.beside_chunks > 0; }
  using BesideReads = std::list<std::unique_ptr<BesideRead>>;
  void begin_reads_beside(std::int64_t position, std::int64_t now);
  void begin_reads_of(std::vector<ReadJob> jobs, std::int64_t position);
  void begin_read_beside(std::vector<ReadJob> jobs, std::int64_t position);
  std::vector<ReadJob> begin_needed(std::vector<ReadJob> missing,
                                    std::vector<Need*>& under_way,
                                    std::int64_t position);
  BesideReads::iterator read_of(const ChunkKey& key);
  void wait_for(BesideReads::iterator read);
  BesideReads::iterator end_read_beside(BesideReads::iterator read);
  void stop_reads_beside();
  CachedChunk& keep(ReadJob& job, std::int64_t position);
  void add_parts(const Need& need, const CachedChunk& chunk);
  void flush();
  void note_bad(const Need& need);
  void replace_bad_samples(Batch& batch);
  void count_needed(const std::vector<Need>& needs);
  ReadOptions read_options() const;

  const std::shared_ptr<const Plan> plan_;
  StatsBoard& board_;
  const std::atomic<bool>& stop_;
  const std::unique_ptr<BatchMemory> memory_;
  ChunkCache cache_;
  const ReadLimit limit_;

  std::shared_ptr<const Order> order_;
  std::int64_t epoch_ = 0;
  std::vector<std::vector<bool>> needed_;  // chunks of each variable, in this epoch

  // Of the batch in the making.
  std::function<void()> poll_;
  std::vector<std::uint8_t*> tensors_;
  std::vector<std::vector<GatherBox>> boxes_;  // of each variable, to be gathered
  std::vector<bool> bad_samples_;
  std::string bad_message_;

  // Reads that are under way, the oldest first, and what they read in all.
  BesideReads beside_;
  std::size_t beside_chunks_ = 0;
  std::size_t beside_nbytes_ = 0;
};

}  // namespace headrace::loader
