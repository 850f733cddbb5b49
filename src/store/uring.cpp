#include "store/uring.h"

#include "base/system.h"
#include "headrace/error.h"

#ifdef HEADRACE_HAVE_URING

#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>

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

// Requests that may still write when there is nobody left to wait for them.
struct Abandoned {
  int os_error;
};

// Sleeps between tries that fail, 5 s of them in all.
class Patience {
 public:
  bool wait() {
    if (tries_ == kTries) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(10) * (1 << std::min(tries_, 10)));
    ++tries_;
    return true;
  }

 private:
  static constexpr int kTries = 500;
  int tries_ = 0;
};

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

  // At most kDepth requests between two calls of complete().
  io_uring_sqe* next() { return io_uring_get_sqe(&ring_); }

  // Submits the `count` prepared requests and gives each result to `done` with the request's data.
  // Returns or throws only when none is on its way any more: they write into the callers' memory.
  // But for Abandoned, when the kernel has said nothing of them but errors for long.
  void complete(unsigned count, FunctionRef<void(std::uint64_t, int)> done) {
    unsigned waiting = count;
    unsigned in_flight = 0;
    int failure = 0;
    Patience patience;
    while ((waiting > 0 && failure == 0) || in_flight > 0) {
      const bool submits = waiting > 0 && failure == 0;
      const int rc =
          submits ? os().ring_submit_and_wait(&ring_, waiting + in_flight) : os().ring_wait(&ring_);
      if (submits && rc > 0) {
        const unsigned submitted = std::min(waiting, static_cast<unsigned>(rc));
        waiting -= submitted;
        in_flight += submitted;
      }
      io_uring_cqe* entry = nullptr;
      bool got_any = false;
      while (in_flight > 0 && io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
        done(entry->user_data, entry->res);
        io_uring_cqe_seen(&ring_, entry);
        --in_flight;
        got_any = true;
      }
      if (got_any || rc > 0) patience = {};
      if (got_any || rc >= 0 || rc == -EINTR) continue;
      // The kernel lacks room for more requests until some are done (EAGAIN, EBUSY); else it will
      // take none. What is in flight ends by itself: results come without a call that asks.
      const bool passes = rc == -EAGAIN || rc == -EBUSY;
      if (submits && !passes) {
        failure = -rc;
      } else if (!patience.wait()) {
        if (in_flight > 0) {
          drop();
          throw Abandoned{-rc};
        }
        failure = -rc;
      }
    }
    if (failure != 0) {
      drop();  // unsubmitted requests are still in it
      throw_io(failure, "submit", "to io_uring");
    }
  }

 private:
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
  // Asked once more by a plain call, which ends: a ring that says so again and again may not.
  static bool is_again(int result) { return result == -EINTR || result == -EAGAIN; }

  // Requests may yet write to this memory and read these paths, so it is never freed.
  static void leave_to_kernel(std::vector<Slot> slots, std::span<GetRequest> requests) {
    struct Left {
      std::vector<Slot> slots;
      std::vector<Buffer> memory;
      Left* before;
    };
    static std::atomic<Left*> all{nullptr};
    auto left = std::make_unique<Left>();
    left->slots = std::move(slots);
    for (GetRequest& request : requests) {
      request.found = false;
      left->memory.push_back(std::move(*request.into));
    }
    left->before = all.exchange(left.get());
    static_cast<void>(left.release());
  }

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
    try {
      open_all(ring, slots);
      size_all(slots);
      while (read_all(ring, slots)) {
      }
    } catch (const Abandoned& e) {
      leave_to_kernel(std::move(slots), requests);
      throw_io(e.os_error, "wait for io_uring to read", url());
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
    ring.complete(count, [&](std::uint64_t i, int result) {
      if (result >= 0) {
        slots[i].fd = FileDescriptor(result);
      } else {
        slots[i].result = result;
      }
    });
    for (Slot& slot : slots) {
      if (is_again(slot.result)) {
        slot.fd = FileDescriptor(open_retrying(slot.path.c_str(), open_flags()));
        slot.result = slot.fd ? 0 : -errno;
      }
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
    if (os().fstat(slot.fd.get(), &st) != 0) throw_io(errno, "stat", slot.path);
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
    ring.complete(count, [&](std::uint64_t i, int result) {
      Slot& slot = slots[i];
      slot.result = result;
      if (result > 0) slot.done += static_cast<std::size_t>(result);
    });
    for (Slot& slot : slots) {
      if (slot.done >= slot.size || slot.result > 0) continue;
      slot.guard([&] {
        if (is_again(slot.result)) {
          slot.done += read_at(slot.fd.get(), slot.done, slot.place.subspan(slot.done), slot.path);
          if (slot.done >= slot.size) return;
          slot.result = 0;
        }
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

std::unique_ptr<FileStore> make_uring_store(std::string root, FileOptions options) {
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

std::unique_ptr<FileStore> make_uring_store(std::string root, FileOptions) {
  throw Error(ErrorCode::unsupported, "store " + root + ": io=uring: built without liburing");
}

}  // namespace headrace

#endif
