#include "cuda/nvcomp.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "cuda/device_guard.h"
#include "cuda/queue.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr const char* kSoname = "libnvcomp.so.6";
constexpr unsigned kMajorVersion = 6;

// What of nvCOMP's public headers is used here, declared anew.
//
// The options of all formats are as large, begin with the backend, and are their defaults when the
// rest is zero. The CUDA backend, not that of newer chips' decompression engine: that one reports
// no corrupt chunk.
struct Options {
  int backend = 2;
  char reserved[60] = {};
};
struct Alignments {
  std::size_t input = 1, output = 1, temporary = 1;
};
struct Properties {
  std::uint32_t version = 0, runtime_version = 0;  // 1000 * major + 100 * minor + patch
};
using Status = int;
using GetProperties = Status (*)(Properties*);
using StatusString = const char* (*)(Status);
using GetAlignments = Status (*)(Options, Alignments*);
using GetTemporarySize = Status (*)(std::size_t chunks,
                                    std::size_t max_decoded_nbytes,
                                    Options,
                                    std::size_t* temporary_nbytes,
                                    std::size_t decoded_nbytes,
                                    cudaStream_t);
using Decompress = Status (*)(const void* const* sources,
                              const std::size_t* source_nbytes,
                              const std::size_t* target_nbytes,
                              std::size_t* found_nbytes,
                              std::size_t chunks,
                              void* temporary,
                              std::size_t temporary_nbytes,
                              void* const* targets,
                              Options,
                              Status* statuses,
                              cudaStream_t);
static_assert(sizeof(Options) == 64 && sizeof(std::size_t) == sizeof(std::uint64_t));

enum Format : std::size_t { kZstd, kLz4, kSnappy, kDeflate, kGzip, kFormats };

struct FormatFacts {
  const char* name;        // in the names of functions
  std::size_t max_nbytes;  // of a chunk, encoded and decoded
};
constexpr FormatFacts kFacts[kFormats] = {{"Zstd", (std::size_t{1} << 31) - 1},
                                          {"LZ4", (std::size_t{1} << 32) - 1},
                                          {"Snappy", (std::size_t{1} << 31) - 1},
                                          {"Deflate", (std::size_t{1} << 32) - 1},
                                          {"Gzip", (std::size_t{1} << 32) - 1}};

struct Decoder {
  GetAlignments alignments = nullptr;
  GetTemporarySize temporary_size = nullptr;
  Decompress decompress = nullptr;
};

struct Library {
  std::string why_not;
  StatusString status_string = nullptr;
  std::array<Decoder, kFormats> decoders;

  static const Library& get() {
    static const Library library = open();  // stays open
    return library;
  }

 private:
  static Library open();
  bool bind(void* handle);
};

// The file of the Python wheel, in the folder that this module's own package lies in.
std::string file_of_wheel() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&nvcomp_kernels), &info) == 0 || !info.dli_fname)
    return {};
  std::string path = info.dli_fname;
  for (int i = 0; i < 2; ++i) path.resize(std::min(path.size(), path.rfind('/')));
  return path + "/nvidia/libnvcomp/lib64/" + kSoname;
}

void* open_library(std::string& why_not) {
  const char* named = std::getenv("HEADRACE_NVCOMP");
  const std::vector<std::string> files =
      named ? std::vector<std::string>{named} : std::vector<std::string>{kSoname, file_of_wheel()};
  for (const std::string& file : files) {
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    if (why_not.empty()) why_not = dlerror();
  }
  return nullptr;
}

bool Library::bind(void* handle) {
  const auto find = [&](auto& function, const std::string& name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name.c_str()));
    if (!function && why_not.empty()) why_not = std::string(kSoname) + " has no " + name;
  };
  find(status_string, "nvcompGetStatusString");
  for (std::size_t i = 0; i < kFormats; ++i) {
    const std::string prefix = std::string("nvcompBatched") + kFacts[i].name + "Decompress";
    find(decoders[i].alignments, prefix + "GetRequiredAlignments");
    find(decoders[i].temporary_size, prefix + "GetTempSize");
    find(decoders[i].decompress, prefix + "Async");
  }
  return why_not.empty();
}

Library Library::open() {
  Library library;
  void* handle = open_library(library.why_not);
  if (!handle) return library;
  library.why_not.clear();
  Properties properties;
  const auto get_properties = reinterpret_cast<GetProperties>(dlsym(handle, "nvcompGetProperties"));
  if (!get_properties || get_properties(&properties) != 0) {
    library.why_not = std::string(kSoname) + " does not tell its version";
  } else if (properties.version / 1000 != kMajorVersion) {
    library.why_not = "nvCOMP " + std::to_string(properties.version / 1000) + " was found, " +
                      std::to_string(kMajorVersion) + " is wanted";
  } else {
    library.bind(handle);
  }
  return library;
}

