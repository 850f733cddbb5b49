#include "loader/plan_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"

namespace headrace::loader {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 60;  // sums of positions do not overflow

std::uint64_t array_nbytes(const PlannedVariable& variable) {
  std::uint64_t nbytes = variable.dtype.itemsize();
  for (const PlannedAxis& axis : variable.axes)
    nbytes = checked_mul(nbytes, static_cast<std::uint64_t>(axis.chunks.extent()), "array");
  return nbytes;
}

// Steps in a chunk of the arrays; of those with several lengths the longest. Arrays that are small
// beside the others, coordinates say, are no reason for longer blocks: reading them again costs
// nothing.
std::int64_t chunk_steps(std::span<const PlannedVariable> variables) {
  constexpr std::uint64_t kSmall = 64;
  std::uint64_t largest = 0;
  for (const PlannedVariable& variable : variables)
    largest = std::max(largest, array_nbytes(variable));
  std::int64_t steps = 1;
  for (const PlannedVariable& variable : variables) {
    if (array_nbytes(variable) < largest / kSmall) continue;
    steps = std::max(steps, variable.axes[variable.sample_axis].chunks.largest());
  }
  return steps;
}

// Blocks of neighbouring chunks along the sample dimension, `window_chunks` of them in a window.
// Where samples reach into further chunks these are decoded for two blocks unless they can be kept,
// so blocks are longer then.
SequenceOptions plan_blocks(const Plan& plan,
                            const PlannedSource& source,
                            std::int64_t window_chunks) {
  const std::int64_t chunk = chunk_steps(plan.variables_of(source));
  const std::int64_t reach =
      (*std::max_element(plan.offsets.begin(), plan.offsets.end()) + chunk - 1) / chunk;
  const std::int64_t run =
      reach == 0 ? 1 : std::min(window_chunks, checked_mul<std::int64_t>(8, reach, "window"));
  SequenceOptions sequence;
  sequence.window_blocks = std::max<std::int64_t>(window_chunks / run, 1);
  sequence.blocks.push_back(0);
  const std::int64_t steps = plan.steps_of(source);
  if (plan.options.shuffle == Shuffle::block) {
    for (std::int64_t step = run * chunk; step < steps; step += run * chunk)
      if (const std::int64_t bound = source.space.first_from(step); bound > sequence.blocks.back())
        sequence.blocks.push_back(bound);
  }
  if (source.space.size() > sequence.blocks.back()) sequence.blocks.push_back(source.space.size());
  return sequence;
}

// One after another, as one.
SequenceOptions joined(const std::vector<SequenceOptions>& sequences) {
  SequenceOptions all = sequences.front();
  for (std::size_t i = 1; i < sequences.size(); ++i) {
    const std::int64_t before = all.samples();
    all.window_blocks = std::min(all.window_blocks, sequences[i].window_blocks);
    for (std::size_t b = 1; b < sequences[i].blocks.size(); ++b)
      all.blocks.push_back(before + sequences[i].blocks[b]);
  }
  return all;
}

// About what an Order takes, which notes each block of each pass.
double order_nbytes(const OrderOptions& order) {
  constexpr double kBlockNbytes = 48;
  if (order.shuffle != Shuffle::block) return 0;
  double nbytes = 0;
  for (std::size_t s = 0; s < order.sources.size(); ++s) {
    const SequenceOptions& sequence = order.sources[s];
    const auto draws = static_cast<double>(order.mixture.count(s, order.size));
    const auto samples = static_cast<double>(std::max<std::int64_t>(sequence.samples(), 1));
    nbytes += draws / samples * static_cast<double>(sequence.blocks.size()) * kBlockNbytes;
  }
  return nbytes;
}

void check_order(const Plan& plan) {
  const double nbytes = order_nbytes(plan.order);
  if (nbytes <= static_cast<double>(plan.options.memory_budget)) return;
  refuse("memory_budget: the order of an epoch of " + std::to_string(plan.order.size) +
             " samples needs some " + std::to_string(std::llround(nbytes / (1 << 20))) +
             " MiB, got " + std::to_string(plan.options.memory_budget) +
             " bytes; shuffle=\"global\" needs none, fewer samples_per_epoch less",
         ErrorCode::out_of_memory);
}

void check_weights(const Plan& plan) {
  const std::vector<double>& weights = plan.options.weights;
  if (weights.size() != plan.sources.size())
    refuse("weights: expected " + std::to_string(plan.sources.size()) + ", one for each source, " +
           "got " + std::to_string(weights.size()));
  for (std::size_t s = 0; s < weights.size(); ++s) {
    if (!(weights[s] > 0) || !std::isfinite(weights[s]))
      refuse("weights: expected positive numbers, got " + std::to_string(weights[s]));
    if (plan.sources[s].space.size() == 0)
      refuse("source " + std::to_string(s) + ": has a weight and no samples");
  }
}

std::int64_t epoch_length(const Plan& plan) {
  std::vector<std::int64_t> samples;
  for (const SequenceOptions& sequence : plan.order.sources) samples.push_back(sequence.samples());
  const auto& wanted = plan.options.samples_per_epoch;
  if (const auto* count = std::get_if<std::int64_t>(&wanted)) {
    check_least(*count, 1, "samples_per_epoch");
    if (*count > kMostSamples)
      refuse("samples_per_epoch: expected at most 2^60, got " + std::to_string(*count));
    return *count;
  }
  return std::get<EpochEnd>(wanted) == EpochEnd::first_exhausted
             ? first_exhausted(plan.order.mixture, samples)
             : all_exhausted(plan.order.mixture, samples);
}

// What positions of an epoch depend on.
std::string identity(const Plan& plan) {
  constexpr std::uint64_t kVersion = 2;
  std::uint64_t id = kVersion;
  const auto add = [&](auto value) { id = mix({id, static_cast<std::uint64_t>(value)}); };
  const OrderOptions& order = plan.order;
  add(order.seed);
  add(order.shuffle);
  add(order.mixture.lanes());
  add(order.size);
  for (const SequenceOptions& sequence : order.sources) {
    add(sequence.window_blocks);
    for (const std::int64_t bound : sequence.blocks) add(bound);
  }
  for (const double weight : plan.options.weights) add(std::bit_cast<std::uint64_t>(weight));
  for (const PlannedSource& source : plan.sources) {
    add(plan.steps_of(source));
    for (const auto& [begin, end] : source.space.starts()) {
      add(begin);
      add(end);
    }
  }
  for (const std::int64_t offset : plan.offsets) add(offset);
  for (const PatchAxis& axis : plan.patches) {
    add(axis.patch.size);
    add(axis.extent);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[id >> shift & 15];
  return text;
}

// As if all sources were one.
void plan_joined(Plan& plan, std::int64_t lanes) {
  if (plan.options.samples_per_epoch != decltype(Options::samples_per_epoch){})
    refuse("samples_per_epoch: is for sources with weights");
  std::vector<SequenceOptions> sequences;
  for (const PlannedSource& source : plan.sources)
    sequences.push_back(plan_blocks(plan, source, plan.options.block_chunks / lanes));
  OrderOptions& order = plan.order;
  order.sources = {joined(sequences)};
  order.mixture = Mixture({1}, lanes);
  order.size = order.sources.front().samples();
}

void plan_weighted(Plan& plan, std::int64_t lanes) {
  check_weights(plan);
  const std::vector<double>& weights = plan.options.weights;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double lane_chunks =
      static_cast<double>(plan.options.block_chunks) / static_cast<double>(lanes);
  OrderOptions& order = plan.order;
  for (std::size_t s = 0; s < plan.sources.size(); ++s) {
    const auto chunks = static_cast<std::int64_t>(lane_chunks * weights[s] / sum);
    order.sources.push_back(plan_blocks(plan, plan.sources[s], std::max<std::int64_t>(chunks, 1)));
  }
  order.mixture = Mixture(weights, lanes);
  order.size = epoch_length(plan);
}

}  // namespace

void plan_order(Plan& plan) {
  const Options& options = plan.options;
  plan.order.shuffle = options.shuffle;
  plan.order.seed = options.seed;
  const PlannedSource& last = plan.sources.back();
  const std::int64_t samples = std::max<std::int64_t>(last.first_sample + last.space.size(), 1);
  const std::int64_t lanes = std::min({options.lanes, options.block_chunks, samples});
  options.weights.empty() ? plan_joined(plan, lanes) : plan_weighted(plan, lanes);
  check_order(plan);
  plan.order_id = identity(plan);
}

}  // namespace headrace::loader
