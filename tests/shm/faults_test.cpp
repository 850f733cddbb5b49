// Each system call of shared memory fails once, in each way that its manual page names: the caller
// gets an error or what he wanted, descriptors and memory are back, and the next try works.

#include <cerrno>
#include <mutex>

#include "base/system.h"
#include "shm/hostile_kit.h"
#include "support/portable.h"

namespace headrace::shm {
namespace {

// The nth call of any kind fails in the way of that number.
class Injector {
 public:
  static Injector& get() {
    static auto* injector = new Injector;
    return *injector;
  }
  void arm(long nth, unsigned way) {
    const std::lock_guard lock(mutex_);
    left_ = nth;
    way_ = way;
    ways_ = 0;
    has_come_ = false;
  }
  // errno, or 0.
  int next(std::span<const int> ways) {
    const std::lock_guard lock(mutex_);
    if (left_ <= 0 || --left_ > 0) return 0;
    has_come_ = true;
    ways_ = static_cast<unsigned>(ways.size());
    return way_ < ways.size() ? ways[way_] : 0;
  }
  bool has_come() {
    const std::lock_guard lock(mutex_);
    return has_come_;
  }
  unsigned ways() {
    const std::lock_guard lock(mutex_);
    return ways_;
  }

 private:
  std::mutex mutex_;
  long left_ = 0;
  unsigned way_ = 0;
  unsigned ways_ = 0;
  bool has_come_ = false;
};

constexpr int kMemfd[] = {EMFILE, ENFILE, ENOMEM, EINVAL, EPERM};
constexpr int kShmOpen[] = {EACCES, EMFILE, ENFILE, EEXIST};
constexpr int kTruncate[] = {EINTR, EIO, ENOSPC, EFBIG, ENOMEM, EPERM};
constexpr int kMap[] = {ENOMEM, EAGAIN, ENODEV};
constexpr int kAdvise[] = {EINTR, EFAULT, ENOMEM, EINVAL, EIO, EAGAIN};
constexpr int kDuplicate[] = {EMFILE, EINVAL};
constexpr int kSeal[] = {EPERM, EBUSY, EINVAL};
constexpr int kStat[] = {ENOMEM, EIO};
constexpr int kOpen[] = {EACCES, EINTR, EMFILE, ENFILE, ENOMEM, ENOENT};
constexpr int kSocket[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM, EACCES};
constexpr int kBind[] = {EADDRINUSE, ENOMEM, EACCES};
constexpr int kListen[] = {EADDRINUSE, EOPNOTSUPP};
constexpr int kAccept[] = {
    EINTR, EAGAIN, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM, EPROTO, EINVAL};
constexpr int kConnect[] = {EINTR, ECONNREFUSED, EAGAIN, EACCES, ENOMEM};
constexpr int kSend[] = {EINTR, EPIPE, ECONNRESET, ENOBUFS, ENOMEM, ETOOMANYREFS};
constexpr int kReceive[] = {EINTR, EAGAIN, ECONNRESET, ENOMEM};
constexpr int kOption[] = {ENOBUFS, ENOPROTOOPT};
constexpr int kPoll[] = {EINTR, ENOMEM};
constexpr int kPidfd[] = {EMFILE, ENFILE, ENOMEM, EINVAL};
constexpr int kClose[] = {EINTR, EIO};

template <auto kCall, const auto& kWays>
struct Faulty;
template <typename R, typename... A, R (*SystemCalls::*kCall)(A...), const auto& kWays>
struct Faulty<kCall, kWays> {
  static R call(A... arguments) {
    const int error = Injector::get().next(kWays);
    if (error == 0) return (real_system_calls().*kCall)(arguments...);
    if constexpr (&kWays == static_cast<const void*>(&kClose)) {  // it is closed whatever it says
      (real_system_calls().*kCall)(arguments...);
    }
    errno = error;
    return R(-1);
  }
};

void* faulty_mmap(void* at, std::size_t nbytes, int protection, int flags, int fd, off_t offset) {
  const int error = Injector::get().next(kMap);
  if (error == 0) return real_system_calls().mmap(at, nbytes, protection, flags, fd, offset);
  errno = error;
  return MAP_FAILED;
}

int faulty_fcntl(int fd, int command, long argument) {
  int error = 0;
  if (command == F_DUPFD_CLOEXEC) error = Injector::get().next(kDuplicate);
  if (command == F_ADD_SEALS) error = Injector::get().next(kSeal);
  if (error == 0) return real_system_calls().fcntl(fd, command, argument);
  errno = error;
  return -1;
}

SystemCalls faulty_calls() {
  SystemCalls calls = real_system_calls();
  calls.memfd_create = Faulty<&SystemCalls::memfd_create, kMemfd>::call;
  calls.shm_open = Faulty<&SystemCalls::shm_open, kShmOpen>::call;
  calls.ftruncate = Faulty<&SystemCalls::ftruncate, kTruncate>::call;
  calls.mmap = faulty_mmap;
  calls.madvise = Faulty<&SystemCalls::madvise, kAdvise>::call;
  calls.fcntl = faulty_fcntl;
  calls.fstat = Faulty<&SystemCalls::fstat, kStat>::call;
  calls.stat = Faulty<&SystemCalls::stat, kStat>::call;
  calls.open = Faulty<&SystemCalls::open, kOpen>::call;
  calls.socket = Faulty<&SystemCalls::socket, kSocket>::call;
  calls.bind = Faulty<&SystemCalls::bind, kBind>::call;
  calls.listen = Faulty<&SystemCalls::listen, kListen>::call;
  calls.accept4 = Faulty<&SystemCalls::accept4, kAccept>::call;
  calls.connect = Faulty<&SystemCalls::connect, kConnect>::call;
  calls.sendmsg = Faulty<&SystemCalls::sendmsg, kSend>::call;
  calls.recvmsg = Faulty<&SystemCalls::recvmsg, kReceive>::call;
  calls.getsockopt = Faulty<&SystemCalls::getsockopt, kOption>::call;
  calls.poll = Faulty<&SystemCalls::poll, kPoll>::call;
  calls.pidfd_open = Faulty<&SystemCalls::pidfd_open, kPidfd>::call;
  calls.close = Faulty<&SystemCalls::close, kClose>::call;
  return calls;
}

class Faults {
 public:
  Faults() : before_(exchange_system_calls(&calls_)) {}
  ~Faults() { exchange_system_calls(before_); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  const SystemCalls calls_ = faulty_calls();
  const SystemCalls* before_;
};

std::size_t mapped_nbytes() {
  FILE* file = fopen("/proc/self/maps", "r");
  char line[512];
  std::size_t nbytes = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned long first = 0;
    unsigned long last = 0;
    const bool is_shared = sscanf(line, "%lx-%lx", &first, &last) == 2 && strstr(line, "headrace");
    if (is_shared) nbytes += last - first;
  }
  fclose(file);
  return nbytes;
}

// Runs `body` with the nth call failing, for every n and every way.
void fail_everywhere(const std::function<void()>& body) {
  body();  // what is made once a process is there now
  const std::size_t descriptors = open_descriptors();
  const std::size_t mapped = mapped_nbytes();
  static auto* const faults = new Faults;  // servers' threads may be on their way in it
  static_cast<void>(faults);
  long failures = 0;
  bool has_come = true;
  for (long nth = 1; has_come; ++nth) {
    unsigned ways = 1;
    has_come = false;
    for (unsigned way = 0; way < ways; ++way) {
      Injector::get().arm(nth, way);
      try {
        body();
      } catch (const Error& error) {
        ++failures;
        EXPECT_TRUE(error.code() == ErrorCode::io || error.code() == ErrorCode::out_of_memory ||
                    error.code() == ErrorCode::not_found ||
                    error.code() == ErrorCode::invalid_argument)
            << error.what();
      }
      has_come = has_come || Injector::get().has_come();
      ways = std::max(1U, Injector::get().ways());
      Injector::get().arm(0, 0);
      EXPECT_EQ(open_descriptors(), descriptors) << "call " << nth << ", way " << way;
      EXPECT_EQ(mapped_nbytes(), mapped) << "call " << nth << ", way " << way;
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
  body();
  EXPECT_GT(failures, 3);
}

TEST(ShmFaults, OfAnArenaAreErrorsAndLeaveNothing) {
  fail_everywhere([] {
    const Arena arena = Arena::create(1 << 16, {.max_blocks = 16});
    const Channel channel = arena.channel(2);
    put_text(channel, "text");
    if (get_text(channel) != "text") throw std::runtime_error("another text");
    arena.reclaim();
  });
}

TEST(ShmFaults, OfAttachingToAnArenaAreErrorsAndLeaveNothing) {
  const Arena arena = Arena::create(1 << 16, {.max_blocks = 16});
  fail_everywhere([&] {
    auto state =
        std::make_shared<ArenaState>(std::make_shared<Segment>(Segment::attach(arena.fd(), true)));
    Waiting waiting(kNow);
    state->allocate(100, waiting);
    state->stats(waiting);
  });
  EXPECT_EQ(arena.stats().processes, 1U);
  EXPECT_EQ(arena.stats().blocks, 0U);
  audit(arena);
}

TEST(ShmFaults, OfPosixSharedMemoryAreErrorsAndLeaveNothing) {
  fail_everywhere([] {
    const Segment segment = Segment::create(1 << 16, {.backing = Backing::posix});
    Segment::attach(segment.fd(), true);
  });
}

TEST(ShmFaults, OfAPublicationAreErrorsAndLeaveNothing) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  fail_everywhere([&] { publish_text(name, "text").close(); });
}

// Its server's calls, too: a client that is left without an answer asks again.
TEST(ShmFaults, OfAttachingToAPublicationAreErrorsAndLeaveNothing) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  fail_everywhere([&] {
    Publication publication = publish_text(name, "text");
    const Message message = attach(name, kNow);
    if (text_of(message.at(0).bytes) != "text") throw std::runtime_error("another text");
    publication.close();
  });
}

}  // namespace
}  // namespace headrace::shm
