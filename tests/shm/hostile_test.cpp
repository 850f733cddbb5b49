// What others may do to publications and to descriptors: other users that serve or ask for a name,
// servers that send what they should not, memory that is not what it was said to be, and a process
// that has no descriptors left.

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <thread>

#include "shm/peer.h"
#include "shm/process.h"
#include "shm/shm_kit.h"

namespace headrace::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr uid_t kNobody = 65534;

std::size_t open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  std::size_t count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() { close(fd_); }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Binds the name that publish() would.
int listen_as(const std::string& name, uid_t owner, int backlog = 8) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "headrace-" + std::to_string(owner) + "-" + name;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto nbytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), nbytes) != 0 ||
      listen(listener, backlog) != 0) {
    throw std::runtime_error("cannot serve " + path);
  }
  return listener;
}

void send_fds(int connection, const std::vector<int>& fds) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
  }
  sendmsg(connection, &message, MSG_NOSIGNAL);
}

// Serves the name in a thread of this process: each who connects is given to `answer`.
class FakeServer {
 public:
  FakeServer(const std::string& name, std::function<void(int)> answer)
      : listener_(listen_as(name, geteuid())), answer_(std::move(answer)) {
    thread_ = std::jthread([this] {
      while (true) {
        const int connection = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0) return;
        answer_(connection);
        kept_.push_back(connection);  // that it is closed is no answer, either
      }
    });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    for (const int connection : kept_) close(connection);
  }

 private:
  ScopedFd listener_;
  std::function<void(int)> answer_;
  std::vector<int> kept_;
  std::jthread thread_;
};

std::string test_name() {
  static int count = 0;
  return "hostile-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

Publication publish_text(const std::string& name, std::string_view text) {
  const std::span<const std::byte> part = bytes_of(text);
  return publish(name, {&part, 1});
}

std::string message_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// Memory that says what a publication says; `seals` of it.
int make_memory(std::span<const std::byte> bytes, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("write");
  }
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) throw std::runtime_error("seals");
  return fd;
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

// {magic, nbytes, parts, {offset, nbytes}...}, up to `nbytes`.
std::vector<std::byte> publication_bytes(std::vector<std::uint64_t> words, std::size_t nbytes) {
  words.insert(words.begin(), 0x43494c4255505248);
  std::vector<std::byte> bytes(nbytes);
  std::memcpy(bytes.data(), words.data(), std::min(nbytes, words.size() * sizeof(words[0])));
  return bytes;
}

// ---------------------------------------------------------------- other users

class PretendedUser {
 public:
  PretendedUser() {
    this_user = [] { return geteuid() + 1; };
  }
  ~PretendedUser() { this_user = geteuid; }
  PretendedUser(const PretendedUser&) = delete;
  PretendedUser& operator=(const PretendedUser&) = delete;
};

TEST(ShmPeer, OfAnotherUserIsNotAttachedTo) {
  const std::string name = test_name();
  const Publication publication = publish_text(name, "mine");
  const pid_t child = start_child([&] {
    const PretendedUser other;
    const std::string text = message_of([&] { attach(name, kNow); }, ErrorCode::not_found);
    const std::string wanted = "a process of uid " + std::to_string(geteuid());
    if (text.find(wanted) == std::string::npos) throw std::runtime_error(text);
    if (testing::Test::HasFailure()) throw std::runtime_error("another error");
  });
  expect_success(child);
  EXPECT_EQ(attach(name, kNow).size(), 1U);
}

TEST(ShmPeer, OfAnotherUserIsNotServed) {
  const std::string name = test_name();
  const Publication publication = publish_text(name, "mine");
  const PretendedUser pretended_by_the_server;
  EXPECT_EQ(code_of([&] { attach(name, kNow); }), ErrorCode::not_found);
}

