#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "base/per_process.h"
#include "store/posix.h"
#include "store/temporary_name.h"

namespace headrace {

namespace {

constexpr std::string_view kVersion = "2-";  // names of other versions are nobody's to remove

// A short file of /proc; empty where it cannot be read. Not through os(): who asks whether a
// writer lives must not be told so by a fault that is meant for a store.
std::string proc_text(const char* path) {
  char text[1024];
  FileDescriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

// This start of this host, and the namespace of its process numbers; 0: unknown.
std::uint64_t host_token() {
  static const std::uint64_t token = [] {
    char space[64];
    const ssize_t n = ::readlink("/proc/self/ns/pid", space, sizeof space);
    const std::string boot = proc_text("/proc/sys/kernel/random/boot_id");
    if (n <= 0 || boot.empty()) return std::uint64_t{0};
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : boot + std::string(space, static_cast<std::size_t>(n)))
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash == 0 ? 1 : hash;
  }();
  return token;
}

// When a process began, in ticks since the host did: the 22nd field, behind a name in brackets
// that may hold anything. Nothing where /proc does not say.
std::optional<std::uint64_t> start_of(const char* path) {
  const std::string text = proc_text(path);
  std::size_t at = text.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  std::uint64_t start = 0;
  const char* first = text.data() + at + 1;
  if (std::from_chars(first, text.data() + text.size(), start).ec != std::errc()) return {};
  return start;
}

struct Writer {
  const std::uint64_t start = start_of("/proc/self/stat").value_or(0);
};

std::uint64_t process_random() {
  static const std::uint64_t value = [] {
    std::uint64_t v = 0;
    // Never short for 8 bytes; without it pid, counter and O_EXCL still keep names apart.
    if (::getrandom(&v, sizeof v, GRND_NONBLOCK) != sizeof v) v = 0;
    return v;
  }();
  return value;
}

// The numbers between the dashes of a name, five of them; false for any other text.
bool parse_name(std::string_view text, std::array<std::uint64_t, 5>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? text.find('-') : text.size();
    if (end == std::string_view::npos || end == 0) return false;
    const int base = i == 0 || i + 1 == parts.size() ? 16 : 10;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, parts[i], base);
    if (error != std::errc() || stop != text.data() + end) return false;
    text.remove_prefix(i + 1 < parts.size() ? end + 1 : end);
  }
  return true;
}

}  // namespace

std::string temporary_name() {
  static std::atomic<std::uint64_t> counter{0};
  static auto* writer = new PerProcess<Writer>;  // never destroyed: threads may outlive statics
  char text[140];
  // The random part keeps apart the same process number on two hosts that share a network folder.
  const int n = std::snprintf(text,
                              sizeof text,
                              "%s%s%016" PRIx64 "-%" PRId64 "-%" PRIu64 "-%" PRIu64 "-%016" PRIx64,
                              kTemporaryPrefix.data(),
                              kVersion.data(),
                              host_token(),
                              static_cast<std::int64_t>(::getpid()),
                              writer->get().start,
                              counter.fetch_add(1, std::memory_order_relaxed),
                              process_random());
  return std::string(text, static_cast<std::size_t>(n));
}

bool hold_temporary(int, FileDescriptor&) { return true; }  // its name says whose it is

bool is_abandoned(int, std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  if (!name.starts_with(kVersion)) return false;
  name.remove_prefix(kVersion.size());
  std::array<std::uint64_t, 5> parts{};
  if (!parse_name(name, parts)) return false;
  const auto [host, process, start, counter, random] = parts;
  if (host == 0 || host != host_token() || start == 0 || process == 0 || process > INT32_MAX) {
    return false;
  }
  const auto pid = static_cast<pid_t>(process);
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  // The number may be another's by now. A process that /proc hides counts as the writer.
  const auto found = start_of(("/proc/" + std::to_string(pid) + "/stat").c_str());
  return found && *found != start;
}

}  // namespace headrace
