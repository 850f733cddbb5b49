#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headrace::cli {

// A bar on standard error when that is a terminal; nothing elsewhere.
class Progress {
 public:
  enum class Unit : std::uint8_t { none, bytes };  // bytes show rate and time left, too

  Progress(std::string label, std::int64_t total, Unit unit = Unit::none);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t n) { set(done_ + n, total_); }
  void set(std::int64_t done, std::int64_t total);
  // Shows the bar before anything is done, which may take long.
  void begin() {
    if (enabled_) draw();
  }
  // Whether anybody sees it: what costs time to know need not be known else.
  bool is_shown() const { return enabled_; }
  // Takes the bar away, to print something in its place; the next advance() draws it again.
  void clear();

 private:
  void draw();

  std::string rate() const;

  const std::string label_;
  std::int64_t total_;
  const Unit unit_;
  const bool enabled_;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point start_{};  // of the rate: what was done before is not its
  std::int64_t done_at_start_ = -1;                // -1: nothing was told yet
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace headrace::cli
