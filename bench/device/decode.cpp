// Decoders on the device, from encoded bytes in device memory to decoded ones, and encoders the
// other way, for each codec and batch shape:
//   headrace_device_bench FIELD.f32 [--json FILE] [--dump FOLDER] [PATTERN...]
// A row is run when its name, "zstd-3,packed,64x4096" say, holds one of the patterns.
//   headrace_device_bench FIELD.f32 --stages [--simt] [--json FILE] [PATTERN...]
// times each kernel of some decodes, or of those decodes and encodes ("encode-zstd,packed" say)
// whose names hold a pattern; --simt runs some on the host, to try it without a GPU.
//
// FIELD.f32 holds float32 values (bench/device/field.py makes them). Inputs repeat when a row needs
// more than the file has, outputs do not. Each result is compared with the original before it is
// timed.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "encode.h"
#include "kernels/kernels.h"
#include "rows.h"
#include "simt/host_queue.h"
#include "stages.h"

namespace headrace {
namespace {

constexpr int kWarmups = 2, kRuns = 7;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

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
  const Inputs inputs(row, field, queue);
  if (!dump_folder.empty()) dump(dump_folder, row, inputs.encoded());

  const auto stream = static_cast<cudaStream_t>(queue.native());
  const DecodeBatch batch = inputs.batch();
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
    if (i == 0) wrong = inputs.wrong(queue);
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
              inputs.ratio(),
              wrong ? "WRONG" : "ok");
  std::fflush(stdout);
  return {{"codec", row.codec},
          {"data", row.data},
          {"chunks", row.count},
          {"chunk_nbytes", row.nbytes},
          {"microseconds", us},
          {"host_microseconds", host_us},  // until the call returns
          {"gigabytes_per_second", decoded / us / 1e3},
          {"ratio", inputs.ratio()},
          {"wrong_chunks", wrong}};
}

constexpr Shape kEncodeShapes[] = {{1, 4096}, {64, 1024}, {64, 4096}, {512, 4096}, {4096, 64}};

nlohmann::json run_encoders(const Field& field,
                            Queue& queue,
                            bool stages,
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
        const nlohmann::json names{{"codec", row.codec},
                                   {"data", row.data},
                                   {"chunks", row.count},
                                   {"chunk_nbytes", row.nbytes}};
        if (stages) {
          rows.push_back(run_encoder_stages(encoder, chunks, row.count, queue));
          rows.back().update(names);
          std::printf(
              "%-28s %10.1f us\n", row.name().c_str(), rows.back()["microseconds"].get<double>());
          for (const nlohmann::json& launch : rows.back()["launches"])
            std::printf("  %-26s %10.1f us, %u CTAs\n",
                        launch["kernel"].get<std::string>().c_str(),
                        launch["microseconds"].get<double>(),
                        launch["grid"].get<unsigned>());
          std::fflush(stdout);
          continue;
        }
        nlohmann::json found = run_encoder(encoder, chunks, row.count, queue);
        std::printf("%-28s %10.1f us %8.2f GB/s ratio %.2f (library %.2f) %s\n",
                    row.name().c_str(),
                    found["microseconds"].get<double>(),
                    found["gigabytes_per_second"].get<double>(),
                    found["ratio"].get<double>(),
                    found["library_ratio"].get<double>(),
                    found["wrong_chunks"].get<std::size_t>() ? "WRONG" : "ok");
        std::fflush(stdout);
        found.update(names);
        rows.push_back(std::move(found));
      }
  return rows;
}

std::vector<Row> all_rows() {
  const Shape shapes[] = {{1, 4096},
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

struct Options {
  std::string field, json, dump;
  std::vector<std::string> patterns;
  bool stages = false, simt = false;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc)
      options.json = argv[++i];
    else if (argument == "--dump" && i + 1 < argc)
      options.dump = argv[++i];
    else if (argument == "--stages")
      options.stages = true;
    else if (argument == "--simt")
      options.simt = true;
    else if (options.field.empty())
      options.field = argument;
    else
      options.patterns.push_back(argument);
  }
  if (options.field.empty() || (options.simt && !options.stages))
    throw std::runtime_error(
        "usage: headrace_device_bench FIELD.f32 [--json FILE] [--dump FOLDER] "
        "[--stages [--simt]] [PATTERN...]");
  return options;
}

void write_json(const std::string& path, const std::string& device, const nlohmann::json& rows) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << nlohmann::json{{"device", device}, {"rows", rows}}.dump(1) << std::endl;
  if (!file) throw std::runtime_error("cannot write " + path);
}

// One shape for each way that zstd's blocks are decoded, or what the host runs in a second.
std::vector<Row> stage_rows(bool simt) {
  const std::vector<Shape> shapes = simt ? std::vector<Shape>{{1, 256}, {8, 32}}
                                         : std::vector<Shape>{{1, 4096}, {64, 4096}, {512, 4096}};
  std::vector<Row> rows;
  for (const char* codec : {"zstd-3", "lz4", "blosc-lz4", "zlib-6"})
    for (const auto& [count, kib] : shapes) rows.push_back({codec, "packed", count, kib << 10});
  return rows;
}

int main_program(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const Field field(options.field);
  const auto wanted = [&](const std::string& name) {
    return options.patterns.empty() ||
           std::ranges::any_of(options.patterns, [&](const std::string& p) {
             return name.find(p) != std::string::npos;
           });
  };
  std::unique_ptr<Queue> queue;
  std::string device = "simt";
  if (options.simt) {
    queue = std::make_unique<HostQueue>();
  } else {
    queue = make_gpu_queue(0);
    if (!queue) throw std::runtime_error("no CUDA device");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0));
    device = properties.name;
  }
  nlohmann::json rows = nlohmann::json::array();
  std::size_t wrong = 0;
  if (options.stages) {
    const bool chosen = !options.simt && !options.patterns.empty();
    for (const Row& row : chosen ? all_rows() : stage_rows(options.simt)) {
      if (!wanted(row.name())) continue;
      rows.push_back(run_stages(row, field, *queue, options.simt ? host_kernels() : gpu_kernels()));
      wrong += rows.back()["wrong_chunks"].get<std::size_t>();
      write_json(options.json, device, rows);
    }
    if (!options.simt && !options.patterns.empty()) {
      for (nlohmann::json& row : run_encoders(field, *queue, true, wanted))
        rows.push_back(std::move(row));
      write_json(options.json, device, rows);
    }
    return wrong ? 1 : 0;
  }
  for (const Row& row : all_rows()) {
    const std::string name = row.name();
    const Codec& codec = codecs().at(row.codec);
    if (!wanted(name) || !(gpu_kernels().*codec.decode)) continue;
    try {
      rows.push_back(run(row, codec, field, *queue, options.dump));
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
    write_json(options.json, device, rows);
  }
  for (nlohmann::json& row : run_encoders(field, *queue, false, wanted)) {
    wrong += row["wrong_chunks"].get<std::size_t>();
    rows.push_back(std::move(row));
  }
  write_json(options.json, device, rows);
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  try {
    return headrace::main_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headrace_device_bench: %s\n", error.what());
    return 2;
  }
}
