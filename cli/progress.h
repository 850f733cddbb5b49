#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headrace::cli {

// A bar on standard error when that is a terminal; nothing elsewhere.
class Progress {
 public:
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t n);
  // Takes the bar away, to print something in its place; the next advance() draws it again.
  void clear();

 private:
  void draw();

  const std::string label_;
  const std::int64_t total_;
  const bool enabled_;
  std::int64_t done_ = 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace headrace::cli
