#include "kernels/zstd_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "kernels/zstd_look_ahead.h"
#include "simt/recycling_vector.h"

namespace headrace::SIMT_SPACE::zstd {
namespace {

constexpr unsigned kParseThreads = 64;

struct CountSources {
  static constexpr unsigned kThreads = kParseThreads;
  using Shared = simt::NoShared;
  const Source* sources;
  u32 count;
  Counted* counted;

  SIMT_DEVICE void operator()(Shared&) const {
    const u32 i = simt::block_index() * kThreads + simt::thread_index();
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
    const u32 i = simt::block_index() * kThreads + simt::thread_index();
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

// Larger slabs are hardly faster. Scratch memory is bounded to 1.4 bytes a decoded byte of a slab:
// kSlabScratch, and 64 MiB of entries in the execution. A source on its own may need more.
constexpr u64 kSlabNbytes = u64{512} << 20, kSlabScratch = u64{640} << 20;

u64 scratch_nbytes(const Tally& tally) {
  return tally.records * sizeof(Record) + tally.literals +
         tally.blocks * (sizeof(Block) + sizeof(BlockResult) + sizeof(PlacedBlock));
}

// Adds sources to a plan as long as they fit.
class Slab {
 public:
  explicit Slab(Plan& plan) : plan_(plan) {}

  // `after`: the tally with this source.
  bool add(Source source, const Tally& after) {
    nbytes_ += std::max(source.nbytes, source.target_nbytes);
    if (!plan_.sources.empty() && (nbytes_ > kSlabNbytes || scratch_nbytes(after) > kSlabScratch))
      return false;
    source.first_block = plan_.total.blocks;
    source.end_block = after.blocks;
    source.first_frame = plan_.total.frames;
    source.end_frame = after.frames;
    plan_.sources.push_back(source);
    plan_.total = after;
    return true;
  }

 private:
  Plan& plan_;
  u64 nbytes_ = 0;
};

std::size_t blocks_of_threads(std::size_t threads) {
  return (threads + kParseThreads - 1) / kParseThreads;
}

// Lays the parts of a plan out behind each other. What is known on the host is uploaded at once.
class PlanMemory {
 public:
  template <class T>
  void add(T*& part, std::size_t count, const T* known = nullptr) {
    parts_.push_back({[&part](u8* p) { part = reinterpret_cast<T*>(p); },
                      nbytes_,
                      known,
                      known ? count * sizeof(T) : 0});
    nbytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  Scratch<u8> make(Queue& queue) const {
    std::size_t known_nbytes = 0;
    for (const Part& part : parts_)
      if (part.known) known_nbytes = part.offset + part.known_nbytes;
    RecyclingVector<u8> host(known_nbytes);
    for (const Part& part : parts_)
      if (part.known_nbytes) std::memcpy(host.data() + part.offset, part.known, part.known_nbytes);
    Scratch<u8> memory(queue, nbytes_);
    queue.upload(memory.data(), host.data(), known_nbytes);
    for (const Part& part : parts_) part.set(memory.data() + part.offset);
    return memory;
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  struct Part {
    std::function<void(u8*)> set;
    std::size_t offset;
    const void* known;
    std::size_t known_nbytes;
  };
  std::vector<Part> parts_;
  std::size_t nbytes_ = 0;
};

// What parsing on the host finds. Sources are walked once, or again when the room was too little.
class HostParse {
 public:
  void reserve(std::size_t blocks) {
    if (blocks > blocks_.size()) resize(std::max(blocks, 2 * blocks_.size()));
  }

  // Of a source behind those that `tally` counts, which it joins unless there is a fault.
  Fault parse(const u8* data, const Source& source, u32 index, Tally& tally) {
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

  ParseOutput output() {
    return {static_cast<u32>(blocks_.size()),
            frames_.data(),
            blocks_.data(),
            with_sequences_.data(),
            with_pool_literals_.data()};
  }

 private:
  void resize(std::size_t blocks) {
    frames_.resize(blocks);
    blocks_.resize(blocks);
    with_sequences_.resize(blocks);
    with_pool_literals_.resize(blocks);
  }

  RecyclingVector<Frame> frames_;
  RecyclingVector<Block> blocks_;
  RecyclingVector<u32> with_sequences_, with_pool_literals_;
};

}  // namespace

std::vector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames) {
  std::vector<Source> on_host;
  on_host.reserve(frames.size());
  for (const headrace::Frame& frame : frames) on_host.push_back(to_source(frame));
  const auto sources = Scratch<Source>::of(queue, on_host.data(), on_host.size());
  const Scratch<Counted> counted(queue, frames.size());
  simt::launch(queue,
               blocks_of_threads(frames.size()),
               CountSources{sources.data(), static_cast<u32>(frames.size()), counted.data()});
  std::vector<Counted> result(frames.size());
  queue.download(result.data(), counted.data(), result.size() * sizeof(Counted));
  queue.synchronize();
  return result;
}

Plan parse_on_device(Queue& queue,
                     std::span<const headrace::Frame> frames,
                     std::span<const Counted> counted) {
  Plan plan;
  Slab slab(plan);
  std::vector<Tally> before;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Source source = to_source(frames[i]);
    source.fault = counted[i].fault;
    const Tally at = plan.total;
    if (!slab.add(source, at + counted[i].tally)) break;
    before.push_back(at);
  }
  Tally* device_before = nullptr;
  PlanMemory memory;
  memory.add(plan.device_sources, plan.sources.size(), plan.sources.data());
  memory.add(device_before, before.size(), before.data());
  memory.add(plan.frames, plan.total.frames);
  memory.add(plan.blocks, plan.total.blocks);
  memory.add(plan.with_sequences, plan.total.with_sequences);
  memory.add(plan.with_pool_literals, plan.total.with_pool_literals);
  plan.memory = memory.make(queue);
  simt::launch(queue,
               blocks_of_threads(plan.sources.size()),
               ParseSources{plan.device_sources,
                            static_cast<u32>(plan.sources.size()),
                            device_before,
                            {plan.total.blocks,
                             plan.frames,
                             plan.blocks,
                             plan.with_sequences,
                             plan.with_pool_literals}});
  return plan;
}

Plan parse_on_host(Queue& queue,
                   std::span<const headrace::Frame> frames,
                   std::span<const u8* const> host_sources) {
  Plan plan;
  Slab slab(plan);
  HostParse found;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i % kLookAhead == 0)
      found.reserve(plan.total.blocks + look_ahead(frames.subspan(i), host_sources.subspan(i)));
    Source source = to_source(frames[i]);
    Tally after = plan.total;
    if (source.fault == Fault::none)
      source.fault = found.parse(host_sources[i], source, static_cast<u32>(i), after);
    if (!slab.add(source, after)) break;
  }
  const ParseOutput known = found.output();
  PlanMemory memory;
  memory.add(plan.device_sources, plan.sources.size(), plan.sources.data());
  memory.add(plan.frames, plan.total.frames, known.frames);
  memory.add(plan.blocks, plan.total.blocks, known.blocks);
  memory.add(plan.with_sequences, plan.total.with_sequences, known.with_sequences);
  memory.add(plan.with_pool_literals, plan.total.with_pool_literals, known.with_pool_literals);
  plan.memory = memory.make(queue);
  return plan;
}

}  // namespace headrace::SIMT_SPACE::zstd
