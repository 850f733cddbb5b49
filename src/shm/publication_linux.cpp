// Publications: memory that is sealed once it is written, and a socket in the abstract name space
// that hands its descriptor to whoever of this user asks. Both are gone with the process that
// published.
//
// Other users may bind the name, and connect to it. Each side therefore asks the kernel who the
// other one is before it sends or believes anything.

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "base/system.h"
#include "headrace/error.h"
#include "headrace/shm.h"
#include "shm/peer.h"
#include "shm/segment.h"

namespace headrace::shm {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::uint64_t kPublicationMagic = 0x43494c4255505248;  // "HRPUBLIC"
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLongestName = 64;

struct PublicationHeader {
  std::uint64_t magic;
  std::uint64_t nbytes;  // of all
  std::uint64_t parts;
};

struct PublishedPart {
  std::uint64_t offset;
  std::uint64_t nbytes;
};

std::size_t round_up(std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

[[noreturn]] void fail(const char* what, int error) {
  throw Error(ErrorCode::io, std::string("[shm] ") + what + ": " + std::strerror(error), error);
}

[[noreturn]] void throw_no_publication(const char* why) {
  throw Error(ErrorCode::corrupt,
              std::string("[shm] what was attached to is no publication: ") + why);
}

struct Address {
  sockaddr_un name{};
  socklen_t nbytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// A name that begins with a zero is no file: the kernel forgets it with the socket. By user, so
// that users do not meet.
Address address_of(const std::string& name) {
  if (name.empty() || name.size() > kLongestName) {
    throw Error(
        ErrorCode::invalid_argument,
        "[shm] the name of a publication has 1 to 64 bytes, not " + std::to_string(name.size()));
  }
  const std::string path = "headrace-" + std::to_string(geteuid()) + "-" + name;
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, path.data(), path.size());
  address.nbytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

OwnedFd make_socket() {
  OwnedFd socket(os().socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) fail("socket", errno);
  return socket;
}

// 0, or ECONNREFUSED where nobody serves the name, or EAGAIN where too many wait to be served.
int connect_to(const OwnedFd& socket, const Address& address) {
  while (os().connect(socket.get(), address.get(), address.nbytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED || errno == EAGAIN) return errno;
    fail("connect", errno);
  }
  return 0;
}

std::string user_text(uid_t user) {
  return "a process of uid " + std::to_string(user) + " serves that name";
}

constexpr std::size_t kMostDescriptors = 253;  // the kernel's SCM_MAX_FD

template <std::size_t kCount>
union ControlBuffer {
  char bytes[CMSG_SPACE(kCount * sizeof(int))];
  cmsghdr align;
};

void send_descriptor(int connection, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  ControlBuffer<1> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  // One that has gone away needs nothing; one that is left without asks again.
  while (os().sendmsg(connection, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// The one descriptor that is waiting there. Nothing: the other end has closed. All that came with
// it is closed.
std::optional<OwnedFd> receive_descriptor(int connection) {
  std::vector<OwnedFd> received;
  received.reserve(kMostDescriptors);  // now: what has come must not be lost
  char byte = 0;
  iovec data{&byte, 1};
  ControlBuffer<kMostDescriptors> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t nbytes = 0;
  do {
    nbytes = os().recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (nbytes < 0 && errno == EINTR);
  if (nbytes <= 0) return std::nullopt;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      received.emplace_back(fd);
    }
  }
  // The kernel drops what there is no room for in this process's table.
  if (message.msg_flags & MSG_CTRUNC) fail("receiving a file descriptor", EMFILE);
  if (received.empty()) throw_no_publication("no memory came with the message");
  if (received.size() > 1) throw_no_publication("more than one descriptor came");
  return std::move(received.front());
}

// The parts in memory of their own.
Segment make_segment(Parts parts) {
  std::vector<PublishedPart> records;
  std::size_t nbytes = round_up(sizeof(PublicationHeader) + parts.size() * sizeof(PublishedPart));
  for (const std::span<const std::byte> part : parts) {
    records.push_back({nbytes, part.size()});
    nbytes = round_up(checked_add(nbytes, part.size(), "[shm] size of a publication"));
  }
  return Segment::create_sealed(nbytes, [&](std::span<std::byte> memory) {
    const PublicationHeader header{kPublicationMagic, nbytes, parts.size()};
    std::memcpy(memory.data(), &header, sizeof header);
    if (!records.empty()) {
      std::memcpy(memory.data() + sizeof header, records.data(), std::span(records).size_bytes());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].empty()) continue;
      std::memcpy(memory.data() + records[i].offset, parts[i].data(), parts[i].size());
    }
  });
}

// What another process says of its memory is checked before it is used: the parts lie one behind
// the other, as make_segment() puts them.
Message read_segment(const std::shared_ptr<Segment>& segment) {
  const std::span<std::byte> memory = segment->memory();
  PublicationHeader header{};
  if (memory.size() < sizeof header) throw_no_publication("it is too small");
  std::memcpy(&header, memory.data(), sizeof header);
  if (header.magic != kPublicationMagic) throw_no_publication("it does not begin as one");
  const std::size_t room = (memory.size() - sizeof header) / sizeof(PublishedPart);
  const auto bad_sizes = [] { throw_no_publication("its sizes contradict each other"); };
  if (header.nbytes > memory.size() || header.parts > room) bad_sizes();
  std::size_t end = round_up(sizeof header + header.parts * sizeof(PublishedPart));
  Message message;
  message.reserve(header.parts);
  for (std::size_t i = 0; i < header.parts; ++i) {
    PublishedPart part{};
    std::memcpy(&part, memory.data() + sizeof header + i * sizeof part, sizeof part);
    if (part.offset != end || end > memory.size() || part.nbytes > memory.size() - end) bad_sizes();
    message.push_back({memory.subspan(part.offset, part.nbytes), segment});
    end = round_up(end + part.nbytes);
  }
  if (end != header.nbytes) bad_sizes();
  return message;
}

// As it came from another process.
Segment attach_sealed(int fd) {
  try {
    return Segment::attach(fd, false);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw_no_publication(error.what());
  }
}

// How a caller that waits for a publication waits.
class AttachWait {
 public:
  explicit AttachWait(const Wait& wait) : wait_(wait) {}

  bool is_over() const { return wait_.timeout && Clock::now() - begin_ >= *wait_.timeout; }

  // False: nothing is there to be read.
  bool for_answer(int connection) const {
    // Whatever the timeout: the publisher has to get a processor. Longer only in turns: it may be
    // stopped, or the socket a forked child's copy.
    constexpr auto kPatience = 1s;
    const Clock::time_point end = Clock::now() + kPatience;
    while (Clock::now() < end) {
      pollfd waiting{connection, POLLIN, 0};
      const int ready = os().poll(&waiting, 1, kSliceMs);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) fail("poll", errno);
      if (wait_.interrupt) wait_.interrupt();
    }
    return false;
  }

  void before_next_try() const {
    if (wait_.interrupt) wait_.interrupt();
    std::this_thread::sleep_for(20ms);
  }

 private:
  static constexpr int kSliceMs = 100;
  const Wait& wait_;
  const Clock::time_point begin_ = Clock::now();
};

// One try. Nothing: no process of this user serves the name; `found` says what is there instead.
std::optional<OwnedFd> ask(const Address& address, const AttachWait& wait, std::string& found) {
  const OwnedFd socket = make_socket();
  const int error = connect_to(socket, address);
  found = error == EAGAIN ? ": the process that serves that name does not answer" : "";
  if (error != 0) return std::nullopt;
  const std::optional<uid_t> user = peer_user(socket.get());
  if (!user || !is_this_user(*user)) {
    found = ": " + (user ? user_text(*user) : "an unknown process serves that name");
    return std::nullopt;
  }
  if (!wait.for_answer(socket.get())) {
    found = ": the process that serves that name does not answer";
    return std::nullopt;
  }
  std::optional<OwnedFd> received = receive_descriptor(socket.get());
  if (!received) found = ": the process that serves that name gave no answer";
  return received;
}

}  // namespace

// A thread that answers. A forked child has neither the thread nor the socket.
class Publication::Server {
 public:
  Server(std::string name, Segment segment);
  ~Server() { close(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& name() const { return name_; }
  std::size_t nbytes() const { return segment_.memory().size(); }
  void close();

 private:
  class List;
  void listen_to(const Address& address);
  void serve() const;
  bool serve_one() const;
  void pause() const;

  std::string name_;
  Segment segment_;
  OwnedFd socket_{-1};
  OwnedFd stop_;
  pid_t owner_ = getpid();
  std::thread thread_;
  std::atomic<pid_t> closer_{0};  // the process of which a thread has begun to close it
  std::atomic<bool> is_closed_{false};
};

// All that this process serves. Sockets stay open in forked children otherwise, and names with them
// that nobody answers for.
class Publication::Server::List {
 public:
  static List& get() {
    static auto* list = new List;  // never destroyed: servers may outlive statics
    return *list;
  }

  // Makes and binds the server's socket: no child is forked between, which would keep it, and the
  // name with it.
  void add(Server* server, const Address& address) {
    const MutexLock lock(mutex_);
    servers_.reserve(servers_.size() + 1);
    server->listen_to(address);
    servers_.push_back(server);
  }
  // Closes its socket: no child is forked between, either.
  void remove(Server* server) {
    const MutexLock lock(mutex_);
    server->socket_ = OwnedFd(-1);
    std::erase(servers_, server);
  }

 private:
  List() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }
  // The lock is held from the first of these to one of the others.
  static void before_fork() ACQUIRE(get().mutex_) { get().mutex_.lock(); }
  static void after_fork_in_parent() RELEASE(get().mutex_) { get().mutex_.unlock(); }
  static void after_fork_in_child() RELEASE(get().mutex_) {
    for (Server* server : get().servers_) server->socket_ = OwnedFd(-1);
    get().servers_.clear();
    get().mutex_.unlock();
  }

  Mutex mutex_;
  std::vector<Server*> servers_ GUARDED_BY(mutex_);
};

Publication::Server::Server(std::string name, Segment segment)
    : name_(std::move(name)),
      segment_(std::move(segment)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (stop_.get() < 0) fail("eventfd", errno);
  List::get().add(this, address_of(name_));
  try {
    thread_ = start_thread([this] { serve(); });
  } catch (...) {
    List::get().remove(this);
    throw;
  }
}

void Publication::Server::listen_to(const Address& address) {
  socket_ = make_socket();
  if (os().bind(socket_.get(), address.get(), address.nbytes) != 0) {
    if (errno != EADDRINUSE) fail("bind", errno);
    std::string by;
    const OwnedFd other = make_socket();
    if (connect_to(other, address) == 0) {
      const std::optional<uid_t> user = peer_user(other.get());
      if (user && !is_this_user(*user)) by = ": " + user_text(*user);
    }
    throw Error(ErrorCode::invalid_argument, "[shm] \"" + name_ + "\" is published already" + by);
  }
  constexpr int kBacklog = 128;
  if (os().listen(socket_.get(), kBacklog) != 0) fail("listen", errno);
}

void Publication::Server::serve() const {
  pollfd waiting[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (true) {
    if (os().poll(waiting, 2, -1) < 0) {
      if (errno != EINTR) pause();  // ENOMEM
      continue;
    }
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents != 0 && !serve_one()) break;
  }
  // The socket is of no use any more: who asks is to be refused, not to wait.
  shutdown(socket_.get(), SHUT_RDWR);
}

// False: nobody can be served any more.
// https://man7.org/linux/man-pages/man2/accept.2.html
bool Publication::Server::serve_one() const {
  const OwnedFd connection(os().accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() >= 0) {
    const std::optional<uid_t> user = peer_user(connection.get());
    if (user && is_this_user(*user)) send_descriptor(connection.get(), segment_.fd());
    return true;
  }
  switch (errno) {
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
    case EOPNOTSUPP:
      return false;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      // Who asks goes on waiting in the queue, so the socket stays readable: not at once again.
      pause();
      return true;
    default:  // that one has gone away, or the kernel wants it done again
      return true;
  }
}

// Until a little later, or the publication is closed.
void Publication::Server::pause() const {
  constexpr int kPauseMs = 50;
  pollfd stop{stop_.get(), POLLIN, 0};
  if (os().poll(&stop, 1, kPauseMs) < 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
}

// Any thread: one closes it, others wait for that.
void Publication::Server::close() {
  const pid_t self = getpid();
  if (closer_.exchange(self) == self) {
    if (self == owner_) is_closed_.wait(false);
    return;
  }
  if (self != owner_) {  // a forked child: the thread is its parent's
    if (thread_.joinable()) thread_.detach();
    return;
  }
  eventfd_write(stop_.get(), 1);
  thread_.join();
  List::get().remove(this);
  is_closed_ = true;
  is_closed_.notify_all();
}

const std::string& Publication::name() const { return server_->name(); }
std::size_t Publication::nbytes() const { return server_->nbytes(); }
void Publication::close() { server_->close(); }

Publication publish(const std::string& name, Parts parts) {
  static_cast<void>(address_of(name));  // before anything is copied
  return Publication(std::make_shared<Publication::Server>(name, make_segment(parts)));
}

Message attach(const std::string& name, const Wait& wait) {
  const Address address = address_of(name);
  const AttachWait waiting(wait);
  std::string found;
  while (true) {
    if (const std::optional<OwnedFd> fd = ask(address, waiting, found)) {
      return read_segment(std::make_shared<Segment>(attach_sealed(fd->get())));
    }
    if (waiting.is_over()) {
      throw Error(ErrorCode::not_found, "[shm] nobody publishes \"" + name + "\"" + found);
    }
    waiting.before_next_try();
  }
}

}  // namespace headrace::shm
