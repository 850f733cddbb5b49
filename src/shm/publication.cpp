// Publications: memory that is sealed once it is written, and a socket in the abstract name space
// that hands its descriptor to whoever asks. Both are gone with the process that published.

#include "headrace/error.h"
#include "headrace/shm.h"

#ifdef __linux__

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/start_thread.h"
#include "shm/segment.h"

namespace headrace::shm {

namespace {

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

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::io, "[shm] " + what + ": " + std::strerror(errno), errno);
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
  const std::string path = "headrace-" + std::to_string(getuid()) + "-" + name;
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, path.data(), path.size());
  address.nbytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

OwnedFd make_socket() {
  OwnedFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail("socket");
  return socket;
}

// Other users may know the name all the same.
bool is_this_user(int connection) {
  ucred peer{};
  socklen_t nbytes = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0 &&
         peer.uid == getuid();
}

union ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

void send_descriptor(int connection, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  ControlBuffer control{};
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
  sendmsg(connection, &message, MSG_NOSIGNAL);  // one that has gone away needs nothing
}

// -1: the other end closed, or nothing came in time.
int receive_descriptor(int connection) {
  char byte = 0;
  iovec data{&byte, 1};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (!head || head->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return fd;
}

// The parts in memory of their own.
Segment make_segment(Parts parts) {
  std::vector<PublishedPart> records;
  std::size_t nbytes = round_up(sizeof(PublicationHeader) + parts.size() * sizeof(PublishedPart));
  for (const std::span<const std::byte> part : parts) {
    records.push_back({nbytes, part.size()});
    nbytes = round_up(checked_add(nbytes, part.size(), "[shm] size of a publication"));
  }
  Segment segment = Segment::create(nbytes, {});
  std::byte* memory = segment.memory().data();
  const PublicationHeader header{kPublicationMagic, nbytes, parts.size()};
  std::memcpy(memory, &header, sizeof header);
  if (!records.empty()) {
    std::memcpy(memory + sizeof header, records.data(), std::span(records).size_bytes());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    std::memcpy(memory + records[i].offset, parts[i].data(), parts[i].size());
  }
  return segment;
}

// What another process says of its memory is checked before it is used.
Message read_segment(const std::shared_ptr<Segment>& segment) {
  const std::span<std::byte> memory = segment->memory();
  const auto bad = [] {
    return Error(ErrorCode::corrupt, "[shm] what was attached to is no publication");
  };
  PublicationHeader header{};
  if (memory.size() < sizeof header) throw bad();
  std::memcpy(&header, memory.data(), sizeof header);
  const std::size_t room = (memory.size() - sizeof header) / sizeof(PublishedPart);
  if (header.magic != kPublicationMagic || header.parts > room) throw bad();
  Message message;
  for (std::size_t i = 0; i < header.parts; ++i) {
    PublishedPart part{};
    std::memcpy(&part, memory.data() + sizeof header + i * sizeof part, sizeof part);
    if (part.offset > memory.size() || part.nbytes > memory.size() - part.offset) throw bad();
    message.push_back({memory.subspan(part.offset, part.nbytes), segment});
  }
  return message;
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
  void serve() const;

  std::string name_;
  Segment segment_;
  OwnedFd socket_;
  OwnedFd stop_;
  pid_t owner_ = getpid();
  std::thread thread_;
};

// All that this process serves. Sockets stay open in forked children otherwise, and names with them
// that nobody answers for.
class Publication::Server::List {
 public:
  static List& get() {
    static auto* list = new List;  // never destroyed: servers may outlive statics
    return *list;
  }

  void add(Server* server) {
    const std::lock_guard lock(mutex_);
    servers_.push_back(server);
  }
  void remove(Server* server) {
    const std::lock_guard lock(mutex_);
    std::erase(servers_, server);
  }

 private:
  List() {
    pthread_atfork([] { get().mutex_.lock(); },
                   [] { get().mutex_.unlock(); },
                   [] {
                     for (Server* server : get().servers_) server->socket_ = OwnedFd(-1);
                     get().servers_.clear();
                     get().mutex_.unlock();
                   });
  }

  std::mutex mutex_;
  std::vector<Server*> servers_;
};

Publication::Server::Server(std::string name, Segment segment)
    : name_(std::move(name)),
      segment_(std::move(segment)),
      socket_(make_socket()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  const Address address = address_of(name_);
  if (stop_.get() < 0) fail("eventfd");
  if (bind(socket_.get(), address.get(), address.nbytes) != 0) {
    if (errno != EADDRINUSE) fail("bind");
    throw Error(ErrorCode::invalid_argument, "[shm] \"" + name_ + "\" is published already");
  }
  constexpr int kBacklog = 128;
  if (listen(socket_.get(), kBacklog) != 0) fail("listen");
  thread_ = start_thread([this] { serve(); });
  List::get().add(this);
}

void Publication::Server::serve() const {
  pollfd waiting[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (true) {
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    const OwnedFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() >= 0 && is_this_user(connection.get())) {
      send_descriptor(connection.get(), segment_.fd());
    }
  }
}

void Publication::Server::close() {
  if (!thread_.joinable()) return;
  if (getpid() != owner_) {  // a forked child: the thread is its parent's
    thread_.detach();
    return;
  }
  List::get().remove(this);
  eventfd_write(stop_.get(), 1);
  thread_.join();
  socket_ = OwnedFd(-1);
}

const std::string& Publication::name() const { return server_->name(); }
std::size_t Publication::nbytes() const { return server_->nbytes(); }
void Publication::close() { server_->close(); }

Publication publish(const std::string& name, Parts parts) {
  static_cast<void>(address_of(name));  // before anything is copied
  return Publication(std::make_shared<Publication::Server>(name, make_segment(parts)));
}

Message attach(const std::string& name, const Wait& wait) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  const Address address = address_of(name);
  const Clock::time_point begin = Clock::now();
  while (true) {
    const OwnedFd socket = make_socket();
    timeval patience{1, 0};  // a publisher that is stopped, or a forked child's copy of a socket
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(socket.get(), address.get(), address.nbytes) == 0) {
      const OwnedFd fd(receive_descriptor(socket.get()));
      if (fd.get() >= 0) {
        return read_segment(std::make_shared<Segment>(Segment::attach(fd.get(), false)));
      }
    }
    if (wait.timeout && Clock::now() - begin >= *wait.timeout) {
      throw Error(ErrorCode::not_found, "[shm] nobody publishes \"" + name + "\"");
    }
    if (wait.interrupt) wait.interrupt();
    std::this_thread::sleep_for(20ms);
  }
}

}  // namespace headrace::shm

#else  // sockets without a file, and the identity of who is at the other end, are Linux's

namespace headrace::shm {

namespace {
[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported, "[shm] publications work on Linux only");
}
}  // namespace

class Publication::Server {};

const std::string& Publication::name() const { refuse(); }
std::size_t Publication::nbytes() const { refuse(); }
void Publication::close() { refuse(); }
Publication publish(const std::string&, Parts) { refuse(); }
Message attach(const std::string&, const Wait&) { refuse(); }

}  // namespace headrace::shm

#endif
