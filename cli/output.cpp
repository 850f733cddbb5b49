#include "cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "cli/platform.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

// A pipe, a terminal, a device; a folder, which cannot be written and says so.
bool is_special(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// The file that a path's links lead to, whether it is there or not; nothing for links in a circle.
std::optional<std::string> without_links(std::string path) {
  namespace fs = std::filesystem;
  constexpr int kMaxLinks = 40;  // as the kernel has it
  std::error_code failed;
  for (int i = 0; i < kMaxLinks; ++i) {
    const fs::path to = fs::read_symlink(path, failed);
    if (failed) return path;  // none, or no link
    path = to.is_absolute() ? to.string() : (fs::path(path).parent_path() / to).string();
  }
  return std::nullopt;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string fresh_name(const std::string& path) {
  static std::random_device random;
  const std::size_t slash = path.rfind('/');
  return path.substr(0, slash == std::string::npos ? 0 : slash + 1) +
         fmt::format(".headrace-{:08x}{:08x}.partial", random(), random());
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The escape that JSON has for what printable() made of a character, "\\x7f", "\\u202e" or
// "\\U000e0041": a pair of surrogates for the last.
std::string json_escape(const std::string& escaped) {
  const std::string digits = escaped.substr(2);
  if (digits.size() < 8) return "\\u" + std::string(4 - digits.size(), '0') + digits;
  const auto point = static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16)) - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
}

}  // namespace

Output::Output(std::string path) : path_(std::move(path)) {
  if (path_.empty()) {
    file_ = stdout;
  } else if (is_special(path_)) {
    file_ = std::fopen(path_.c_str(), "wbe");
    if (!file_) fail(errno);
  } else {
    open_aside();
  }
}

Output::~Output() {
  if (file_ != stdout && file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

// Without a name, so that nothing is left whatever ends the process; with one where the file system
// cannot do that. O_EXCL: never what is there already, and no link is followed.
void Output::open_aside() {
  constexpr mode_t kMode = 0666;
  const auto target = without_links(path_);
  if (!target) fail(ELOOP);
  target_ = *target;
  int fd = open_unnamed(folder_of(target_).c_str(), kMode);
  if (fd < 0) {
    std::string name;
    do {
      name = fresh_name(target_);
      fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0) fail(errno);
    temporary_ = std::move(name);
  }
  struct stat old {};
  if (stat(target_.c_str(), &old) == 0) static_cast<void>(fchmod(fd, old.st_mode & 0777));
  file_ = fdopen(fd, "wb");
  if (!file_) {
    const int failure = errno;
    close(fd);
    fail(failure);
  }
}

void Output::put_in_place() {
  if (temporary_.empty()) {
    std::string name;
    do {
      name = fresh_name(target_);
      if (link_unnamed(fileno(file_), name.c_str()) == 0) break;
      if (errno != EEXIST) fail(errno);
    } while (true);
    temporary_ = std::move(name);
  }
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void Output::fail(int os_error) const {
  if (os_error == EPIPE) throw BrokenPipe();
  throw Error(ErrorCode::io,
              fmt::format("cannot write {}: {}",
                          path_.empty() ? "standard output" : path_,
                          std::strerror(os_error)),
              os_error);
}

void Output::write(const void* data, std::size_t nbytes) {
  if (std::fwrite(data, 1, nbytes, file_) != nbytes) fail(errno);
}

void Output::finish() {
  if (std::fflush(file_) != 0) fail(errno);
  if (file_ == stdout) return;
  if (!target_.empty()) return put_in_place();
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
}

bool Output::is_terminal() const { return isatty(fileno(file_)) == 1; }

void keep_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Open for the other direction, each use of it fails.
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) std::abort();
  }
}

void say(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // full, closed, gone: there is nowhere to say so
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string terminal_text(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result += printable(text.substr(0, end));
    if (end == text.size()) return result;
    result += '\n';
    text.remove_prefix(end + 1);
  }
}

void print_text(std::string_view text) {
  Output out;
  out.write(terminal_text(text));
  out.finish();
}

std::string json_text(const Json& json, int indent) {
  const std::string text = json.dump(indent, ' ', false, Json::error_handler_t::replace);
  if (indent < 0 && printable(text) == text) return text;
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && is_continuation(text[end])) ++end;
    const std::string character = text.substr(at, end - at);
    const std::string shown = character == "\n" ? character : printable(character);
    result += shown == character ? character : json_escape(shown);
    at = end;
  }
  return result;
}

void print_json(const Json& json) { print_text(json_text(json, 2) + '\n'); }

namespace {

// Escapes of the halves of a pair of surrogates: D800 to DBFF, DC00 to DFFF.
bool is_half(std::string_view text, std::string_view third) {
  return text.size() >= 6 && text.starts_with("\\u") && (text[2] == 'd' || text[2] == 'D') &&
         third.find(text[3]) != std::string_view::npos;
}
bool is_high(std::string_view text) { return is_half(text, "89abAB"); }
bool is_low(std::string_view text) { return is_half(text, "cdefCDEF"); }

// Bytes of the escape that a text begins with: two of a pair of surrogates are one.
std::size_t escape_nbytes(std::string_view text) {
  if (!text.starts_with("\\u")) return 2;
  return is_high(text) && text.size() >= 12 && is_low(text.substr(6)) ? 12 : 6;
}

// Integers beyond 64 bits, and what is infinite as a double.
bool is_beyond(const std::string& number) {
  const char* const end = number.data() + number.size();
  if (number.find_first_of(".eE") != std::string::npos)
    return std::isinf(std::strtod(number.c_str(), nullptr));
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  return std::from_chars(number.data(), end, integer).ec != std::errc() &&
         std::from_chars(number.data(), end, natural).ec != std::errc();
}

// What the library's tree of JSON does not take: numbers that it has no type for, and NaN and
// infinities, which zarr-python writes as Python's json does, become strings, as Zarr 3 has them;
// half of a pair of surrogates becomes U+FFFD.
std::string fit_for_tree(std::string_view text) {
  std::string result;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::size_t count = 1;
    bool is_quoted = false;
    if (in_string && rest[0] == '\\') {
      count = escape_nbytes(rest);
      if (count == 6 && (is_high(rest) || is_low(rest))) {
        result += "\\ufffd";
        at += count;
        continue;
      }
    } else if (rest[0] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!rest.starts_with(word)) continue;
        count = word.size();
        is_quoted = true;
      }
      if (!is_quoted && std::string_view("-0123456789").find(rest[0]) != std::string_view::npos) {
        count = std::min(rest.find_first_not_of("+-.0123456789eE"), rest.size());
        is_quoted = is_beyond(std::string(rest.substr(0, count)));
      }
    }
    if (is_quoted) result += '"';
    result += rest.substr(0, count);
    if (is_quoted) result += '"';
    at += count;
  }
  return result;
}

}  // namespace

Json parse_json(const std::string& text) {
  Json json = Json::parse(fit_for_tree(text), nullptr, false);
  return json.is_discarded() ? Json(text) : json;
}

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string counted(double n, std::string_view noun) {
  const std::string number = fmt::format("{:.3g}", n);
  return fmt::format("{} {}{}", number, noun, number == "1" ? "" : "s");
}

std::string human_nbytes(double nbytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (nbytes >= 1024 && unit + 1 < std::size(kUnits)) {
    nbytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", nbytes)
                   : fmt::format("{:.3g} {}", nbytes, kUnits[unit]);
}

}  // namespace headrace::cli
