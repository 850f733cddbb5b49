#include "cuda/memory.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <utility>

#include "base/fork_mutex.h"
#include "base/memory_nodes.h"
#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/engine.h"
#include "cuda/queue.h"
#include "device/gpu_limits.h"
#include "device/kept_frees.h"
#include "device/user_memory.h"

namespace headrace {
namespace {

// What a pool keeps of freed memory: fresh memory costs about a millisecond for each 100 MiB, and
// other libraries of the process want some too.
constexpr std::size_t kPoolShare = 8;  // of the device's memory, an eighth
// Kernels load whole words of what they decoded, the last one too; the pool rounds up anyhow, but
// memory checkers count the bytes that were asked for.
constexpr std::size_t kAllocationUnit = 16;
// Pinning costs more than the copy it makes faster, so blocks are kept. Sizes are rounded up, for
// blocks to fit the next request.
constexpr std::size_t kPinnedUnit = 64 << 10;

std::size_t host_nbytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                               : 0;
}

struct PinnedBlock {
  std::byte* data;
  std::size_t nbytes;
  std::optional<int> node;
};

struct State {
  ForkMutex mutex;
  std::map<int, cudaMemPool_t> pools GUARDED_BY(mutex);
  std::list<PinnedBlock> pinned GUARDED_BY(mutex);  // free ones, the last that was freed first
  std::size_t pinned_nbytes GUARDED_BY(mutex) = 0;
  std::map<int, NearHost> near GUARDED_BY(mutex);  // by devices; none of them is changed

  static State& get() {
    static auto* state = new State;  // never destroyed: results may outlive statics
    return *state;
  }
};

// Other devices may use the memory where they can, as they may what cudaMalloc gave: CuPy launches
// kernels for arrays of any device on the current one. A pool is not told by
// cudaDeviceEnablePeerAccess.
void let_peers_in(cudaMemPool_t pool, int device) {
  int count = 0;
  HEADRACE_CUDA_CHECK(cudaGetDeviceCount(&count));
  for (int peer = 0; peer < count; ++peer) {
    if (peer == device) continue;
    int can = 0;
    cudaError_t status = cudaDeviceCanAccessPeer(&can, peer, device);
    if (status == cudaSuccess && can) {
      const cudaMemAccessDesc access{{cudaMemLocationTypeDevice, peer},
                                     cudaMemAccessFlagsProtReadWrite};
      status = cudaMemPoolSetAccess(pool, &access, 1);
    }
    if (status != cudaSuccess) cudaGetLastError();  // memory all the same, not for this peer
  }
}

cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  cudaMemPool_t pool = nullptr;
#if CUDART_VERSION >= 12080
  // Else the engine could neither read nor write it. A driver that does not want that has no engine
  // for us, and memory all the same.
  if (has_engine(device)) properties.usage = cudaMemPoolCreateUsageHwDecompress;
  if (properties.usage != 0 && cudaMemPoolCreate(&pool, &properties) != cudaSuccess) {
    cudaGetLastError();
    pool = nullptr;
    properties.usage = 0;
  }
#endif
  if (!pool) HEADRACE_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  std::size_t free = 0, total = 0;
  HEADRACE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  std::uint64_t kept = total / kPoolShare;
  HEADRACE_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  let_peers_in(pool, device);
  return pool;
}

cudaMemPool_t pool_of(int device) {
  State& state = State::get();
  ForkLock lock(state.mutex);
  cudaMemPool_t& pool = state.pools[device];
  if (!pool) pool = make_pool(device);
  return pool;
}

void free_in_order(int device, void* memory, cudaStream_t stream) {
  const DeviceGuard guard(device);
  if (!user_memory().free(memory, Stream::from(stream)))
    HEADRACE_CUDA_CHECK(cudaFreeAsync(memory, stream));
}

// Throws `unsupported` while a graph is made of a stream that the memory goes back in the order of:
// to free it would be a part of the graph, or spoil it.
void free_uncaptured(int device, void* memory) {
  check_uncaptured(device, cudaStreamLegacy);
  const std::optional<Stream> stream = user_memory().stream_of(memory);
  if (!stream) return free_in_order(device, memory, cudaStreamLegacy);
  // The user's pool will give it to the same stream again: that one has to wait.
  const auto native = static_cast<cudaStream_t>(stream->raw());
  check_uncaptured(device, native);
  CudaQueue queue(device, native), used(device, cudaStreamLegacy);
  queue.wait_for(used);
  free_in_order(device, memory, native);
}

