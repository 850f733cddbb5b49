#include "cli/output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

bool is_special(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

}  // namespace

Output::Output(std::string path) : path_(std::move(path)), file_(stdout) {
  if (path_.empty()) return;
  if (!is_special(path_)) temporary_ = path_ + ".partial";
  file_ = std::fopen((temporary_.empty() ? path_ : temporary_).c_str(), "wbe");
  if (!file_) fail(errno);
}

Output::~Output() {
  if (file_ == stdout || !file_) return;
  std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
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
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
  if (!temporary_.empty() && std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
}

bool Output::is_terminal() const { return isatty(fileno(file_)) == 1; }

void print_text(std::string_view text) {
  Output out;
  out.write(text);
  out.finish();
}

void print_json(const Json& json) {
  print_text(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json parse_json(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json(text) : json;
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
