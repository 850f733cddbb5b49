#include "kernels/zstd/plan.h"

#include <algorithm>
#include <functional>

#include "kernels/tuning.h"
#include "kernels/zstd/decode.h"
#include "kernels/zstd/look_ahead.h"
#include "simt/ranges.h"

namespace headrace::SIMT_SPACE {
namespace zstd {
namespace {

constexpr unsigned kParseThreads = 64;

struct CountSources {
  static constexpr unsigned kThreads = kParseThreads;
  using Shared = simt::NoShared;
  const Source* sources;
  u32 count;
  Counted* counted;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= count) return;
    const Source source = sources[i];
    Parser parser(source.data, source.nbytes, source.target_nbytes, i, {});
    const Fault fault = source.fault == Fault::none ? parser.run({}) : source.fault;
    counted[i] = {fault == Fault::none ? parser.tally() : Tally{}, fault};
  }
};

struct ParseSources {
  static constexpr unsigned kThreads = kParseThreads;
  using Shared = simt::NoShared;
  const Source* sources;
  u32 count;
  const Tally* before;
  ParseOutput output;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::cta_index() * kThreads + simt::thread_index();
    if (i >= count) return;
    const Source source = sources[i];
    if (source.fault != Fault::none) return;
    Parser parser(source.data, source.nbytes, source.target_nbytes, i, before[i]);
    parser.run(output);
  }
};

// Offsets are held in 32 bits.
Source to_source(const headrace::Frame& frame) {
  Source source{};
  source.data = frame.source;
  source.target = frame.target;
  source.chunk = frame.chunk;
  constexpr u64 kLimit = u64{4} << 30;
  if (frame.source_nbytes >= kLimit || frame.target_nbytes >= kLimit - 1) {
    source.fault = Fault::unsupported;
  } else {
    source.nbytes = static_cast<u32>(frame.source_nbytes);
    source.target_nbytes = static_cast<u32>(frame.target_nbytes);
  }
  return source;
}

u64 scratch_nbytes(const Tally& tally) {
  return tally.records * sizeof(Record) + tally.literals +
         tally.blocks * (sizeof(Block) + sizeof(BlockResult) + sizeof(PlacedBlock));
}

std::size_t blocks_of_threads(std::size_t threads) {
  return (threads + kParseThreads - 1) / kParseThreads;
}

// Of the first of the frames, as many as fit; at least one. `before`: what there is before each.
Plan list_sources(std::span<const headrace::Frame> frames,
                  std::span<const Counted> counted,
                  const Tuning::Zstd& tuning,
                  RecyclingVector<Tally>& before) {
  Plan plan;
  plan.sources.reserve(frames.size());
  before.reserve(frames.size());
  u64 nbytes = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Source source = to_source(frames[i]);
    const Tally after = plan.total + counted[i].tally;
    nbytes += std::max(source.nbytes, source.target_nbytes);
    if (i > 0 && (nbytes > tuning.slab_nbytes || scratch_nbytes(after) > tuning.slab_scratch))
      break;
    source.fault = counted[i].fault;
    source.first_block = plan.total.blocks;
    source.end_block = after.blocks;
    source.first_frame = plan.total.frames;
    source.end_frame = after.frames;
    plan.sources.push_back(source);
    before.push_back(plan.total);
    plan.total = after;
  }
  return plan;
}

