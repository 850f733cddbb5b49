// Decoders on the device, from encoded bytes in device memory to decoded ones, and encoders the
// other way, for each codec and batch shape:
//   headrace_device_bench FIELD.f32 [--json FILE] [--dump FOLDER] [PATTERN...]
// A row is run when its name, "zstd-3,packed,64x4096" say, holds one of the patterns.
//
// FIELD.f32 holds float32 values (bench/device/field.py makes them). Inputs repeat when a row needs
// more than the file has, outputs do not. Each result is compared with the original before it is
// timed.

#include <blosc.h>
#include <cuda_runtime_api.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "encode.h"
#include "kernels/kernels.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int kWarmups = 2, kRuns = 7;
// What is compared of a row: all up to this, and the last chunks.
constexpr std::size_t kCompared = std::size_t{512} << 20;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

struct Codec {
  std::string name;
  Decode Kernels::*decode;
  std::function<Bytes(const Bytes&)> encode;
};

Bytes sized(std::size_t bound, const std::function<std::size_t(Bytes&)>& encode) {
  Bytes out(bound);
  out.resize(encode(out));
  return out;
}

Codec zstd(int level) {
  return {"zstd-" + std::to_string(level), &Kernels::zstd, [level](const Bytes& in) {
            return sized(ZSTD_compressBound(in.size()), [&](Bytes& out) {
              return ZSTD_compress(out.data(), out.size(), in.data(), in.size(), level);
            });
          }};
}

Codec lz4() {
  return {"lz4", &Kernels::lz4, [](const Bytes& in) {
            const int n = static_cast<int>(in.size());
            return sized(static_cast<std::size_t>(LZ4_compressBound(n)), [&](Bytes& out) {
              return static_cast<std::size_t>(
                  LZ4_compress_default(reinterpret_cast<const char*>(in.data()),
                                       reinterpret_cast<char*>(out.data()),
                                       n,
                                       static_cast<int>(out.size())));
            });
          }};
}

Codec blosc(const char* inner) {
  return {std::string("blosc-") + inner, &Kernels::blosc, [inner](const Bytes& in) {
            return sized(in.size() + BLOSC_MAX_OVERHEAD, [&](Bytes& out) {
              return static_cast<std::size_t>(blosc_compress_ctx(
                  5, BLOSC_SHUFFLE, 4, in.size(), in.data(), out.data(), out.size(), inner, 0, 1));
            });
          }};
}

Codec zlib() {
  return {"zlib-6", &Kernels::zlib, [](const Bytes& in) {
            return sized(compressBound(in.size()), [&](Bytes& out) {
              uLongf n = out.size();
              compress2(out.data(), &n, in.data(), in.size(), 6);
              return static_cast<std::size_t>(n);
            });
          }};
}

Codec snappy() {
  return {"snappy", &Kernels::snappy, [](const Bytes& in) {
            return sized(snappy_max_compressed_length(in.size()), [&](Bytes& out) {
              std::size_t n = out.size();
              snappy_compress(reinterpret_cast<const char*>(in.data()),
                              in.size(),
                              reinterpret_cast<char*>(out.data()),
                              &n);
              return n;
            });
          }};
}

// Frames by the encoder on the device.
Codec zstd_own(const char* name, const char* encoder) {
  const auto found = std::ranges::find(encoders(), encoder, &Encoder::name);
  return {name, &Kernels::zstd, [&e = *found](const Bytes& in) { return encode_one(e, in); }};
}

struct Row {
  std::string codec, data;
  std::size_t count, nbytes;
  std::string name() const {
    return codec + "," + data + "," + std::to_string(count) + "x" + std::to_string(nbytes >> 10);
  }
};

class Field {
 public:
  explicit Field(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw std::runtime_error("cannot open " + path);
    bytes_.resize(static_cast<std::size_t>(file.tellg()));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  }

  std::size_t distinct(std::size_t nbytes) const {
    return std::max<std::size_t>(1, bytes_.size() / nbytes);
  }

  Bytes chunk(const std::string& data, std::size_t index, std::size_t nbytes) const {
    Bytes out(nbytes);
    const std::size_t start = index % distinct(nbytes) * nbytes;
    std::memcpy(out.data(), bytes_.data() + start, nbytes);
    if (data == "full") {  // noise in the bits that packing left empty
      std::mt19937 random(static_cast<unsigned>(index));
      for (std::size_t i = 0; i + 4 <= nbytes; i += 4) {
        std::uint32_t word;
        std::memcpy(&word, &out[i], 4);
        word ^= random() & 0x3fff;
        std::memcpy(&out[i], &word, 4);
      }
    } else if (data == "shuffled") {
      Bytes planes(nbytes);
      for (std::size_t i = 0; i < nbytes; ++i) planes[i % 4 * (nbytes / 4) + i / 4] = out[i];
      out.swap(planes);
    }
    return out;
  }

 private:
  Bytes bytes_;
};

