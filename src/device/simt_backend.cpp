#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/buffer.h"
#include "base/per_process.h"
#include "device/backend.h"
#include "device/cufile.h"
#include "device/kept_frees.h"
#include "device/mapped_file.h"
#include "device/user_memory.h"
#include "simt/host_queue.h"

namespace headrace {
namespace {

// Nothing is locked: what a device would copy is read when the queue is given the copy.
class SimtMappedFile final : public MappedFile {
 public:
  SimtMappedFile(int fd, std::uint64_t offset, std::size_t nbytes)
      : pages_(fd, offset, nbytes, MappedPages::Access::read_only) {}
  void copy(Queue& queue, void* target, std::size_t at, std::size_t nbytes) const override {
    queue.upload_made(target, nbytes, [&](void* made) { pages_.read(at, made, nbytes); });
  }

 private:
  const MappedPages pages_;
};

// Host memory as a device: kernels run on fibers, work is done when it is given, unless
// it has to wait (simt/host_queue.h).
class SimtBackend final : public Backend {
 public:
  int device_count() const override { return 1; }
  std::string why_not(int index) const override {
    return index == 0 ? "" : "there is one device of this type";
  }
  std::string device_name(int) const override { return "kernels run on the CPU"; }
  std::size_t memory_nbytes(int) const override { return 0; }
  std::string_view own_name() const override { return "headrace-simt"; }
  const Kernels& kernels() const override { return host_kernels(); }

  std::unique_ptr<Queue> make_queue(int) override {
    free_kept(Device::simt());
    return std::make_unique<HostQueue>();
  }
  std::unique_ptr<Queue> wrap_stream(int, void* handle) override {
    HostStream* const stream = HostStream::find(handle);
    if (stream && stream->is_capturing()) refuse_capture();
    auto queue = std::make_unique<HostQueue>(0, stream ? stream->work() : default_stream());
    if (const auto late = latency(); late.count() > 0)
      queue->delay([late] { std::this_thread::sleep_for(late); });
    return queue;
  }
  std::shared_ptr<void> allocate(Queue&, std::size_t nbytes) override {
    if (void* memory = user_memory().allocate(0, nbytes, {}))
      return {memory, [](void* p) { user_memory().free(p, {}); }};
    auto memory = allocate_counted(nbytes);
    void* const data = memory.get();
    // As a GPU does: in the order of the default stream.
    return {data, [memory = std::move(memory)](void*) mutable {
              HostQueue(0, default_stream()).notify([memory = std::move(memory)] {});
            }};
  }
  void set_allocator(int index, const Allocator& allocator) override {
    user_memory().set(index, allocator);
  }
  std::shared_ptr<std::byte> allocate_pinned(int, std::size_t nbytes) override {
    return allocate_counted(nbytes);
  }
  std::shared_ptr<void> pin(int, void*, std::size_t) override {
    return std::make_shared<char>();  // its memory is the host's: nothing is copied that could gain
  }

  DirectFiles direct_files() const override { return cufile(Device::Type::simt); }
  std::unique_ptr<DirectFile> open_direct(int fd, std::string path) const override {
    return std::make_unique<CufileFile>(cufile(Device::Type::simt), fd, std::move(path));
  }
  std::shared_ptr<const MappedFile> map_file(int,
                                             int fd,
                                             std::uint64_t offset,
                                             std::size_t nbytes) const override {
    return std::make_shared<SimtMappedFile>(fd, offset, nbytes);
  }

 private:
  // A child of fork lacks the thread that may be at the parent's work.
  static std::shared_ptr<HostWork> default_stream() {
    struct Default {
      std::shared_ptr<HostWork> work = std::make_shared<HostWork>();
    };
    static auto* stream = new PerProcess<Default>;  // as user_memory()
    return stream->get().work;
  }
  // How much later than it is told a stream of callers does what it is given, for tests from
  // outside.
  static std::chrono::milliseconds latency() {
    const char* const given = std::getenv("HEADRACE_SIMT_LATENCY_MS");
    return std::chrono::milliseconds(given ? std::atoi(given) : 0);
  }
  static std::shared_ptr<std::byte> allocate_counted(std::size_t nbytes) {
    struct Counted {
      explicit Counted(std::size_t n) { HostMemory::get().allocate(n); }
      ~Counted() { HostMemory::get().free(); }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      std::shared_ptr<std::byte> memory;
    };
    const auto counted = std::make_shared<Counted>(nbytes);
    counted->memory = allocate_shared(nbytes);
    return {counted, counted->memory.get()};
  }
  static UserMemory& user_memory() {
    static auto* memory = new UserMemory;  // never destroyed: results may outlive statics
    return *memory;
  }
};

}  // namespace

Backend& simt_backend() {
  static SimtBackend backend;
  return backend;
}

}  // namespace headrace
