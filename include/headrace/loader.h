#pragma once

// Batches of samples for training, on the host or a device.
//  1. Loader(variables, options) looks at metadata and plans; it reads nothing and starts nothing.
//  2. next() gives the batches of an epoch in turn, then nothing once; what follows is the epoch
//     after it. The first call starts a thread that makes batches ahead.
//  3. state() tells how far the epoch has been delivered; seek() goes on from there, with other
//     threads, another `prefetch` or another world size.
//
// Several stores are one data set: Loader({{variables}, {variables}}, options). Samples never reach
// from one source into another. Without weights an epoch has each sample of each source once, as if
// they were one array's. With weights sources come in turn by them, evenly; a source that gives
// more than its samples begins again, in another order.
//
// A sample is a window of steps along the sample dimension, the steps at each lead time after the
// window's last, and, where there are patches, one patch of the other dimensions.
//
// The order of an epoch is one sequence of all samples, whatever the number of processes: at each
// step rank r of w takes every w-th of the next w * batch_size samples, from the r-th on. All ranks
// make the same number of steps.
//
// Under block shuffle the samples of neighbouring chunks are a block. Blocks come in random order,
// those of a few at a time mixed. The order is dealt to `lanes`: sample p is of lane p % lanes, and
// each lane has blocks of its own. So the ranks of a world size that divides `lanes` read different
// chunks, and the mixture of a global batch is the same for all.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/array.h"

#pragma GCC visibility push(default)
namespace headrace::loader {

// A dimension by its name, or by its number in the arrays.
using Dimension = std::variant<std::int64_t, std::string>;

struct Variable {
  std::string name;
  Array array;  // its device does not matter
  // float16, bfloat16, float32 or float64; none: the array's own, and nothing is converted.
  std::optional<DType> dtype{};
  // (value - mean) / std, in float32; in float64 for arrays of float64 or of integers of 32 bits
  // and more, and where that is the result. None, one, or one for each index of the first dimension
  // beside the sample dimension.
  std::vector<double> mean{}, std{};
  std::optional<double> fill_nan{};  // in place of NaNs, after the mean and std
};

// What samples are taken of. All sources have variables of the same names, in the same order, and
// of the same shapes but for the sample dimension; means, stds and chunks are their own.
struct Source {
  std::vector<Variable> variables;
  // Half-open ranges of steps: samples that touch one are left out.
  std::vector<std::pair<std::int64_t, std::int64_t>> exclude{};
};

enum class Padding : std::uint8_t {
  zero,  // what a halo has outside of the array is 0 in the batch
  wrap,  // it comes from the other end, as for longitudes
};

// Patches tile the dimension; the last is moved back so that it ends with it.
struct Patch {
  Dimension dimension;
  std::int64_t size = 0;
  std::int64_t halo = 0;  // read at both sides beyond the size
  Padding padding = Padding::zero;
};

// Only these indices of a dimension, in this order.
struct Select {
  Dimension dimension;
  std::vector<std::int64_t> indices;
};

// Variables side by side in one tensor of a batch, along its channels. They need one type and, but
// for channels, one shape.
struct Stack {
  std::string name;
  std::vector<std::string> variables;
};

enum class Shuffle : std::uint8_t { none, block, global };

enum class Layout : std::uint8_t {
  as_stored,  // (batch, steps, *rest)
  nchw,       // (batch, channels, H, W): the steps and all but the last two dimensions are channels
  nhwc,       // (batch, H, W, channels)
};

// How long an epoch is, where sources are mixed by weight.
enum class EpochEnd : std::uint8_t {
  first_exhausted,  // until one more sample would be one source's second time: none comes twice
  all_exhausted,    // until each sample has come
};

enum class BadChunk : std::uint8_t {
  raise,
  skip,  // the next good sample of the batch takes the place of one with a corrupt chunk
  fill,  // its elements are NaN, then `fill_nan`; 0 where integers are not converted
};

struct Options {
  Dimension sample_dim = std::int64_t{0};
  std::int64_t batch_size = 1;
  std::int64_t window = 1;  // steps
  std::int64_t stride = 1;  // between the steps of a window
  std::vector<std::int64_t> lead_time{};
  // Of each source, beside its own.
  std::vector<std::pair<std::int64_t, std::int64_t>> exclude{};
  std::vector<Patch> patches{};
  std::vector<Select> select{};
  std::vector<Stack> stack{};
  Layout layout = Layout::as_stored;

