#include "stages.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "launches.h"

namespace headrace {
namespace {

constexpr int kWarmups = 2, kRuns = 7;

double microseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRuns / 2);
  return values[kRuns / 2];
}

// Keeps the device busy for at least so long: kernels that are given meanwhile run without gaps, so
// that no event waits for the host.
class Ahead {
 public:
  explicit Ahead(Queue& queue) : queue_(queue), memory_(queue, queue.native() ? kNbytes : 0) {}

  void fill(double microseconds) {
    constexpr double kBytesAMicrosecond = 5e6;  // more than the memory of any GPU takes
    if (!queue_.native()) return;
    const auto fills = static_cast<std::size_t>(microseconds * kBytesAMicrosecond / kNbytes) + 1;
    for (std::size_t i = 0; i < fills; ++i) queue_.fill(memory_.data(), 0, kNbytes);
  }

 private:
  static constexpr std::size_t kNbytes = std::size_t{256} << 20;
  Queue& queue_;
  Scratch<std::uint8_t> memory_;
};

}  // namespace

Stages time_stages(Queue& queue, FunctionRef<void()> call, FunctionRef<void()> after_first) {
  Ahead ahead(queue);
  std::vector<double> whole;
  std::vector<Launch> launches;
  std::vector<std::vector<double>> times;
  double host = 0;
  for (int i = 0; i < kWarmups + kRuns; ++i) {
    const double us = microseconds_of([&] {
      call();
      queue.synchronize();
    });
    if (i == 0) after_first();
    ahead.fill(1.5 * host);
    const LaunchRecorder recorder;
    host = microseconds_of([&] { call(); });
    queue.synchronize();
    launches = recorder.launches();
    if (i < kWarmups) continue;
    whole.push_back(us);
    times.resize(launches.size());
    for (std::size_t k = 0; k < launches.size(); ++k) times[k].push_back(launches[k].microseconds);
  }

  Stages found{median(whole), 0, nlohmann::json::array()};
  for (std::size_t k = 0; k < launches.size(); ++k) {
    if (times[k].size() != kRuns)
      throw std::runtime_error("a run has other launches than the next");
    const double us = median(times[k]);
    found.sum_microseconds += us;
    found.launches.push_back({{"kernel", launches[k].kernel},
                              {"grid", launches[k].grid},
                              {"threads", launches[k].threads},
                              {"shared_nbytes", launches[k].shared_nbytes},
                              {"microseconds", us}});
  }
  return found;
}

nlohmann::json run_stages(const Row& row,
                          const Field& field,
                          Queue& queue,
                          const Kernels& kernels) {
  const Decode decode = kernels.*codecs().at(row.codec).decode;
  const Inputs inputs(row, field, queue);
  std::size_t wrong = 0;
  const Stages found = time_stages(
      queue, [&] { decode(queue, inputs.batch()); }, [&] { wrong = inputs.wrong(queue); });
  std::printf("%-28s %10.1f us, %10.1f in %zu kernels %s\n",
              row.name().c_str(),
              found.microseconds,
              found.sum_microseconds,
              found.launches.size(),
              wrong ? "WRONG" : "ok");
  std::fflush(stdout);
  return {{"codec", row.codec},
          {"data", row.data},
          {"chunks", row.count},
          {"chunk_nbytes", row.nbytes},
          {"ratio", inputs.ratio()},
          {"microseconds", found.microseconds},
          {"wrong_chunks", wrong},
          {"launches", found.launches}};
}

}  // namespace headrace
