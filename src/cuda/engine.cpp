#include "cuda/engine.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/device_guard.h"
#include "cuda/queue.h"
#include "device/decompress_engine.h"

namespace headrace {
namespace {

// The interface came with CUDA 12.8; an older toolkit still builds.
constexpr auto kFormats = static_cast<cudaDeviceAttr>(136);
constexpr auto kMaxNbytes = static_cast<cudaDeviceAttr>(137);
constexpr unsigned kVersion = 12080;

#if CUDA_VERSION >= 12080
static_assert(static_cast<int>(kFormats) == CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK);
static_assert(static_cast<int>(kMaxNbytes) == CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH);
static_assert(static_cast<int>(EngineFormat::deflate) == CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE);
static_assert(static_cast<int>(EngineFormat::snappy) == CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY);
static_assert(static_cast<int>(EngineFormat::lz4) == CU_MEM_DECOMPRESS_ALGORITHM_LZ4);
static_assert(sizeof(EngineChunk) == sizeof(CUmemDecompressParams));
static_assert(offsetof(EngineChunk, target_nbytes) == offsetof(CUmemDecompressParams, dstNumBytes));
static_assert(offsetof(EngineChunk, found_nbytes) == offsetof(CUmemDecompressParams, dstActBytes));
static_assert(offsetof(EngineChunk, source) == offsetof(CUmemDecompressParams, src));
static_assert(offsetof(EngineChunk, target) == offsetof(CUmemDecompressParams, dst));
static_assert(offsetof(EngineChunk, format) == offsetof(CUmemDecompressParams, algo));
#endif

// 0 where the driver does not know the attribute.
int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess) return value;
  cudaGetLastError();  // an error that is told here is not found again by others
  return 0;
}

Engine::Decompress find_call() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion(
      "cuMemBatchDecompressAsync", &found, kVersion, cudaEnableDefault, &result);
  if (status != cudaSuccess) cudaGetLastError();
  const bool good = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return good ? reinterpret_cast<Engine::Decompress>(found) : nullptr;
}

Engine engine_of(int device) {
  Engine engine;
  engine.formats = static_cast<std::uint32_t>(attribute_of(device, kFormats));
  engine.max_nbytes = static_cast<std::size_t>(attribute_of(device, kMaxNbytes));
  if (engine.formats == 0) {
    engine.why_not = "the device has none: it comes with Blackwell";
    return engine;
  }
  engine.decompress = find_call();
  if (!engine.decompress)
    engine.why_not = "the driver has no cuMemBatchDecompressAsync: it comes with CUDA 12.8";
  return engine;
}

template <EngineFormat format>
void decode(Queue& queue, const DecodeBatch& batch) {
  const int device = static_cast<const CudaQueue&>(queue).device();
  const DeviceGuard guard(device);
  decode_by_engine(queue, batch, format, engine_of(device), raise_engine_sizes);
}

}  // namespace

const Kernels& engine_kernels() {
  static constexpr Kernels kNone{};
  static constexpr Kernels kKernels{
      .lz4 = decode<EngineFormat::lz4>,
      .snappy = decode<EngineFormat::snappy>,
      .deflate = decode<EngineFormat::deflate>,
  };
  return engine_why_not().empty() ? kKernels : kNone;
}

std::string engine_why_not() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    count = 0;
  }
  std::string why_not = "there is no CUDA device";
  for (int device = 0; device < count; ++device) {
    const Engine engine = engine_of(device);
    if (engine.why_not.empty()) return "";
    if (device == 0) why_not = engine.why_not;
  }
  return why_not;
}

bool has_engine(int device) { return attribute_of(device, kFormats) != 0; }

}  // namespace headrace