// What code of uid 65534 once ran as root by.
TEST(ShmPeer, OfAnotherUserThatTakesTheNameFirstIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const std::string name = test_name();
  const Arena arena = Arena::create(kMiB);
  const Channel from_squatter = arena.channel(1);
  const pid_t squatter = start_child([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) throw std::runtime_error("setresuid");
    const ScopedFd listener(listen_as(name, 0));
    put_text(from_squatter, "ready", kSoon);
    const std::vector<std::byte> bytes = publication_bytes({128, 1, 64, 64}, 128);
    const ScopedFd memory(make_memory(bytes, kAllSeals));
    while (true) {
      const ScopedFd connection(accept(listener.get(), nullptr, nullptr));
      send_fds(connection.get(), {memory.get()});
    }
  });
  ASSERT_EQ(get_text(from_squatter, kSoon), "ready");
  for (const Wait& wait : {kNow, Wait{100ms, {}}}) {
    const std::string text = message_of([&] { attach(name, wait); }, ErrorCode::not_found);
    EXPECT_NE(text.find("a process of uid 65534 serves that name"), std::string::npos) << text;
  }
  const std::string taken =
      message_of([&] { publish_text(name, "mine"); }, ErrorCode::invalid_argument);
  EXPECT_NE(taken.find("65534"), std::string::npos) << taken;
  // The real one comes while somebody waits.
  std::jthread later([&] {
    std::this_thread::sleep_for(30ms);
    kill_child(squatter);
    static Publication* const publication = new Publication(publish_text(name, "mine"));
    static_cast<void>(publication);
  });
  EXPECT_EQ(text_of(attach(name, {20s, {}}).at(0).bytes), "mine");
}

TEST(ShmPeer, OfAnotherUserAsksInVain) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const std::string name = test_name();
  const Publication publication = publish_text(name, "mine");
  expect_success(start_child([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) throw std::runtime_error("setresuid");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "headrace-0-" + name;
    std::memcpy(address.sun_path + 1, path.data(), path.size());
    const ScopedFd asking(socket(AF_UNIX, SOCK_STREAM, 0));
    const auto nbytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    if (connect(asking.get(), reinterpret_cast<const sockaddr*>(&address), nbytes) != 0) return;
    char byte = 0;
    if (recv(asking.get(), &byte, 1, 0) > 0) throw std::runtime_error("it was answered");
  }));
}

TEST(ShmPeer, OfAnotherUserOwnsNoMemoryThatIsAttachedTo) {
  const Arena arena = Arena::create(kMiB);
  expect_success(start_child([&] {
    const PretendedUser other;
    if (code_of([&] { Segment::attach(arena.fd(), true); }) != ErrorCode::invalid_argument) {
      throw std::runtime_error("it was attached to");
    }
  }));
}

// ---------------------------------------------------------------- servers that send what they want

