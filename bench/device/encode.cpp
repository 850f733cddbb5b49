#include "encode.h"

#include <blosc.h>
#include <cuda_runtime_api.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <stdexcept>

#include "stages.h"

namespace headrace {
namespace {

constexpr int kWarmups = 2, kRuns = 7;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

std::size_t room(std::size_t nbytes) { return nbytes + nbytes / 128 + 1024; }

template <std::uint32_t block_kib>
void zstd(Queue& queue, const EncodeBatch& batch) {
  gpu_kernels().zstd_encode(queue, batch, {block_kib * 1024, false});
}
std::size_t zstd_nbytes(const Bytes& chunk) {
  Bytes out(ZSTD_compressBound(chunk.size()));
  return ZSTD_compress(out.data(), out.size(), chunk.data(), chunk.size(), 1);
}
bool zstd_decodes(const Bytes& encoded, const Bytes& chunk) {
  Bytes out(chunk.size());
  return ZSTD_decompress(out.data(), out.size(), encoded.data(), encoded.size()) == out.size() &&
         out == chunk;
}

std::size_t lz4_nbytes(const Bytes& chunk) {
  const int n = static_cast<int>(chunk.size());
  std::vector<char> out(static_cast<std::size_t>(LZ4_compressBound(n)));
  return static_cast<std::size_t>(LZ4_compress_default(
      reinterpret_cast<const char*>(chunk.data()), out.data(), n, static_cast<int>(out.size())));
}
bool lz4_decodes(const Bytes& encoded, const Bytes& chunk) {
  Bytes out(chunk.size());
  return LZ4_decompress_safe(reinterpret_cast<const char*>(encoded.data()),
                             reinterpret_cast<char*>(out.data()),
                             static_cast<int>(encoded.size()),
                             static_cast<int>(out.size())) == static_cast<int>(out.size()) &&
         out == chunk;
}

void blosc(Queue& queue, const EncodeBatch& batch) {
  gpu_kernels().blosc_encode(
      queue, batch, {BloscFormat::Inner::lz4, BloscFormat::Filter::shuffle, 4, 5, 0});
}
std::size_t blosc_nbytes(const Bytes& chunk) {
  Bytes out(chunk.size() + BLOSC_MAX_OVERHEAD);
  return static_cast<std::size_t>(blosc_compress_ctx(
      5, BLOSC_SHUFFLE, 4, chunk.size(), chunk.data(), out.data(), out.size(), "lz4", 0, 1));
}
bool blosc_decodes(const Bytes& encoded, const Bytes& chunk) {
  Bytes out(chunk.size());
  return blosc_decompress_ctx(encoded.data(), out.data(), out.size(), 1) ==
             static_cast<int>(out.size()) &&
         out == chunk;
}

// Device memory of chunks and of what becomes of them.
struct Work {
  Work(Queue& queue, const std::vector<Bytes>& chunks, std::size_t count)
      : stride((chunks[0].size() + kSourcePadding + 15) / 16 * 16),
        capacity(room(chunks[0].size())),
        sources(queue, count * stride),
        targets(queue, count * capacity),
        sizes(queue, count),
        faults(queue, count) {
    queue.fill(faults.data(), 0, count * sizeof(std::uint32_t));
    for (std::size_t i = 0; i < count; ++i) {
      const Bytes& chunk = chunks[i % chunks.size()];
      queue.upload(sources.data() + i * stride, chunk.data(), chunk.size());
      frames.push_back({sources.data() + i * stride,
                        chunk.size(),
                        targets.data() + i * capacity,
                        capacity,
                        static_cast<std::uint32_t>(i)});
    }
    queue.synchronize();
  }
  EncodeBatch batch() const { return {frames, sizes.data(), faults.data()}; }
  std::vector<std::uint64_t> encoded_sizes(Queue& queue) const {
    std::vector<std::uint64_t> found(sizes.size());
    queue.download(found.data(), sizes.data(), found.size() * sizeof(std::uint64_t));
    queue.synchronize();
    return found;
  }
  Bytes encoded(Queue& queue, std::size_t i, std::size_t nbytes) const {
    Bytes bytes(nbytes);
    queue.download(bytes.data(), frames[i].target, nbytes);
    queue.synchronize();
    return bytes;
  }

  std::size_t stride, capacity;
  Scratch<std::uint8_t> sources, targets;
  Scratch<std::uint64_t> sizes;
  Scratch<std::uint32_t> faults;
  std::vector<Frame> frames;
};

}  // namespace

const std::vector<Encoder>& encoders() {
  static const std::vector<Encoder> all{
      {"encode-zstd", zstd<64>, zstd_nbytes, zstd_decodes},
      {"encode-zstd-32k", zstd<32>, zstd_nbytes, zstd_decodes},
      {"encode-lz4",
       [](Queue& queue, const EncodeBatch& batch) { gpu_kernels().lz4_encode(queue, batch); },
       lz4_nbytes,
       lz4_decodes},
      {"encode-blosc-lz4", blosc, blosc_nbytes, blosc_decodes},
  };
  return all;
}

Bytes encode_one(const Encoder& encoder, const Bytes& chunk) {
  const auto queue = make_gpu_queue(0);
  const Work work(*queue, {chunk}, 1);
  encoder.encode(*queue, work.batch());
  return work.encoded(*queue, 0, work.encoded_sizes(*queue)[0]);
}

nlohmann::json run_encoder(const Encoder& encoder,
                           const std::vector<Bytes>& chunks,
                           std::size_t count,
                           Queue& queue) {
  const Work work(queue, chunks, count);
  const auto stream = static_cast<cudaStream_t>(queue.native());
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kWarmups + kRuns; ++i) {
    check(cudaEventRecord(begin, stream));
    encoder.encode(queue, work.batch());
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= kWarmups) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());

  const std::vector<std::uint64_t> sizes = work.encoded_sizes(queue);
  std::size_t encoded = 0, wrong = 0, by_library = 0;
  for (const std::uint64_t nbytes : sizes) encoded += nbytes;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    by_library += encoder.library_nbytes(chunks[i]);
    for (const std::size_t k : {i, count - chunks.size() + i})
      wrong += !encoder.decodes_to(work.encoded(queue, k, sizes[k]), chunks[k % chunks.size()]);
  }
  const double decoded = static_cast<double>(count * chunks[0].size());
  const double us = times[kRuns / 2] * 1e3;
  return {{"microseconds", us},
          {"gigabytes_per_second", decoded / us / 1e3},
          {"ratio", decoded / static_cast<double>(encoded)},
          {"library_ratio",
           static_cast<double>(chunks.size() * chunks[0].size()) / static_cast<double>(by_library)},
          {"wrong_chunks", wrong}};
}

nlohmann::json run_encoder_stages(const Encoder& encoder,
                                  const std::vector<Bytes>& chunks,
                                  std::size_t count,
                                  Queue& queue) {
  const Work work(queue, chunks, count);
  const Stages found = time_stages(
      queue, [&] { encoder.encode(queue, work.batch()); }, [] {});
  return {{"microseconds", found.microseconds}, {"launches", found.launches}};
}

}  // namespace headrace