// Lays the parts of a plan out behind each other.
class PlanMemory {
 public:
  template <class T>
  void add(T*& part, std::size_t count) {
    parts_.push_back({[&part](u8* p) { part = reinterpret_cast<T*>(p); }, nbytes_});
    nbytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  Scratch<u8> make(Queue& queue) const {
    Scratch<u8> memory(queue, nbytes_);
    for (const Part& part : parts_) part.set(memory.data() + part.offset);
    return memory;
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  struct Part {
    std::function<void(u8*)> set;
    std::size_t offset;
  };
  std::vector<Part> parts_;
  std::size_t nbytes_ = 0;
};

void add_parsed(PlanMemory& memory, Plan& plan) {
  memory.add(plan.frames, plan.total.frames);
  memory.add(plan.blocks, plan.total.blocks);
  memory.add(plan.with_sequences, plan.total.with_sequences);
  memory.add(plan.with_pool_literals, plan.total.with_pool_literals);
}

ParseOutput output_of(const Plan& plan) {
  return {
      plan.total.blocks, plan.frames, plan.blocks, plan.with_sequences, plan.with_pool_literals};
}

constexpr u64 kRangeBlocks = 256;  // some 25 us of parsing

// Of sources, by the number of blocks that libzstd makes.
std::size_t range_length(std::span<const headrace::Frame> frames) {
  u64 blocks = 1;
  for (const headrace::Frame& frame : frames)
    blocks += (frame.target_nbytes + kMaxBlock - 1) / kMaxBlock;
  return std::max<u64>(1, kRangeBlocks * frames.size() / blocks);
}

}  // namespace

RecyclingVector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames) {
  std::vector<Source> on_host;
  on_host.reserve(frames.size());
  for (const headrace::Frame& frame : frames) on_host.push_back(to_source(frame));
  const auto sources = Scratch<Source>::of(queue, on_host.data(), on_host.size());
  const Scratch<Counted> counted(queue, frames.size());
  simt::launch(queue,
               blocks_of_threads(frames.size()),
               CountSources{sources.data(), static_cast<u32>(frames.size()), counted.data()});
  RecyclingVector<Counted> result(frames.size());
  queue.download(result.data(), counted.data(), result.size() * sizeof(Counted));
  queue.synchronize();
  return result;
}

Plan parse_on_device(Queue& queue,
                     std::span<const headrace::Frame> frames,
                     std::span<const Counted> counted) {
  RecyclingVector<Tally> before;
  Plan plan = list_sources(frames, counted, tuning_of(queue).zstd, before);
  Tally* device_before = nullptr;
  PlanMemory memory;
  memory.add(plan.device_sources, plan.sources.size());
  memory.add(device_before, before.size());
  add_parsed(memory, plan);
  plan.memory = memory.make(queue);
  queue.upload(plan.device_sources, plan.sources.data(), plan.sources.size() * sizeof(Source));
  queue.upload(device_before, before.data(), before.size() * sizeof(Tally));
  simt::launch(queue,
               blocks_of_threads(plan.sources.size()),
               ParseSources{plan.device_sources,
                            static_cast<u32>(plan.sources.size()),
                            device_before,
                            output_of(plan)});
  return plan;
}

HostParse::HostParse(std::span<const headrace::Frame> frames,
                     std::span<const u8* const> host_sources)
    : length_(range_length(frames)),
      counted_(frames.size()),
      parsed_((frames.size() + length_ - 1) / length_) {
  for (const ParsedRange& range : parsed_) ranges_.push_back(&range);
  for_each_range(frames.size(), length_, [&](std::size_t begin, std::size_t end) {
    ParsedRange& range = parsed_[begin / length_];
    range.reserve(kRangeBlocks);
    Tally tally;
    for (std::size_t i = begin; i < end; ++i) {
      if ((i - begin) % kLookAhead == 0)
        range.reserve(tally.blocks +
                      look_ahead(frames.subspan(i, end - i), host_sources.subspan(i)));
      const Source source = to_source(frames[i]);
      const Tally before = tally;
      const Fault fault =
          source.fault == Fault::none
              ? range.parse(host_sources[i], source, static_cast<u32>(i - begin), tally)
              : source.fault;
      counted_[i] = {tally - before, fault};
    }
  });
}

HostParse::HostParse(std::span<const Headers* const> headers)
    : length_(1), counted_(headers.size()), ranges_(headers.size()) {
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const auto& source = static_cast<const SourceHeaders&>(*headers[i]);
    counted_[i] = source.counted;
    ranges_[i] = &source.parsed;
  }
}

