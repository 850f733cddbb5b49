// Decode and encode of each codec beside the library under it, and the shuffles beside memcpy.
// Bytes a second are decoded bytes. Data: a smooth float32 field packed to 16 bits, as ERA5 has
// them.

#include <benchmark/benchmark.h>
#include <blosc.h>
#include <libdeflate.h>
#include <lz4.h>
#include <zstd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "codec/codec.h"
#include "codec/registry.h"
#include "codec/shuffle.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kChunk = std::size_t{4} << 20;

Bytes packed_field(std::size_t nbytes) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.05);
  Bytes out(nbytes);
  double walk = 0;
  for (std::size_t i = 0; i < nbytes / 4; ++i) {
    walk = 0.98 * walk + noise(random);
    const double field = 280 + 12 * std::sin(static_cast<double>(i) * 3e-4) + walk;
    const double packed = std::round((field - 250) * 1000);
    const auto v = static_cast<float>(packed / 1000 + 250);
    std::memcpy(out.data() + 4 * i, &v, 4);
  }
  return out;
}

const Bytes& field() {
  static const Bytes data = packed_field(kChunk);
  return data;
}

CodecPtr make(const char* name, const char* configuration, const char* implementation) {
  Implementations chosen;
  if (*implementation != '\0') chosen.emplace(canonical_codec_name(name), implementation);
  return resolve_codec({name, configuration},
                       {{DType::float32, {kChunk / 4}, {}}, CodecPosition::after_bytes, &chosen},
                       chosen);
}

void count_bytes(benchmark::State& state, std::size_t decoded, std::size_t encoded) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(decoded));
  state.counters["ratio"] = static_cast<double>(decoded) / static_cast<double>(encoded);
}

void bm_decode(benchmark::State& state,
               const char* name,
               const char* configuration,
               const char* implementation,
               int threads) {
  const CodecPtr codec = make(name, configuration, implementation);
  Buffer encoded;
  codec->encode(field(), encoded);
  Bytes out(field().size());
  for (auto _ : state) {
    codec->decode(encoded, out, {threads});
    benchmark::DoNotOptimize(out.data());
  }
  count_bytes(state, out.size(), encoded.size());
}

void bm_encode(benchmark::State& state, const char* name, const char* configuration) {
  const CodecPtr codec = make(name, configuration, "");
  Buffer encoded;
  for (auto _ : state) {
    codec->encode(field(), encoded);
    benchmark::DoNotOptimize(encoded.data());
  }
  count_bytes(state, field().size(), encoded.size());
}

// One float at `at` of the chunk.
void bm_point(benchmark::State& state, const char* name, const char* configuration, double at) {
  struct Point final : PieceSink {
    std::size_t at = 0;
    std::byte value[4];
    std::size_t begin() const override { return at; }
    std::size_t end() const override { return at + 4; }
    bool wants(std::size_t offset, std::size_t n) const override {
      return offset < at + 4 && at < offset + n;
    }
    void put(std::size_t offset, ConstBytes piece) override {
      std::memcpy(value, piece.data() + (at - offset), 4);
    }
    std::byte* direct(std::size_t, std::size_t) override { return nullptr; }
  } sink;
  sink.at = static_cast<std::size_t>(at * kChunk) / 4 * 4;
  const CodecPtr codec = make(name, configuration, "");
  Buffer encoded;
  codec->encode(field(), encoded);
  for (auto _ : state) {
    codec->piece_decoder()->decode_pieces(encoded, kChunk, sink, {});
    benchmark::DoNotOptimize(sink.value);
  }
}

void bm_raw_zstd_decode(benchmark::State& state) {
  Bytes encoded(ZSTD_compressBound(kChunk)), out(kChunk);
  encoded.resize(ZSTD_compress(encoded.data(), encoded.size(), field().data(), kChunk, 3));
  ZSTD_DCtx* context = ZSTD_createDCtx();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ZSTD_decompressDCtx(context, out.data(), out.size(), encoded.data(), encoded.size()));
  }
  ZSTD_freeDCtx(context);
  count_bytes(state, kChunk, encoded.size());
}

void bm_raw_libdeflate_decode(benchmark::State& state) {
  Bytes encoded(kChunk * 2), out(kChunk);
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(5);
  encoded.resize(
      libdeflate_gzip_compress(compressor, field().data(), kChunk, encoded.data(), encoded.size()));
  libdeflate_decompressor* context = libdeflate_alloc_decompressor();
  for (auto _ : state) {
    std::size_t n = 0;
    benchmark::DoNotOptimize(libdeflate_gzip_decompress(
        context, encoded.data(), encoded.size(), out.data(), out.size(), &n));
  }
  libdeflate_free_compressor(compressor);
  libdeflate_free_decompressor(context);
  count_bytes(state, kChunk, encoded.size());
}

void bm_raw_lz4_decode(benchmark::State& state) {
  Bytes encoded(static_cast<std::size_t>(LZ4_compressBound(kChunk))), out(kChunk);
  const auto* src = reinterpret_cast<const char*>(field().data());
  auto* mid = reinterpret_cast<char*>(encoded.data());
  const int n = LZ4_compress_default(src, mid, kChunk, static_cast<int>(encoded.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        LZ4_decompress_safe(mid, reinterpret_cast<char*>(out.data()), n, kChunk));
  }
  count_bytes(state, kChunk, static_cast<std::size_t>(n));
}

void bm_memcpy(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  Bytes out(n);
  for (auto _ : state) {
    std::memcpy(out.data(), field().data(), n);
    benchmark::DoNotOptimize(out.data());
  }
  count_bytes(state, n, n);
}

