#include "store/uring.h"

#include "headrace/error.h"

#ifdef HEADRACE_HAVE_URING

#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>

#include "base/checked.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "base/trace.h"

namespace headrace {

namespace {

constexpr unsigned kDepth = 64;
// Measured on zstd chunks of 70 KiB, two cores (bench/results/file-io.json): against one read a
// thread, 16 to 64 take less time from a cold page cache; from a warm one 64 leave the CPU's cache.
constexpr std::size_t kBatch = 16;
constexpr std::size_t kMaxRead = std::size_t{1} << 30;  // the length of a request is 32 bits

std::string explain_setup_failure(int os_error) {
  std::string reason = std::generic_category().message(os_error);
  if (os_error == ENOSYS) reason += ": this kernel has no io_uring";
  if (os_error == EPERM) {
    reason += ": disabled by the sysctl kernel.io_uring_disabled or by a seccomp filter";
  }
  if (os_error == ENOMEM) reason += ": the limit of locked memory (ulimit -l) is too small";
  return reason;
}

class Ring {
 public:
  ~Ring() { drop(); }

  // Makes the ring at first use and again in a child after fork, whose copy is its parent's.
  void prepare() {
    if (live_ && generation_ == fork_generation()) return;
    drop();
    int rc = io_uring_queue_init(kDepth, &ring_, 0);
    if (rc < 0) {
      throw Error(ErrorCode::io, "io_uring setup: " + explain_setup_failure(-rc), -rc);
    }
    live_ = true;
    generation_ = fork_generation();
  }

  // At most kDepth requests between two calls of run().
  io_uring_sqe* next() { return io_uring_get_sqe(&ring_); }

  // Submits the `count` prepared requests and gives each result to `done` with the request's data.
  // Returns or throws only when none is on its way any more: they write into the callers' memory.
  void run(unsigned count, FunctionRef<void(std::uint64_t, int)> done) {
    unsigned waiting = count;
    unsigned in_flight = 0;
    int failure = 0;
    while ((waiting > 0 && failure == 0) || in_flight > 0) {
      int rc = waiting > 0 && failure == 0 ? io_uring_submit_and_wait(&ring_, waiting + in_flight)
                                           : wait_for_one();
      if (rc >= 0) {
        unsigned submitted = std::min(waiting, static_cast<unsigned>(rc));
        waiting -= submitted;
        in_flight += submitted;
      } else if (rc != -EINTR && !((rc == -EAGAIN || rc == -EBUSY) && in_flight > 0)) {
        if (waiting > 0) failure = -rc;
      }
      io_uring_cqe* entry = nullptr;
      while (in_flight > 0 && io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
        done(entry->user_data, entry->res);
        io_uring_cqe_seen(&ring_, entry);
        --in_flight;
      }
    }
    if (failure != 0) {
      drop();  // unsubmitted requests are still in it
      throw_io(failure, "submit", "to io_uring");
    }
  }

 private:
  // 0, or a negative errno; submits nothing.
  int wait_for_one() {
    io_uring_cqe* entry = nullptr;
    return io_uring_wait_cqe(&ring_, &entry);
  }

  void drop() {
    if (live_) io_uring_queue_exit(&ring_);
    live_ = false;
  }

  io_uring ring_{};
  bool live_ = false;
  unsigned generation_ = 0;
};

Ring& thread_ring() {
  thread_local Ring ring;
  ring.prepare();
  return ring;
}

// One request of a batch. What goes wrong with it does not hold up the others.
struct Slot {
  template <typename Body>
  void guard(Body body) {
    try {
      body();
    } catch (...) {
      request->error = std::current_exception();
      request->found = false;
      done = size;
    }
  }

  GetRequest* request = nullptr;
  std::string path;
  FileDescriptor fd;
  MutableBytes place;    // where the bytes go
  std::size_t size = 0;  // of the object
  std::size_t done = 0;
  int result = 0;
};

class UringStore : public FileStore {
 public:
  using FileStore::FileStore;

  std::size_t batch_size() const override { return kBatch; }

  void get_many(std::span<GetRequest> requests) override {
    for (std::size_t first = 0; first < requests.size(); first += kDepth) {
      get_batch(requests.subspan(first, std::min<std::size_t>(kDepth, requests.size() - first)));
    }
  }

 private:
  void get_batch(std::span<GetRequest> requests) {
    Span span("fetch");
    std::vector<Slot> slots(requests.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = slots[i];
      slot.request = &requests[i];
      slot.request->found = false;
      slot.request->error = nullptr;
      slot.guard([&] { slot.path = path_of(slot.request->key); });
    }
    Ring& ring = thread_ring();
    open_all(ring, slots);
    size_all(slots);
    while (read_all(ring, slots)) {
    }
    for (const Slot& slot : slots) span.add(slot.size);
    if (options().direct) {
      for (Slot& slot : slots) {
        if (slot.request->found) direct_settle(*slot.request->into, slot.place, slot.size);
      }
    }
  }