  Shuffle shuffle = Shuffle::block;
  // Along the sample dimension, mixed at a time; dealt to sources by their weights.
  std::int64_t block_chunks = 64;
  std::int64_t lanes = 8;  // block_chunks at most
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;         // to begin with
  std::vector<double> weights{};  // of the sources; only what they are to each other counts
  // With weights.
  std::variant<EpochEnd, std::int64_t> samples_per_epoch = EpochEnd::first_exhausted;
  std::int64_t rank = 0, world_size = 1;
  // The samples of an epoch that make no whole global batch. Kept, they are a last, smaller batch,
  // which may have no sample for some ranks.
  bool drop_last = true;

  Device device{};
  std::int64_t prefetch = 2;  // batches made ahead; 0: next() makes them, and there is no thread
  // Of batches, the one that the caller holds included, and of decoded chunks with what it takes to
  // decode them. The last is never more than one batch needs.
  std::size_t memory_budget = std::size_t{4} << 30;
  BadChunk on_bad_chunk = BadChunk::raise;
};

struct Batch {
  std::vector<Tensor> tensors;  // in the order of Loader::names()
  std::int64_t samples = 0;     // in it: batch_size, or less at the end of an epoch
  std::int64_t epoch = 0;
};

struct SampleOrigin {
  std::int64_t source = 0;
  std::int64_t step = 0;              // the first
  std::vector<std::int64_t> patch{};  // where it begins in each patched dimension
};

// What has been delivered, by all ranks together.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
};

// How well the order of an epoch mixes: distances of samples, in steps of the sample dimension, as
// a mean over the epoch and by those of a random order of all samples. 1 is as good as that, 0 is
// in order.
struct ShuffleQuality {
  double successive = 0;  // of a sample and the next
  // Of a sample and the nearest of the next 255: near 0 where samples of few chunks are mixed.
  double nearest = 0;
};

struct Stats {
  std::int64_t batches = 0, samples = 0;  // delivered by this rank
  double stall_s = 0;                     // that next() took
  double plan_s = 0, read_s = 0, gather_s = 0;
  std::int64_t queue_depth = 0;
  std::int64_t chunks_decoded = 0, cache_hits = 0;
  std::int64_t decoded_nbytes = 0;
  std::int64_t compressed_nbytes = 0;  // of the decoded chunks, as they are stored
  std::int64_t needed_nbytes = 0;      // of chunks, each once an epoch
  double read_amplification = 0;       // decoded by needed
  std::int64_t peak_cache_nbytes = 0;
  std::int64_t replaced_samples = 0;
  std::vector<std::string> bad_chunks{};    // what the errors said
  std::vector<std::string> failed_ahead{};  // likewise, of reads ahead: batches tried them again
};

// Copies are one loader. Any thread may take batches, one at a time: a second one's call, while
// there is one, is `invalid_argument`. A child of fork goes on by itself from what was delivered.
class Loader {
 public:
  // `invalid_argument` for what does not fit together, `out_of_memory` when the budget has no room
  // for the batches.
  Loader(std::vector<Source> sources, const Options& options);
  Loader(std::vector<Variable> variables, const Options& options);

  // Nothing: the epoch is over. `poll` is called some twenty times a second; what it throws ends
  // the wait and loses nothing.
  std::optional<Batch> next(const std::function<void()>& poll = {});

  std::int64_t batches() const;  // of a whole epoch, for this rank
  std::int64_t samples() const;  // of a whole epoch, in all
  std::vector<std::string> names() const;
  Shape batch_shape(std::size_t tensor) const;
  DType batch_dtype(std::size_t tensor) const;
  // Of sample `position` of the order of an epoch.
  SampleOrigin sample(std::int64_t epoch, std::int64_t position) const;

  Position position() const;
  // `invalid_argument` for what is no position of an epoch. Batches that were made ahead are lost.
  void seek(const Position& position);
  // What the order depends on, in a few letters: positions are those of loaders with the same.
  std::string order_id() const;

  ShuffleQuality shuffle_quality(std::int64_t epoch = 0) const;
  Stats stats() const;
  // Ends the thread and lets go of memory; next() starts anew.
  void close();

 private:
  class [[gnu::visibility("hidden")]] State;
  std::shared_ptr<State> state_;
};

}  // namespace headrace::loader
#pragma GCC visibility pop
