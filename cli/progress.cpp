#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace headrace::cli {
namespace {

constexpr std::int64_t kWidth = 30;
constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      enabled_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::advance(std::int64_t n) {
  done_ = std::min(done_ + n, total_);
  if (enabled_) draw();
}

void Progress::draw() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  fmt::print(stderr, "\r{} [{}] {:3.0f} %", label_, bar, share * 100);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace headrace::cli