// For peers: the number of chunks, their encoded sizes, the encoded bytes.
void dump(const std::string& folder, const Row& row, const std::vector<Bytes>& encoded) {
  std::ofstream file(
      folder + "/" + row.codec + "-" + row.data + "-" + std::to_string(row.nbytes >> 10) + ".bin",
      std::ios::binary);
  const auto put = [&](std::uint64_t n) { file.write(reinterpret_cast<const char*>(&n), 8); };
  put(encoded.size());
  for (const Bytes& bytes : encoded) put(bytes.size());
  for (const Bytes& bytes : encoded)
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot write into " + folder);
}

nlohmann::json run(const Row& row,
                   const Codec& codec,
                   const Field& field,
                   Queue& queue,
                   const std::string& dump_folder) {
  const std::size_t distinct = std::min(field.distinct(row.nbytes), row.count);
  std::vector<Bytes> originals(distinct), encoded(distinct);
  parallel_for(distinct, [&](std::size_t i) {
    originals[i] = field.chunk(row.data, i, row.nbytes);
    encoded[i] = codec.encode(originals[i]);
  });
  if (!dump_folder.empty()) dump(dump_folder, row, encoded);

  std::vector<std::size_t> offsets(row.count);
  std::size_t total = kSourcePadding, encoded_nbytes = 0;
  for (std::size_t i = 0; i < row.count; ++i) {
    offsets[i] = total;
    encoded_nbytes += encoded[i % distinct].size();
    total += (encoded[i % distinct].size() + kSourcePadding + 15) / 16 * 16;
  }
  Scratch<std::uint8_t> sources(queue, total), targets(queue, row.count * row.nbytes);
  Scratch<std::uint32_t> faults(queue, row.count);
  std::vector<Frame> frames(row.count);
  std::vector<const std::uint8_t*> host(row.count);
  for (std::size_t i = 0; i < row.count; ++i) {
    const Bytes& bytes = encoded[i % distinct];
    queue.upload(sources.data() + offsets[i], bytes.data(), bytes.size());
    frames[i] = {sources.data() + offsets[i],
                 bytes.size(),
                 targets.data() + i * row.nbytes,
                 row.nbytes,
                 static_cast<std::uint32_t>(i)};
    host[i] = bytes.data();
  }
  queue.fill(targets.data(), 0xa5, targets.size());
  queue.fill(faults.data(), 0, row.count * sizeof(std::uint32_t));
  queue.synchronize();

  const auto stream = static_cast<cudaStream_t>(queue.native());
  const DecodeBatch batch{frames, host, faults.data()};
  const Decode decode = gpu_kernels().*codec.decode;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<double> times, host_times;
  std::size_t wrong = 0;
  for (int i = 0; i < kWarmups + kRuns; ++i) {
    check(cudaEventRecord(begin, stream));
    const auto planned_from = std::chrono::steady_clock::now();
    decode(queue, batch);
    const std::chrono::duration<double, std::milli> planning =
        std::chrono::steady_clock::now() - planned_from;
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= kWarmups) {
      times.push_back(ms);
      host_times.push_back(planning.count());
    }
    if (i > 0) continue;
    std::vector<std::uint32_t> found(row.count);
    queue.download(found.data(), faults.data(), row.count * sizeof(std::uint32_t));
    queue.synchronize();
    for (std::uint32_t fault : found) wrong += fault != 0;
    Bytes got(row.nbytes);
    for (std::size_t k = 0; k < row.count; ++k) {
      if ((k + 1) * row.nbytes > kCompared && k + distinct < row.count) continue;
      queue.download(got.data(), targets.data() + k * row.nbytes, row.nbytes);
      queue.synchronize();
      wrong += got != originals[k % distinct];
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  std::sort(host_times.begin(), host_times.end());
  const double decoded = static_cast<double>(row.count * row.nbytes);
  const double us = times[kRuns / 2] * 1e3, host_us = host_times[kRuns / 2] * 1e3;
  std::printf("%-28s %10.1f us (host %.1f) %8.2f GB/s ratio %.2f %s\n",
              row.name().c_str(),
              us,
              host_us,
              decoded / us / 1e3,
              decoded / static_cast<double>(encoded_nbytes),
              wrong ? "WRONG" : "ok");
  std::fflush(stdout);
  return {{"codec", row.codec},
          {"data", row.data},
          {"chunks", row.count},
          {"chunk_nbytes", row.nbytes},
          {"microseconds", us},
          {"host_microseconds", host_us},  // until the call returns
          {"gigabytes_per_second", decoded / us / 1e3},
          {"ratio", decoded / static_cast<double>(encoded_nbytes)},
          {"wrong_chunks", wrong}};
}

constexpr std::pair<std::size_t, std::size_t> kEncodeShapes[] = {
    {1, 4096}, {64, 1024}, {64, 4096}, {512, 4096}, {4096, 64}};

nlohmann::json run_encoders(const Field& field,
                            Queue& queue,
                            const std::function<bool(const std::string&)>& wanted) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Encoder& encoder : encoders())
    for (const char* data : {"packed", "shuffled", "full"})
      for (const auto& [count, kib] : kEncodeShapes) {
        const Row row{encoder.name, data, count, kib << 10};
        if (!wanted(row.name())) continue;
        std::vector<Bytes> chunks(std::min(field.distinct(row.nbytes), row.count));
        parallel_for(chunks.size(),
                     [&](std::size_t i) { chunks[i] = field.chunk(row.data, i, row.nbytes); });
        nlohmann::json found = run_encoder(encoder, chunks, row.count, queue);
        std::printf("%-28s %10.1f us %8.2f GB/s ratio %.2f (library %.2f) %s\n",
                    row.name().c_str(),
                    found["microseconds"].get<double>(),
                    found["gigabytes_per_second"].get<double>(),
                    found["ratio"].get<double>(),
                    found["library_ratio"].get<double>(),
                    found["wrong_chunks"].get<std::size_t>() ? "WRONG" : "ok");
        std::fflush(stdout);
        found.update({{"codec", row.codec},
                      {"data", row.data},
                      {"chunks", row.count},
                      {"chunk_nbytes", row.nbytes}});
        rows.push_back(std::move(found));
      }
  return rows;
}

