#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace headrace::test {

// Where files are in memory, for tests that make thousands.
inline std::filesystem::path fast_directory_path() {
  std::error_code none;
  const std::filesystem::path shared = "/dev/shm";
  return std::filesystem::is_directory(shared, none) ? shared
                                                     : std::filesystem::temp_directory_path();
}

// A new empty folder, removed with what is in it.
class TempFolder {
 public:
  explicit TempFolder(
      const std::filesystem::path& directory = std::filesystem::temp_directory_path()) {
    path_ = (directory / "headrace-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace headrace::test
