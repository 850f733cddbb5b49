// Hand arrays from one process to another without a copy through a pipe.
#include <headrace/error.h>
#include <headrace/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

namespace shm = headrace::shm;

namespace {

constexpr std::size_t kValues = 1 << 20;
constexpr int kSteps = 8;
const shm::Wait kAtMost{std::chrono::seconds(10), {}};

// Computes each step in the arena itself: sending it copies nothing.
void produce(const shm::Arena& arena, const shm::Channel& channel) {
  for (int step = 0; step < kSteps; ++step) {
    const auto block = arena.allocate(kValues * sizeof(float), kAtMost);
    if (!block) throw std::runtime_error("no room for 10 s");
    auto* values = reinterpret_cast<float*>(block->bytes.data());
    for (std::size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(step);
    const std::vector<std::span<const std::byte>> parts{
        std::as_bytes(std::span(&step, 1)),  // copied: it lies elsewhere
        block->bytes,
    };
    if (!channel.put(parts, kAtMost)) throw std::runtime_error("the channel was full for 10 s");
  }
}

double consume(const shm::Channel& channel) {
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto message = channel.get(kAtMost);
    if (!message) throw std::runtime_error("nothing came for 10 s");
    const auto* values = reinterpret_cast<const float*>((*message)[1].bytes.data());
    for (std::size_t i = 0; i < kValues; ++i) sum += static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

int main() {
  try {
    // Room for half of the steps: the producer waits until the consumer has let go of some.
    const shm::Arena arena = shm::Arena::create(kSteps / 2 * kValues * sizeof(float) + 65536);
    const shm::Channel channel = arena.channel(4);
    const pid_t child = fork();
    if (child == 0) {
      produce(arena, channel);
      _exit(0);
    }
    const double sum = consume(channel);
    waitpid(child, nullptr, 0);
    std::printf("%d steps, sum %.0f\n", kSteps, sum);
    return sum == 28.0 * static_cast<double>(kValues) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
