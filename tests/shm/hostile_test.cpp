// What others may do to publications: other users that serve or ask for a name,
// servers that send what they should not.

#include "shm/hostile_kit.h"
#include "support/joining_thread.h"
#include "support/portable.h"

namespace headrace::shm {
namespace {

// Serves the name in a thread of this process: each who connects is given to `answer`.
class FakeServer {
 public:
  FakeServer(const std::string& name, std::function<void(int)> answer)
      : listener_(listen_as(name, geteuid())), answer_(std::move(answer)) {
    thread_ = JoiningThread([this] {
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
  JoiningThread thread_;
};

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
    this_user = +[] { return geteuid() + 1; };
  }
  ~PretendedUser() { this_user = geteuid; }
  PretendedUser(const PretendedUser&) = delete;
  PretendedUser& operator=(const PretendedUser&) = delete;
};

TEST(ShmPeer, OfAnotherUserIsNotAttachedTo) {
  SKIP_IF_PORTABLE("publications");
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
  SKIP_IF_PORTABLE("publications");
  const std::string name = test_name();
  const Publication publication = publish_text(name, "mine");
  const PretendedUser pretended_by_the_server;
  EXPECT_EQ(code_of([&] { attach(name, kNow); }), ErrorCode::not_found);
}

// What code of uid 65534 once ran as root by.
TEST(ShmPeer, OfAnotherUserThatTakesTheNameFirstIsPassedOver) {
  SKIP_IF_PORTABLE("publications");
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
  std::optional<Publication> publication;
  JoiningThread later([&] {
    std::this_thread::sleep_for(30ms);
    kill_child(squatter);
    publication.emplace(publish_text(name, "mine"));
  });
  EXPECT_EQ(text_of(attach(name, {20s, {}}).at(0).bytes), "mine");
}

TEST(ShmPeer, OfAnotherUserAsksInVain) {
  SKIP_IF_PORTABLE("publications");
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
  SKIP_IF_PORTABLE("publications");
  const std::size_t before = open_descriptors();
  const std::vector<std::byte> good = publication_bytes({128, 1, 64, 64}, 128);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  std::string path = testing::TempDir() + "headrace-hostile-XXXXXX";
  const int file = mkstemp(path.data());
  unlink(path.c_str());
  ASSERT_EQ(write(file, good.data(), good.size()), static_cast<ssize_t>(good.size()));
  const int device = open("/dev/zero", O_RDWR);
  const int folder = open(testing::TempDir().c_str(), O_RDONLY | O_DIRECTORY);
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
  SKIP_IF_PORTABLE("publications");
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
  SKIP_IF_PORTABLE("publications");
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
  SKIP_IF_PORTABLE("publications");
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
  SKIP_IF_PORTABLE("publications");
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

}  // namespace
}  // namespace headrace::shm