Plan HostParse::upload(Queue& queue,
                       std::span<const headrace::Frame> frames,
                       std::size_t first) const {
  RecyclingVector<Tally> before;
  Plan plan = list_sources(
      frames.subspan(first), std::span(counted_).subspan(first), tuning_of(queue).zstd, before);
  PlanMemory memory;
  memory.add(plan.device_sources, plan.sources.size());
  add_parsed(memory, plan);
  plan.memory = memory.make(queue);
  queue.upload_made(plan.memory.data(), plan.memory.size(), [&](void* host) {
    const auto twin = [&]<class T>(T* part) {
      return reinterpret_cast<T*>(static_cast<u8*>(host) +
                                  (reinterpret_cast<u8*>(part) - plan.memory.data()));
    };
    const ParseOutput output{plan.total.blocks,
                             twin(plan.frames),
                             twin(plan.blocks),
                             twin(plan.with_sequences),
                             twin(plan.with_pool_literals)};
    std::ranges::copy(plan.sources, twin(plan.device_sources));
    const std::size_t last = first + plan.sources.size() - 1, first_range = first / length_;
    const std::size_t ranges = last / length_ + 1 - first_range;
    const std::size_t at_once =
        std::max<std::size_t>(1, kRangeBlocks * ranges / std::max<u32>(plan.total.blocks, 1));
    for_each_range(ranges, at_once, [&](std::size_t begin_range, std::size_t end_range) {
      for (std::size_t i = begin_range; i < end_range; ++i) {
        const std::size_t range_begin = (first_range + i) * length_;
        const std::size_t begin = std::max(first, range_begin);
        const std::size_t end = std::min(last + 1, range_begin + length_);
        Tally from;
        for (std::size_t s = range_begin; s < begin; ++s) from = from + counted_[s].tally;
        const Tally to = before[begin - first];
        const Tally after = end == last + 1 ? plan.total : before[end - first];
        ranges_[first_range + i]->copy(
            from, to, after - to, static_cast<u32>(range_begin - first), output);
      }
    });
  });
  return plan;
}

void ParsedRange::reserve(std::size_t blocks) {
  if (blocks > blocks_.size()) resize(std::max(blocks, 2 * blocks_.size()));
}

void ParsedRange::resize(std::size_t blocks) {
  frames_.resize(blocks);
  blocks_.resize(blocks);
  with_sequences_.resize(blocks);
  with_pool_literals_.resize(blocks);
}

Fault ParsedRange::parse(const u8* data, const Source& source, u32 index, Tally& tally) {
  const Parser start(data, source.nbytes, source.target_nbytes, index, tally);
  Parser parser = start;
  const Fault fault = parser.run(output());
  if (fault != Fault::none) return fault;
  if (parser.tally().blocks > blocks_.size()) {
    reserve(parser.tally().blocks);
    Parser(start).run(output());
  }
  tally = parser.tally();
  return Fault::none;
}

ParseOutput ParsedRange::output() {
  return {static_cast<u32>(blocks_.size()),
          frames_.data(),
          blocks_.data(),
          with_sequences_.data(),
          with_pool_literals_.data()};
}

void ParsedRange::copy(const Tally& from,
                       const Tally& to,
                       const Tally& count,
                       u32 first_source,
                       const ParseOutput& output) const {
  const Tally shift = to - from;
  for (u32 i = 0; i < count.frames; ++i) {
    Frame& frame = output.frames[to.frames + i] = frames_[from.frames + i];
    frame.source += first_source;
    frame.first_block += shift.blocks;
    frame.end_block += shift.blocks;
  }
  for (u32 i = 0; i < count.blocks; ++i) {
    Block& block = output.blocks[to.blocks + i] = blocks_[from.blocks + i];
    block.source += first_source;
    block.frame += shift.frames;
    block.records += shift.records;
    block.literals += shift.literals;
  }
  for (u32 i = 0; i < count.with_sequences; ++i)
    output.with_sequences[to.with_sequences + i] =
        with_sequences_[from.with_sequences + i] + shift.blocks;
  for (u32 i = 0; i < count.with_pool_literals; ++i)
    output.with_pool_literals[to.with_pool_literals + i] =
        with_pool_literals_[from.with_pool_literals + i] + shift.blocks;
}

}  // namespace zstd

std::unique_ptr<const Headers> read_zstd_headers(const u8* source,
                                                 u64 source_nbytes,
                                                 u64 target_nbytes) {
  // As libzstd makes them; of smaller ones there is more than one walk.
  constexpr u64 kMostBlocks = 4096;
  auto headers = std::make_unique<zstd::SourceHeaders>();
  const zstd::Source whole =
      zstd::to_source({.source_nbytes = source_nbytes, .target_nbytes = target_nbytes});
  headers->parsed.reserve(std::min(target_nbytes / zstd::kMaxBlock + 2, kMostBlocks));
  zstd::Tally tally;
  const Fault fault =
      whole.fault == Fault::none ? headers->parsed.parse(source, whole, 0, tally) : whole.fault;
  headers->counted = {tally, fault};
  return headers;
}

}  // namespace headrace::SIMT_SPACE