enum class Way { unshuffle, shuffle, bit_unshuffle, bit_shuffle };

void bm_shuffle(benchmark::State& state, Way way, std::size_t typesize) {
  const auto nbytes = static_cast<std::size_t>(state.range(0));
  const std::size_t n = nbytes / typesize;
  Bytes out(nbytes), in(field().begin(), field().begin() + static_cast<std::ptrdiff_t>(nbytes));
  std::vector<std::byte*> to(typesize);
  std::vector<const std::byte*> from(typesize);
  for (std::size_t j = 0; j < typesize; ++j) {
    to[j] = out.data() + j * n;
    from[j] = in.data() + j * n;
  }
  for (auto _ : state) {
    switch (way) {
      case Way::unshuffle:
        unshuffle(from.data(), typesize, n, out.data());
        break;
      case Way::shuffle:
        shuffle(in.data(), typesize, n, to.data());
        break;
      case Way::bit_unshuffle:
        bit_unshuffle(in.data(), typesize, n, 0, n, out.data());
        break;
      case Way::bit_shuffle:
        bit_shuffle(in.data(), typesize, n, out.data());
        break;
    }
    benchmark::DoNotOptimize(out.data());
  }
  count_bytes(state, nbytes, nbytes);
}

constexpr const char* kBloscLz4 = R"({"cname": "lz4", "clevel": 5, "shuffle": "shuffle"})";
constexpr const char* kBloscZstd = R"({"cname": "zstd", "clevel": 5, "shuffle": "shuffle"})";
constexpr const char* kBloscBits = R"({"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle"})";
constexpr const char* kZstd = R"({"level": 3})";
constexpr const char* kGzip = R"({"level": 5})";

BENCHMARK(bm_memcpy)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK(bm_raw_zstd_decode);
BENCHMARK_CAPTURE(bm_decode, zstd, "zstd", kZstd, "", 1);
BENCHMARK(bm_raw_libdeflate_decode);
BENCHMARK_CAPTURE(bm_decode, gzip_isal, "gzip", kGzip, "isa-l", 1);
BENCHMARK_CAPTURE(bm_decode, gzip_libdeflate, "gzip", kGzip, "libdeflate", 1);
BENCHMARK(bm_raw_lz4_decode);
BENCHMARK_CAPTURE(bm_decode, lz4, "lz4", "", "", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_lz4_c_blosc, "blosc", kBloscLz4, "c-blosc", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_lz4, "blosc", kBloscLz4, "headrace", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_lz4_2_threads, "blosc", kBloscLz4, "headrace", 2)->UseRealTime();
BENCHMARK_CAPTURE(bm_decode, blosc_zstd_c_blosc, "blosc", kBloscZstd, "c-blosc", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_zstd, "blosc", kBloscZstd, "headrace", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_zstd_2_threads, "blosc", kBloscZstd, "headrace", 2)
    ->UseRealTime();
BENCHMARK_CAPTURE(bm_decode, blosc_bits_c_blosc, "blosc", kBloscBits, "c-blosc", 1);
BENCHMARK_CAPTURE(bm_decode, blosc_bits, "blosc", kBloscBits, "headrace", 1);
BENCHMARK_CAPTURE(bm_decode, crc32c, "crc32c", "", "", 1);
BENCHMARK_CAPTURE(bm_decode, shuffle_filter, "shuffle", "", "", 1);
BENCHMARK_CAPTURE(bm_encode, zstd, "zstd", kZstd);
BENCHMARK_CAPTURE(bm_encode, gzip, "gzip", kGzip);
BENCHMARK_CAPTURE(bm_encode, lz4, "lz4", "");
BENCHMARK_CAPTURE(bm_encode, blosc_lz4, "blosc", kBloscLz4);
BENCHMARK_CAPTURE(bm_encode, blosc_zstd, "blosc", kBloscZstd);
BENCHMARK_CAPTURE(bm_point, zstd_middle, "zstd", kZstd, 0.5);
BENCHMARK_CAPTURE(bm_point, gzip_middle, "gzip", kGzip, 0.5);
BENCHMARK_CAPTURE(bm_point, blosc_lz4_middle, "blosc", kBloscLz4, 0.5);
BENCHMARK_CAPTURE(bm_point, lz4_middle, "lz4", "", 0.5);
BENCHMARK_CAPTURE(bm_shuffle, unshuffle_2, Way::unshuffle, 2)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK_CAPTURE(bm_shuffle, unshuffle_4, Way::unshuffle, 4)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK_CAPTURE(bm_shuffle, unshuffle_8, Way::unshuffle, 8)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK_CAPTURE(bm_shuffle, unshuffle_16, Way::unshuffle, 16)->Arg(32 << 10);
BENCHMARK_CAPTURE(bm_shuffle, unshuffle_12, Way::unshuffle, 12)->Arg(32 << 10);
BENCHMARK_CAPTURE(bm_shuffle, shuffle_4, Way::shuffle, 4)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK_CAPTURE(bm_shuffle, shuffle_8, Way::shuffle, 8)->Arg(32 << 10);
BENCHMARK_CAPTURE(bm_shuffle, bit_unshuffle_4, Way::bit_unshuffle, 4)->Arg(32 << 10)->Arg(kChunk);
BENCHMARK_CAPTURE(bm_shuffle, bit_shuffle_4, Way::bit_shuffle, 4)->Arg(32 << 10)->Arg(kChunk);

}  // namespace
}  // namespace headrace
