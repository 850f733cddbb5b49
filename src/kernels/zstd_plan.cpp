#include "kernels/zstd_plan.h"

#include <cstring>
#include <functional>
#include <utility>

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

std::vector<Source> to_sources(std::span<const headrace::Frame> frames) {
  std::vector<Source> sources;
  sources.reserve(frames.size());
  for (const headrace::Frame& frame : frames) sources.push_back(to_source(frame));
  return sources;
}

std::size_t blocks_of_threads(std::size_t threads) {
  return (threads + kParseThreads - 1) / kParseThreads;
}

template <class T>
Scratch<T> upload(Queue& queue, const std::vector<T>& objects) {
  return Scratch<T>::of(queue, objects.data(), objects.size());
}

// Lays the parts of a plan out behind each other. What is known on the host is uploaded at once.
class PlanMemory {
 public:
  template <class T>
  void add(T*& part, std::size_t count, const T* known = nullptr) {
    parts_.push_back({nbytes_, [&part](u8* p) { part = reinterpret_cast<T*>(p); }});
    if (known && count) {
      host_.resize(nbytes_ + count * sizeof(T));
      std::memcpy(host_.data() + nbytes_, known, count * sizeof(T));
    }
    nbytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  Scratch<u8> make(Queue& queue) const {
    Scratch<u8> memory(queue, nbytes_);
    queue.upload(memory.data(), host_.data(), host_.size());
    for (const auto& [offset, set] : parts_) set(memory.data() + offset);
    return memory;
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  std::vector<std::pair<std::size_t, std::function<void(u8*)>>> parts_;
  std::vector<u8> host_;
  std::size_t nbytes_ = 0;
};

// What parsing on the host finds. Sources are walked once, or again when the room was too little.
class HostParse {
 public:
  // Of a source behind those that `tally` counts, which it joins unless there is a fault.
  Fault parse(const u8* data, const Source& source, u32 index, Tally& tally) {
    const Parser start(data, source.nbytes, source.target_nbytes, index, tally);
    Parser parser = start;
    const Fault fault = parser.run(output());
    if (fault != Fault::none) return fault;
    if (parser.tally().blocks > blocks_.size()) {
      resize(2 * std::size_t{parser.tally().blocks});
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

  std::vector<Frame> frames_;
  std::vector<Block> blocks_;
  std::vector<u32> with_sequences_, with_pool_literals_;
};

}  // namespace

std::vector<Counted> count_on_device(Queue& queue, std::span<const headrace::Frame> frames) {
  const auto sources = upload(queue, to_sources(frames));
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
  plan.sources = to_sources(frames);
  std::vector<Tally> before;
  Tally& at = plan.total;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Source& source = plan.sources[i];
    const Tally& own = counted[i].tally;
    before.push_back(at);
    source.fault = counted[i].fault;
    source.first_block = at.blocks;
    source.first_frame = at.frames;
    at.records += own.records;
    at.literals += own.literals;
    at.frames += own.frames;
    at.blocks += own.blocks;
    at.with_sequences += own.with_sequences;
    at.with_pool_literals += own.with_pool_literals;
    at.checksums += own.checksums;
    source.end_block = at.blocks;
    source.end_frame = at.frames;
  }
  Tally* device_before = nullptr;
  PlanMemory memory;
  memory.add(plan.device_sources, plan.sources.size(), plan.sources.data());
  memory.add(device_before, before.size(), before.data());
  memory.add(plan.frames, at.frames);
  memory.add(plan.blocks, at.blocks);
  memory.add(plan.with_sequences, at.with_sequences);
  memory.add(plan.with_pool_literals, at.with_pool_literals);
  plan.memory = memory.make(queue);
  simt::launch(
      queue,
      blocks_of_threads(frames.size()),
      ParseSources{
          plan.device_sources,
          static_cast<u32>(frames.size()),
          device_before,
          {at.blocks, plan.frames, plan.blocks, plan.with_sequences, plan.with_pool_literals}});
  return plan;
}

Plan parse_on_host(Queue& queue,
                   std::span<const headrace::Frame> batch,
                   std::span<const u8* const> host_sources) {
  Plan plan;
  plan.sources = to_sources(batch);
  HostParse found;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Source& source = plan.sources[i];
    Tally after = plan.total;
    if (source.fault == Fault::none)
      source.fault = found.parse(host_sources[i], source, static_cast<u32>(i), after);
    source.first_block = plan.total.blocks;
    source.end_block = after.blocks;
    source.first_frame = plan.total.frames;
    source.end_frame = after.frames;
    plan.total = after;
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