TEST(ShmServer, ThatSendsNoMemoryIsCorrupt) {
  const std::size_t before = open_descriptors();
  const std::vector<std::byte> good = publication_bytes({128, 1, 64, 64}, 128);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  char path[] = "/tmp/headrace-hostile-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  ASSERT_EQ(write(file, good.data(), good.size()), static_cast<ssize_t>(good.size()));
  const int device = open("/dev/zero", O_RDWR);
  const int folder = open("/tmp", O_RDONLY | O_DIRECTORY);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const int unsealed = make_memory(good, 0);
  const int shrinkable = make_memory(good, F_SEAL_WRITE | F_SEAL_SEAL);
  const int writable = make_memory(good, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const int empty = make_memory({}, kAllSeals);
  const int sealed = make_memory(good, kAllSeals);
  const std::vector<std::vector<int>> answers{{},
                                              {pipe_ends[0]},
                                              {file},
                                              {device},
                                              {folder},
                                              {socket},
                                              {unsealed},
                                              {shrinkable},
                                              {writable},
                                              {empty},
                                              {sealed, sealed},
                                              std::vector<int>(64, sealed)};
  for (const std::vector<int>& answer : answers) {
    const std::string name = test_name();
    const FakeServer server(name, [&](int connection) { send_fds(connection, answer); });
    const std::size_t held = open_descriptors();
    message_of([&] { attach(name, kSoon); }, ErrorCode::corrupt);
    EXPECT_LE(open_descriptors(), held + 1) << "the server's own connection";
  }
  {  // the same bytes are good when they are what they should be
    const std::string name = test_name();
    const FakeServer server(name, [&](int connection) { send_fds(connection, {sealed}); });
    EXPECT_EQ(attach(name, kSoon).at(0).bytes.size(), 64U);
  }
  for (const int fd : {pipe_ends[0],
                       pipe_ends[1],
                       file,
                       device,
                       folder,
                       socket,
                       unsealed,
                       shrinkable,
                       writable,
                       empty,
                       sealed}) {
    close(fd);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ShmServer, ThatSendsBadSizesIsCorrupt) {
  constexpr std::uint64_t kMany = UINT64_MAX;
  const std::vector<std::vector<std::uint64_t>> headers{{kMany, 0},
                                                        {129, 1, 64, 64},
                                                        {64, 1, 64, 64},
                                                        {128, 1, 64, 65},
                                                        {128, 1, 64, kMany},
                                                        {128, 1, kMany, 64},
                                                        {128, 1, kMany, kMany},
                                                        {128, 1, 0, 64},
                                                        {128, 1, 24, 8},
                                                        {128, 1, 65, 1},
                                                        {128, 7, 64, 0},
                                                        {128, kMany, 64, 0},
                                                        {128, kMany / 16, 64, 0},
                                                        {128, 2, 64, 0, 128, 64},
                                                        {128, 0},
                                                        {0, 0}};
  for (const std::vector<std::uint64_t>& words : headers) {
    const std::string name = test_name();
    const ScopedFd memory(make_memory(publication_bytes(words, 128), kAllSeals));
    const FakeServer server(name, [&](int connection) { send_fds(connection, {memory.get()}); });
    message_of([&] { attach(name, kSoon); }, ErrorCode::corrupt);
  }
  for (const std::size_t nbytes : {1U, 8U, 23U}) {
    const std::string name = test_name();
    const ScopedFd memory(make_memory(publication_bytes({24, 0}, nbytes), kAllSeals));
    const FakeServer server(name, [&](int connection) { send_fds(connection, {memory.get()}); });
    message_of([&] { attach(name, kSoon); }, ErrorCode::corrupt);
  }
}

TEST(ShmServer, ThatSaysNothingIsNotWaitedForForEver) {
  const std::string name = test_name();
  const FakeServer server(name, [](int) {});
  const auto begin = Clock::now();
  const std::string text = message_of([&] { attach(name, kNow); }, ErrorCode::not_found);
  EXPECT_NE(text.find("does not answer"), std::string::npos) << text;
  EXPECT_LT(Clock::now() - begin, 20s);
  int calls = 0;
  const Wait interrupted{{}, [&] {
                           if (++calls == 2) throw std::runtime_error("stop");
                         }};
  EXPECT_THROW(attach(name, interrupted), std::runtime_error);
}

// Its queue is full: who connects would wait in connect().
TEST(ShmServer, ThatAcceptsNobodyIsNotWaitedForForEver) {
  const std::string name = test_name();
  const ScopedFd listener(listen_as(name, geteuid(), 1));
  const auto begin = Clock::now();
  for (int i = 0; i < 3; ++i) {
    const Wait brief{0ns, [] { throw std::runtime_error("stop"); }};
    // Each leaves a connection in the queue that nobody accepts.
    EXPECT_ANY_THROW(attach(name, brief));
  }
  message_of([&] { attach(name, {50ms, {}}); }, ErrorCode::not_found);
  EXPECT_LT(Clock::now() - begin, 60s);
}

TEST(ShmServer, ThatClosesIsAskedAgain) {
  const std::string name = test_name();
  const ScopedFd memory(make_memory(publication_bytes({128, 1, 64, 64}, 128), kAllSeals));
  int asked = 0;
  const FakeServer server(name, [&](int connection) {
    if (++asked < 3) {
      shutdown(connection, SHUT_RDWR);
    } else {
      send_fds(connection, {memory.get()});
    }
  });
  EXPECT_EQ(attach(name, {20s, {}}).size(), 1U);
  EXPECT_EQ(asked, 3);
}

// ---------------------------------------------------------------- memory

TEST(ShmPublication, IsMemoryThatNobodyCanWriteToOrCutShort) {
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
  const std::size_t before = open_descriptors();
  const std::vector<std::byte> zeros(1 << 16);
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    const ScopedFd memory(make_memory(zeros, seals));
    EXPECT_EQ(code_of([&] { Segment::attach(memory.get(), true); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { Segment::attach(memory.get(), false); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { Arena::attach(memory.get()); }), ErrorCode::invalid_argument);
  }
  {  // a file, also where files are memory
    for (const char* folder : {"/tmp", "/dev/shm"}) {
      std::string path = std::string(folder) + "/headrace-hostile-XXXXXX";
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
    std::this_thread::sleep_for(200ms);  // one that spins uses all of it
    EXPECT_LT(processor_time() - begin, 100ms);
  }
  expect_success(client);
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

TEST(ShmDescriptors, OfAClientThatAreUsedUpAreSaid) {
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
