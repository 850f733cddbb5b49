#include "launches.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <regex>
#include <stdexcept>
#include <utility>

#include "simt/queue.h"

namespace headrace {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class Event {
 public:
  explicit Event(cudaStream_t stream) {
    check(cudaEventCreate(&event_));
    check(cudaEventRecord(event_, stream));
  }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  double microseconds_since(const Event& before) const {
    check(cudaEventSynchronize(event_));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, before.event_, event_));
    return ms * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct OnGpu {
  std::size_t launch;
  Event begin, end;
};

// Of "void headrace::gpu::simt::launch(...) [with Kernel = headrace::gpu::zstd::{anonymous}::
// ExecuteInOrder<4096, 256>; ...]": ExecuteInOrder<4096, 256>. nvcc names what is anonymous.
std::string name_of(const std::string& function) {
  static const std::regex kKernel(R"(Kernel = (.*?)[;\]])"), kSpaces(R"([\w{}]+::)"), kEnd("> >");
  std::smatch found;
  if (!std::regex_search(function, found, kKernel))
    throw std::runtime_error("no kernel in " + function);
  return std::regex_replace(std::regex_replace(found[1].str(), kSpaces, ""), kEnd, ">>");
}

}  // namespace

struct LaunchRecorder::Notes {
  std::vector<Launch> launches;
  std::vector<OnGpu> on_gpu;
};

namespace {

thread_local LaunchRecorder::Notes* recording = nullptr;

}  // namespace

LaunchRecorder::LaunchRecorder() : notes_(std::make_unique<Notes>()) {
  if (recording) throw std::logic_error("this thread has a LaunchRecorder");
  recording = notes_.get();
}

LaunchRecorder::~LaunchRecorder() { recording = nullptr; }

std::vector<Launch> LaunchRecorder::launches() const {
  std::vector<Launch> launches = notes_->launches;
  for (const OnGpu& times : notes_->on_gpu)
    launches[times.launch].microseconds = times.end.microseconds_since(times.begin);
  return launches;
}

// The linker calls wrapped_x in place of x, and x in place of real_x.
#define WRAPPED(name) __asm__("__wrap_" name)
#define REAL(name) __asm__("__real_" name)

namespace gpu::simt {

// What <<<>>> becomes.
#if CUDART_VERSION >= 13000
#define LAUNCH_KERNEL "__cudaLaunchKernel"
#else
#define LAUNCH_KERNEL "cudaLaunchKernel"
#endif
cudaError_t real_launch(const void*, dim3, dim3, void**, std::size_t, cudaStream_t)
    REAL(LAUNCH_KERNEL);
cudaError_t wrapped_launch(const void*, dim3, dim3, void**, std::size_t, cudaStream_t)
    WRAPPED(LAUNCH_KERNEL);
cudaError_t wrapped_launch(const void* kernel,
                           dim3 grid,
                           dim3 threads,
                           void** arguments,
                           std::size_t shared_nbytes,
                           cudaStream_t stream) {
  if (!recording) return real_launch(kernel, grid, threads, arguments, shared_nbytes, stream);
  Event begin(stream);
  const cudaError_t status = real_launch(kernel, grid, threads, arguments, shared_nbytes, stream);
  Event end(stream);
  recording->on_gpu.push_back({recording->launches.size(), std::move(begin), std::move(end)});
  recording->launches.push_back({"", grid.x, threads.x, shared_nbytes, 0});
  return status;
}

// After each launch, and the only one who knows its name.
#define CHECK_LAUNCH "_ZN8headrace3gpu4simt12check_launchEPKc"
void real_check_launch(const char*) REAL(CHECK_LAUNCH);
void wrapped_check_launch(const char*) WRAPPED(CHECK_LAUNCH);
void wrapped_check_launch(const char* function) {
  real_check_launch(function);
  if (!recording) return;
  if (recording->launches.empty() || !recording->launches.back().kernel.empty())
    throw std::logic_error("this CUDA launches kernels by another function than " LAUNCH_KERNEL);
  recording->launches.back().kernel = name_of(function);
}

}  // namespace gpu::simt

namespace host::simt {

#define RUN "_ZN8headrace4host4simt3runERNS_5QueueEPKcmjmPFvPKvPvES7_m"
using Body = void (*)(const void* kernel, void* shared);
void real_run(
    Queue&, const char*, std::size_t, unsigned, std::size_t, Body, const void*, std::size_t)
    REAL(RUN);
void wrapped_run(
    Queue&, const char*, std::size_t, unsigned, std::size_t, Body, const void*, std::size_t)
    WRAPPED(RUN);
void wrapped_run(Queue& queue,
                 const char* name,
                 std::size_t ctas,
                 unsigned threads,
                 std::size_t shared_nbytes,
                 Body body,
                 const void* kernel,
                 std::size_t kernel_nbytes) {
  const auto begin = std::chrono::steady_clock::now();
  real_run(queue, name, ctas, threads, shared_nbytes, body, kernel, kernel_nbytes);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  if (!recording || ctas == 0) return;
  if (shared_nbytes == 1) shared_nbytes = 0;  // an empty struct has that size
  recording->launches.push_back(
      {name_of(name), grid_ctas(ctas), threads, shared_nbytes, time.count()});
}

}  // namespace host::simt
}  // namespace headrace
