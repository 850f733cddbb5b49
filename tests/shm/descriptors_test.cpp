// Descriptors that are not what they were said to be, what can be done with those that are handed
// out, and processes that have none left.

#include "shm/hostile_kit.h"
#include "support/portable.h"

namespace headrace::shm {
namespace {

// ---------------------------------------------------------------- memory

TEST(ShmPublication, IsMemoryThatNobodyCanWriteToOrCutShort) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  const Publication publication = publish_text(name, std::string(100'000, 'x'));
  const Message message = attach(name, kNow);
  int fd = -1;
  // The descriptor that attach() was sent, as a client of its own would get it.
  const ScopedFd asking(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "headrace-" + std::to_string(geteuid()) + "-" + name;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  ASSERT_EQ(connect(asking.get(),
                    reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())),
            0);
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr received{};
  received.msg_iov = &data;
  received.msg_iovlen = 1;
  received.msg_control = control;
  received.msg_controllen = sizeof control;
  ASSERT_EQ(recvmsg(asking.get(), &received, 0), 1);
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&received)), sizeof fd);
  const ScopedFd memory(fd);
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_LT(pwrite(fd, "y", 1, 0), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  // Opened anew, as any process of the user can.
  const ScopedFd again(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR));
  if (again.get() >= 0) {
    EXPECT_NE(ftruncate(again.get(), 0), 0);
    EXPECT_NE(ftruncate(again.get(), 1 << 30), 0);
    EXPECT_LT(pwrite(again.get(), "y", 1, 0), 0);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  }
  EXPECT_EQ(text_of(message.at(0).bytes), std::string(100'000, 'x'));
}

TEST(ShmSegment, RefusesWhatCanBeCutShort) {
  SKIP_IF_PORTABLE("sealed memory");
  const std::size_t before = open_descriptors();
  const std::vector<std::byte> zeros(1 << 16);
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    const ScopedFd memory(make_memory(zeros, seals));
    EXPECT_EQ(code_of([&] { Segment::attach(memory.get(), true); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { Segment::attach(memory.get(), false); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { Arena::attach(memory.get()); }), ErrorCode::invalid_argument);
  }
  {  // a file, also where files are memory
    for (const std::string& folder : {testing::TempDir(), std::string("/dev/shm/")}) {
      std::string path = folder + "headrace-hostile-XXXXXX";
      const ScopedFd file(mkstemp(path.data()));
      if (file.get() < 0) continue;
      ASSERT_EQ(ftruncate(file.get(), 1 << 16), 0);
      EXPECT_EQ(code_of([&] { Segment::attach(file.get(), true); }), ErrorCode::invalid_argument);
      unlink(path.c_str());
      EXPECT_EQ(code_of([&] { Segment::attach(file.get(), false); }), ErrorCode::invalid_argument);
    }
  }
  {  // a descriptor for reading
    const Arena arena = Arena::create(kMiB);
    const ScopedFd reading(open(("/proc/self/fd/" + std::to_string(arena.fd())).c_str(), O_RDONLY));
    EXPECT_EQ(code_of([&] { Arena::attach(reading.get()); }), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ShmSegment, IsOfItsUserAlone) {
  for (const Backing backing : {Backing::memfd, Backing::posix}) {
    if (backing == Backing::memfd && is_portable()) continue;
    const Segment segment = Segment::create(1 << 16, {.backing = backing});
    struct stat status {};
    ASSERT_EQ(fstat(segment.fd(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_EQ(Segment::attach(segment.fd(), true).memory().size(), segment.memory().size());
  }
}

// ---------------------------------------------------------------- no descriptors left

class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

std::chrono::nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(ShmDescriptors, OfAPublisherThatAreUsedUpMakeClientsWaitNotTheServerSpin) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  const Arena arena = Arena::create(kMiB);
  const Channel ready = arena.channel(1);
  const Publication publication = publish_text(name, "patience");
  // Waits in the publisher's queue all the while.
  const pid_t client = start_child([&] {
    put_text(ready, "ready", kSoon);
    if (text_of(attach(name, {60s, {}}).at(0).bytes) != "patience") {
      throw std::runtime_error("other bytes");
    }
  });
  {
    const FewDescriptors none(0);
    ASSERT_EQ(get_text(ready, kSoon), "ready");
    const auto begin = processor_time();
    std::this_thread::sleep_for(500ms);  // one that spins uses all of it
    EXPECT_LT(processor_time() - begin, 250ms);
  }
  expect_success(client);
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

TEST(ShmDescriptors, OfAClientThatAreUsedUpAreSaid) {
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  const Publication publication = publish_text(name, "text");
  expect_success(start_child([&] {
    const ScopedFd first_free(dup(0));
    const std::size_t before = open_descriptors();
    for (rlim_t more = 0; more < 4; ++more) {
      int error = 0;
      {
        const FewDescriptors few(static_cast<rlim_t>(first_free.get()) + 1 + more);
        try {
          attach(name, kNow);
        } catch (const Error& failed) {
          error = failed.os_error();
        }
      }
      expect(error == EMFILE || (more >= 2 && error == 0), "errno " + std::to_string(error));
      expect(open_descriptors() == before, "a descriptor is lost");
    }
    expect(attach(name, kNow).size() == 1, "it goes on");
    for (rlim_t more = 0; more < 2; ++more) {
      {
        const FewDescriptors few(static_cast<rlim_t>(first_free.get()) + 1 + more);
        expect(code_of([] { publish_text(test_name(), "text"); }) == ErrorCode::io, "publish");
        if (more == 0) expect(code_of([] { Arena::create(kMiB); }) == ErrorCode::io, "create");
      }
      expect(open_descriptors() == before, "a descriptor is lost");
    }
  }));
}

}  // namespace
}  // namespace headrace::shm