[[noreturn]] void fail(ErrorCode code, Format format, const std::string& problem) {
  throw Error(code, std::string("nvCOMP ") + kFacts[format].name + ": " + problem);
}

void check(Status status, Format format, const char* call) {
  if (status == 0) return;
  fail(ErrorCode::device,
       format,
       std::string(call) + ": " + Library::get().status_string(status) + " (" +
           std::to_string(status) + ")");
}

bool is_aligned(const void* p, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

// nvCOMP leaves open what happens beyond its limits.
void check_limits(Format format, const Alignments& needed, std::span<const Frame> frames) {
  for (const Frame& frame : frames) {
    const std::size_t nbytes = std::max(frame.source_nbytes, frame.target_nbytes);
    if (nbytes > kFacts[format].max_nbytes) {
      fail(ErrorCode::unsupported,
           format,
           "a chunk of " + std::to_string(nbytes) + " bytes, at most " +
               std::to_string(kFacts[format].max_nbytes));
    }
    if (!is_aligned(frame.source, needed.input) || !is_aligned(frame.target, needed.output)) {
      fail(ErrorCode::unsupported,
           format,
           "encoded bytes must be aligned to " + std::to_string(needed.input) +
               " and decoded ones to " + std::to_string(needed.output));
    }
  }
}

template <Format format>
void decode(Queue& queue, const DecodeBatch& batch) {
  const Decoder& decoder = Library::get().decoders[format];
  const std::size_t n = batch.frames.size();
  if (n == 0) return;
  const auto& cuda = static_cast<const CudaQueue&>(queue);
  const DeviceGuard guard(cuda.device());
  Alignments needed;
  check(decoder.alignments({}, &needed), format, "GetRequiredAlignments");
  check_limits(format, needed, batch.frames);

  // Pointers and sizes of all chunks, in one copy.
  enum Column : std::size_t { kSources, kSourceNbytes, kTargets, kTargetNbytes, kColumns };
  std::vector<std::uint64_t> table(kColumns * n);
  std::vector<std::uint32_t> numbers(n);
  std::size_t decoded_nbytes = 0, most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Frame& frame = batch.frames[i];
    table[kSources * n + i] = reinterpret_cast<std::uintptr_t>(frame.source);
    table[kSourceNbytes * n + i] = frame.source_nbytes;
    table[kTargets * n + i] = reinterpret_cast<std::uintptr_t>(frame.target);
    table[kTargetNbytes * n + i] = frame.target_nbytes;
    numbers[i] = frame.chunk;
    decoded_nbytes += frame.target_nbytes;
    most = std::max<std::size_t>(most, frame.target_nbytes);
  }
  const auto columns = Scratch<std::uint64_t>::of(queue, table.data(), table.size());
  const auto chunks = Scratch<std::uint32_t>::of(queue, numbers.data(), n);
  const auto column = [&](Column c) { return columns.data() + c * n; };
  const Scratch<std::uint64_t> found(queue, n);
  const Scratch<std::int32_t> statuses(queue, n);
  queue.fill(statuses.data(), 0xff, n * sizeof(std::int32_t));  // until it is told otherwise

  std::size_t temporary_nbytes = 0;
  check(decoder.temporary_size(n, most, {}, &temporary_nbytes, decoded_nbytes, cuda.stream()),
        format,
        "GetTempSize");
  const Scratch<std::uint8_t> temporary(queue, temporary_nbytes);
  check(decoder.decompress(reinterpret_cast<const void* const*>(column(kSources)),
                           column(kSourceNbytes),
                           column(kTargetNbytes),
                           found.data(),
                           n,
                           temporary.data(),
                           temporary_nbytes,
                           reinterpret_cast<void* const*>(column(kTargets)),
                           {},
                           statuses.data(),
                           cuda.stream()),
        format,
        "Decompress");
  raise_nvcomp_faults(queue,
                      {statuses.data(), found.data(), column(kTargetNbytes)},
                      chunks.data(),
                      n,
                      batch.faults);
}

}  // namespace

const Kernels& nvcomp_kernels() {
  static constexpr Kernels kNone{};
  static constexpr Kernels kKernels{
      .zstd = decode<kZstd>,
      .lz4 = decode<kLz4>,
      .snappy = decode<kSnappy>,
      .deflate = decode<kDeflate>,
      .gzip = decode<kGzip>,
  };
  return nvcomp_why_not().empty() ? kKernels : kNone;
}

std::string nvcomp_why_not() { return Library::get().why_not; }

}  // namespace headrace
