#pragma once

// What the tests of hostile peers and of descriptors share.

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

#include "shm/process.h"
#include "shm/shm_kit.h"

namespace headrace::shm {

using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr uid_t kNobody = 65534;

inline std::size_t open_descriptors() {
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
inline int listen_as(const std::string& name, uid_t owner, int backlog = 8) {
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

inline void send_fds(int connection, const std::vector<int>& fds) {
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

inline std::string test_name() {
  static int count = 0;
  return "hostile-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

inline Publication publish_text(const std::string& name, std::string_view text) {
  const std::span<const std::byte> part = bytes_of(text);
  return publish(name, {&part, 1});
}

inline std::string message_of(const std::function<void()>& call, ErrorCode code) {
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
inline int make_memory(std::span<const std::byte> bytes, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("write");
  }
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) throw std::runtime_error("seals");
  return fd;
}

inline constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

}  // namespace headrace::shm
