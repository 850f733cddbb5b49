#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string_view>

#include "base/memory_nodes.h"

namespace headrace {
namespace {

constexpr int kMaxNodes = 64;

// Of linux/mempolicy.h.
constexpr int kDefaultPolicy = 0;
constexpr int kPreferred = 1;

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0-3,8,10-11"; what is no such list is empty.
std::vector<int> numbers(std::string_view list) {
  std::vector<int> found;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = number(range.substr(0, dash));
    const auto last = dash == range.size() ? first : number(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= 1 << 20) return {};
    for (int i = *first; i <= *last; ++i) found.push_back(i);
  }
  return found;
}

std::string node_folder(const std::string& root) { return root + "/sys/devices/system/node"; }

}  // namespace

std::optional<int> node_of_pci_device(std::string address, const std::string& root) {
  if (numbers(first_line(node_folder(root) + "/online")).size() < 2) return std::nullopt;
  std::ranges::transform(address, address.begin(), [](char c) {
    return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto node = number(first_line(root + "/sys/bus/pci/devices/" + address + "/numa_node"));
  return node && *node >= 0 && *node < kMaxNodes ? node : std::nullopt;
}

std::vector<int> processors_of_node(int node, const std::string& root) {
  return numbers(first_line(node_folder(root) + "/node" + std::to_string(node) + "/cpulist"));
}

NearMemory::NearMemory([[maybe_unused]] std::optional<int> node) {
#ifdef SYS_set_mempolicy
  if (!node) return;
  int policy = kDefaultPolicy;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0) return;
  if (policy != kDefaultPolicy) return;
  const std::uint64_t nodes = std::uint64_t{1} << *node;
  // The kernel looks at one bit less than it is told.
  set_ = syscall(SYS_set_mempolicy, kPreferred, &nodes, kMaxNodes + 1) == 0;
#endif
}

NearMemory::~NearMemory() {
#ifdef SYS_set_mempolicy
  if (set_) syscall(SYS_set_mempolicy, kDefaultPolicy, nullptr, 0);
#endif
}

struct RunsOn::Processors {
  // Parentheses make no aggregate in clang before 16.
  explicit Processors(const cpu_set_t& processors) : set(processors) {}

  cpu_set_t set;
};

RunsOn::RunsOn(std::span<const int> processors) {
  cpu_set_t before;
  if (processors.empty() || sched_getaffinity(0, sizeof before, &before) != 0) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int processor : processors) {
    if (processor < CPU_SETSIZE && CPU_ISSET(processor, &before)) CPU_SET(processor, &wanted);
  }
  if (CPU_COUNT(&wanted) == 0 || CPU_EQUAL(&wanted, &before)) return;
  if (sched_setaffinity(0, sizeof wanted, &wanted) == 0)
    before_ = std::make_unique<Processors>(before);
}

RunsOn::~RunsOn() {
  if (before_) sched_setaffinity(0, sizeof before_->set, &before_->set);
}

}  // namespace headrace
