#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "device/backend.h"
#include "engine/layout/device_plan.h"
#include "headrace/error.h"
#include "kernels/kernels.h"
#include "simt/recycling_vector.h"

namespace headrace {

// A chunk before the first step and after the last.
struct DeviceChunk {
  std::size_t nbytes = 0;                // encoded
  const Headers* headers = nullptr;      // of read_headers(), if it gave any
  const std::uint8_t* source = nullptr;  // encoded, on the device, padded as kernels want it
  std::uint8_t* target = nullptr;        // where the caller wants it; null when anywhere will do
  std::size_t said_nbytes = 0;           // of said_nbytes(), where the plan does not tell
};

// Memory of a device that outlives the queues that fill it: what elements of variable length point
// into. Any thread adds to it.
class KeptMemory {
 public:
  std::uint8_t* add(std::shared_ptr<void> memory) {
    const MutexLock lock(mutex_);
    return static_cast<std::uint8_t*>(memory_.emplace_back(std::move(memory)).get());
  }

 private:
  Mutex mutex_;
  std::vector<std::shared_ptr<void>> memory_ GUARDED_BY(mutex_);
};

// The chunks of one batch on their way through the steps of a plan.
class DeviceDecoder {
 public:
  // `kept` gets what elements of variable length point into; null where the plan has none.
  DeviceDecoder(Queue& queue,
                Backend& devices,
                std::span<const DeviceChunk> chunks,
                KeptMemory* kept = nullptr);

  // Gives all steps to the queue. `faults` is device memory, zeros: one a step and chunk,
  // faults[step * chunks + chunk].
  void run(const DevicePlan& plan, std::uint32_t* faults);
  // Where a chunk lies after the last step, as long as this lives.
  const std::uint8_t* result(std::size_t chunk) const { return frames_[chunk].source; }

 private:
  void verify(const DeviceStep& step, std::uint32_t* faults);
  void move(const DevicePlan& plan, std::size_t step, std::uint32_t* faults);
  Scratch<std::uint8_t> place_targets(const DeviceStep& step, bool last, bool is_kept);
  void transpose(const DeviceStep& step);

  Queue& queue_;
  Backend& devices_;
  const Kernels& kernels_;
  std::span<const DeviceChunk> chunks_;
  KeptMemory* const kept_;
  RecyclingVector<Frame> frames_;
  RecyclingVector<const Headers*> headers_;  // of all chunks or none
  Scratch<std::uint8_t> current_;            // what the last step gave
};

bool has_kernel(const Kernels& kernels, DeviceStage::Kind kind);
// Those of a library that the backend offers; its own when no library is named.
const Kernels& kernels_of(const Backend& devices, std::string_view library);
// Why devices of the type lack a decoder, headrace's own or the library's; empty when they have it.
std::string missing_decoder(const Backend& devices,
                            DeviceStage::Kind kind,
                            std::string_view library);
// Why devices of the type cannot run the plan; empty when they can.
std::string missing_decoder(const Backend& devices, const DevicePlan& plan);

// What the host has of the sources of a stage: their bytes, or what it has read in them, or
// nothing. As in DecodeBatch.
struct OnHost {
  std::span<const std::uint8_t*> sources{};
  std::span<const Headers* const> headers{};
};

// Gives one stage to the queue: frames[i].source, of the size that the stage makes of
// frames[i].target_nbytes, to frames[i].target. What lies before the encoded bytes is skipped, in
// `frames` and in the host's sources. `gives_planes`: DecodeBatch::planes. Not for transposes,
// which need a shape.
void run_stage(Queue& queue,
               const Kernels& kernels,
               const DeviceStage& stage,
               std::span<Frame> frames,
               const OnHost& on_host,
               std::uint32_t* faults,
               bool gives_planes = false);

// As much memory as `nbytes` of a source take.
std::size_t aligned_nbytes(std::size_t nbytes);
// The parts of chunks that a filter takes each by itself, the last of each with what is left.
std::vector<Frame> filter_blocks(const DeviceStage& stage, std::span<const Frame> chunks);

// How many bytes at the beginning of a chunk check_encoded() looks at.
std::size_t checked_nbytes_of(const DevicePlan& plan);
// `corrupt` when `nbytes` encoded bytes cannot be a chunk of the plan, as far as the host can tell
// without decoding. `host`: the bytes; not looked at where the plan has no compressor.
void check_encoded(const DevicePlan& plan,
                   std::size_t decoded_nbytes,
                   std::size_t nbytes,
                   const std::byte* host);

// Of a chunk whose encoded bytes the host has, and check_encoded() took, what they say that its
// compressor gives, where the plan does not tell; else 0. `unsupported` where they do not say it.
std::size_t said_nbytes(const DevicePlan& plan, ConstBytes encoded);
// Of such a chunk what the kernel of its compressor asks for, so that it need neither wait for the
// device nor find the bytes on the host later. Null where it asks for nothing.
std::unique_ptr<const Headers> read_headers(const Backend& devices,
                                            const DevicePlan& plan,
                                            ConstBytes encoded,
                                            std::size_t said_nbytes = 0);

// The error for a fault that a step found.
Error fault_error(const DeviceStep& step, Fault fault);

}  // namespace headrace
