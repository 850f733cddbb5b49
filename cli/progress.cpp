#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cli/output.h"

namespace headrace::cli {
namespace {

constexpr std::int64_t kWidth = 30;
constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(std::string label, std::int64_t total, Unit unit)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(unit),
      enabled_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::set(std::int64_t done, std::int64_t total) {
  total_ = std::max<std::int64_t>(total, 1);
  done_ = std::min(done, total_);
  if (!enabled_) return;
  if (done_at_start_ < 0) {
    done_at_start_ = done_;
    start_ = std::chrono::steady_clock::now();
  }
  draw();
}

std::string Progress::rate() const {
  if (done_at_start_ < 0) return "";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const auto moved = static_cast<double>(done_ - done_at_start_);
  if (unit_ == Unit::none || moved <= 0 || elapsed.count() <= 0) return "";
  const double rate = moved / elapsed.count();
  const auto left = static_cast<std::int64_t>(static_cast<double>(total_ - done_) / rate);
  return fmt::format(
      "  {}/s, {}:{:02}:{:02} left", human_nbytes(rate), left / 3600, left / 60 % 60, left % 60);
}

void Progress::draw() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  say(fmt::format("\r{} [{}] {:3.0f} %{}\x1b[K", label_, bar, share * 100, rate()));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  say("\r\x1b[K");
  shown_ = false;
}

}  // namespace headrace::cli