  void open_all(Ring& ring, std::vector<Slot>& slots) {
    unsigned count = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].request->error) continue;
      io_uring_sqe* entry = ring.next();
      io_uring_prep_openat(entry, AT_FDCWD, slots[i].path.c_str(), open_flags() | O_CLOEXEC, 0);
      io_uring_sqe_set_data64(entry, i);
      ++count;
    }
    ring.run(count, [&](std::uint64_t i, int result) {
      if (result >= 0) {
        slots[i].fd = FileDescriptor(result);
      } else {
        slots[i].result = result;
      }
    });
    for (Slot& slot : slots) {
      if (slot.result >= 0) continue;
      slot.guard([&] {
        if (open_found_nothing(-slot.result, slot.path, options().direct)) return;
        throw_open_failure(-slot.result, slot.path, options().direct);
      });
    }
  }

  // A plain fstat: statx over a ring is always handed to a kernel worker thread.
  void size_all(std::vector<Slot>& slots) {
    for (Slot& slot : slots) {
      if (slot.fd && !names_temporary(slot.request->key)) slot.guard([&] { size_one(slot); });
    }
  }

  void size_one(Slot& slot) {
    struct stat st;
    if (::fstat(slot.fd.get(), &st) != 0) throw_io(errno, "stat", slot.path);
    std::optional<std::uint64_t> size = object_size(st, slot.path);
    if (!size) return;
    check_object_nbytes(slot.path, *size, slot.request->max_nbytes);
    const auto nbytes = checked_cast<std::size_t>(*size, "object size");
    if (options().direct) {
      slot.place = direct_place(*slot.request->into, *size);
    } else {
      slot.request->into->resize(nbytes);
      slot.place = slot.request->into->bytes();
    }
    slot.request->found = true;
    slot.size = nbytes;
  }

  // One read of what each object still lacks; false when none lacks anything.
  bool read_all(Ring& ring, std::vector<Slot>& slots) {
    unsigned count = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = slots[i];
      if (slot.done >= slot.size) continue;
      MutableBytes rest = slot.place.subspan(slot.done);
      io_uring_sqe* entry = ring.next();
      io_uring_prep_read(entry,
                         slot.fd.get(),
                         rest.data(),
                         static_cast<unsigned>(std::min(rest.size(), kMaxRead)),
                         slot.done);
      io_uring_sqe_set_data64(entry, i);
      ++count;
    }
    if (count == 0) return false;
    ring.run(count, [&](std::uint64_t i, int result) {
      Slot& slot = slots[i];
      slot.result = result;
      if (result > 0) slot.done += static_cast<std::size_t>(result);
    });
    for (Slot& slot : slots) {
      if (slot.done >= slot.size || slot.result > 0) continue;
      if (slot.result == -EINTR || slot.result == -EAGAIN) continue;
      slot.guard([&] {
        if (slot.result == 0) throw_short(slot.path, slot.size, slot.done);
        throw_io(-slot.result, "read", slot.path);
      });
    }
    return true;
  }
};

}  // namespace

bool uring_available(std::string& why_not) {
  io_uring ring;
  int rc = io_uring_queue_init(2, &ring, 0);
  if (rc < 0) {
    why_not = explain_setup_failure(-rc);
    return false;
  }
  bool ok = false;
  if (io_uring_probe* probe = io_uring_get_probe_ring(&ring)) {
    ok = io_uring_opcode_supported(probe, IORING_OP_OPENAT) &&
         io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
  }
  io_uring_queue_exit(&ring);
  if (!ok) why_not = "this kernel's io_uring lacks openat or read (they came with Linux 5.6)";
  return ok;
}

std::unique_ptr<StoreDriver> make_uring_store(std::string root, FileOptions options) {
  std::string why_not;
  if (!uring_available(why_not)) {
    throw Error(ErrorCode::unsupported, "store " + root + ": io=uring: " + why_not);
  }
  return std::make_unique<UringStore>(std::move(root), options);
}

}  // namespace headrace

#else

namespace headrace {

bool uring_available(std::string& why_not) {
  why_not = "built without liburing";
  return false;
}

std::unique_ptr<StoreDriver> make_uring_store(std::string root, FileOptions) {
  throw Error(ErrorCode::unsupported, "store " + root + ": io=uring: built without liburing");
}

}  // namespace headrace

#endif