// What was not used for longest is let go: sizes that nobody asks for any more.
void free_pinned(int device, const PinnedBlock& block) noexcept {
  State& state = State::get();
  std::list<PinnedBlock> freed{block};
  std::list<PinnedBlock> dropped;
  {
    ForkLock lock(state.mutex);
    state.pinned.splice(state.pinned.begin(), freed);
    state.pinned_nbytes += block.nbytes;
    static const std::size_t host = host_nbytes();
    const std::size_t most = pinned_kept_nbytes(state.pools.size(), host);
    while (state.pinned_nbytes > most) {
      state.pinned_nbytes -= state.pinned.back().nbytes;
      dropped.splice(dropped.begin(), state.pinned, std::prev(state.pinned.end()));
    }
  }
  if (dropped.empty()) return;
  try {
    const DeviceGuard guard(device);
    for (const PinnedBlock& p : dropped) ignore(cudaFreeHost(p.data));
  } catch (const Error&) {
    // The driver is gone, at the end of the process, and the memory with it.
  }
}

}  // namespace

void* allocate_device(int device, std::size_t nbytes, cudaStream_t stream) {
  const DeviceGuard guard(device);
  if (void* users = user_memory().allocate(device, nbytes, Stream::from(stream))) return users;
  const std::size_t size =
      (std::max<std::size_t>(nbytes, 1) + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
  void* memory = nullptr;
  HEADRACE_CUDA_CHECK(cudaMallocFromPoolAsync(&memory, size, pool_of(device), stream));
  return memory;
}

void free_device(int device, void* memory, cudaStream_t stream) noexcept {
  try {
    free_in_order(device, memory, stream);
  } catch (const Error&) {
    // The driver is gone, at the end of the process, and the memory with it.
  }
}

void free_result(int device, void* memory) noexcept {
  free_or_keep(Device::cuda(device), {}, [device, memory] { free_uncaptured(device, memory); });
}

void unpin(int device, pid_t owner, void* data) noexcept {
  if (::getpid() != owner) return;
  try {
    const DeviceGuard guard(device);
    ignore(cudaHostUnregister(data));
  } catch (const Error&) {
    // The driver is gone, at the end of the process, and its locks with it.
  }
}

UserMemory& user_memory() {
  static auto* memory = new UserMemory;  // never destroyed: results may outlive statics
  return *memory;
}

const NearHost& near_host(int device) {
  State& state = State::get();
  {
    ForkLock lock(state.mutex);
    const auto known = state.near.find(device);
    if (known != state.near.end()) return known->second;
  }
  char address[32] = {};
  NearHost found;
  // Where the driver does not tell, all of the host is alike; its last error is not to be met
  // later.
  if (cudaDeviceGetPCIBusId(address, sizeof address, device) == cudaSuccess) {
    found.node = node_of_pci_device(address);
  } else {
    static_cast<void>(cudaGetLastError());
  }
  if (found.node) found.processors = processors_of_node(*found.node);
  ForkLock lock(state.mutex);
  return state.near.try_emplace(device, std::move(found)).first->second;
}

std::shared_ptr<std::byte> allocate_pinned_host(int device, std::size_t nbytes) {
  const std::size_t size =
      (std::max<std::size_t>(nbytes, 1) + kPinnedUnit - 1) / kPinnedUnit * kPinnedUnit;
  PinnedBlock block{nullptr, size, near_host(device).node};
  State& state = State::get();
  {
    ForkLock lock(state.mutex);
    const auto fit = std::ranges::find_if(state.pinned, [&](const PinnedBlock& p) {
      return p.nbytes >= size && p.nbytes <= 2 * size && p.node == block.node;
    });
    if (fit != state.pinned.end()) {
      block = *fit;
      state.pinned_nbytes -= block.nbytes;
      state.pinned.erase(fit);
    }
  }
  if (!block.data) {
    const DeviceGuard guard(device);
    const NearMemory near(block.node);
    void* fresh = nullptr;
    HEADRACE_CUDA_CHECK(cudaHostAlloc(&fresh, size, cudaHostAllocPortable));
    block.data = static_cast<std::byte*>(fresh);
  }
  return {block.data, [device, block](std::byte*) { free_pinned(device, block); }};
}

}  // namespace headrace