std::vector<Row> all_rows() {
  const std::pair<std::size_t, std::size_t> shapes[] = {{1, 4096},
                                                        {1, 16384},
                                                        {8, 4096},
                                                        {64, 1024},
                                                        {64, 4096},
                                                        {512, 1024},
                                                        {512, 4096},
                                                        {4096, 64},
                                                        {4096, 1024}};
  const std::pair<const char*, const char*> kinds[] = {{"zstd-3", "packed"},
                                                       {"zstd-3", "shuffled"},
                                                       {"zstd-3", "full"},
                                                       {"zstd-1", "packed"},
                                                       {"zstd-own", "packed"},
                                                       {"zstd-own", "shuffled"},
                                                       {"zstd-own-32k", "packed"},
                                                       {"zstd-own-32k", "shuffled"},
                                                       {"lz4", "packed"},
                                                       {"lz4", "shuffled"},
                                                       {"lz4", "full"},
                                                       {"blosc-lz4", "packed"},
                                                       {"blosc-lz4", "full"},
                                                       {"blosc-zstd", "packed"},
                                                       {"zlib-6", "packed"},
                                                       {"snappy", "packed"}};
  std::vector<Row> rows;
  for (const auto& [codec, data] : kinds)
    for (const auto& [count, kib] : shapes) rows.push_back({codec, data, count, kib << 10});
  return rows;
}

int main_program(int argc, char** argv) {
  std::map<std::string, Codec> codecs;
  for (Codec codec : {zstd(3),
                      zstd(1),
                      lz4(),
                      blosc("lz4"),
                      blosc("zstd"),
                      zlib(),
                      snappy(),
                      zstd_own("zstd-own", "encode-zstd"),
                      zstd_own("zstd-own-32k", "encode-zstd-32k")})
    codecs.emplace(codec.name, codec);
  if (argc < 2)
    throw std::runtime_error("usage: decode FIELD.f32 [--json FILE] [--dump FOLDER] [PATTERN...]");
  const Field field(argv[1]);
  std::string json_path, dump_folder;
  std::vector<std::string> patterns;
  for (int i = 2; i < argc; ++i) {
    if (std::string(argv[i]) == "--json" && i + 1 < argc)
      json_path = argv[++i];
    else if (std::string(argv[i]) == "--dump" && i + 1 < argc)
      dump_folder = argv[++i];
    else
      patterns.push_back(argv[i]);
  }
  const auto queue = make_gpu_queue(0);
  if (!queue) throw std::runtime_error("no CUDA device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  nlohmann::json rows = nlohmann::json::array();
  std::size_t wrong = 0;
  const auto wanted = [&](const std::string& name) {
    return patterns.empty() ||
           std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
             return name.find(p) != std::string::npos;
           });
  };
  const auto write_json = [&] {
    if (json_path.empty()) return;
    const nlohmann::json report{{"device", properties.name}, {"rows", rows}};
    std::ofstream(json_path) << report.dump(1) << '\n';
  };
  for (const Row& row : all_rows()) {
    const std::string name = row.name();
    const Codec& codec = codecs.at(row.codec);
    if (!wanted(name) || !(gpu_kernels().*codec.decode)) continue;
    try {
      rows.push_back(run(row, codec, field, *queue, dump_folder));
      wrong += rows.back()["wrong_chunks"].get<std::size_t>();
    } catch (const std::exception& error) {
      std::printf("%-28s %s\n", name.c_str(), error.what());
      rows.push_back({{"codec", row.codec},
                      {"data", row.data},
                      {"chunks", row.count},
                      {"chunk_nbytes", row.nbytes},
                      {"error", error.what()}});
      ++wrong;
    }
    write_json();
  }
  for (nlohmann::json& row : run_encoders(field, *queue, wanted)) {
    wrong += row["wrong_chunks"].get<std::size_t>();
    rows.push_back(std::move(row));
  }
  write_json();
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  try {
    return headrace::main_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode: %s\n", error.what());
    return 2;
  }
}
