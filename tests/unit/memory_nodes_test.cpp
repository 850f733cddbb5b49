#include "base/memory_nodes.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/portable.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class MemoryNodes : public testing::Test {
 protected:
  MemoryNodes() { fs::remove_all(root_); }
  ~MemoryNodes() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  void put_device(const std::string& node) {
    put("/sys/bus/pci/devices/0000:3b:00.0/numa_node", node);
  }

  const std::string root_ = testing::TempDir() + "memory_nodes" + std::to_string(getpid());
};

TEST_F(MemoryNodes, ADeviceIsAtOneOfSeveral) {
  SKIP_IF_PORTABLE("nodes of memory");
  EXPECT_EQ(node_of_pci_device("0000:3B:00.0", root_), std::nullopt) << "no /sys";
  put_device("1");
  put("/sys/devices/system/node/online", "0");
  EXPECT_EQ(node_of_pci_device("0000:3B:00.0", root_), std::nullopt) << "one node";
  put("/sys/devices/system/node/online", "0-1");
  EXPECT_EQ(node_of_pci_device("0000:3B:00.0", root_), 1);
  EXPECT_EQ(node_of_pci_device("0000:3C:00.0", root_), std::nullopt) << "no such device";
  for (const char* node : {"-1", "", "x", "64"}) {
    put_device(node);
    EXPECT_EQ(node_of_pci_device("0000:3B:00.0", root_), std::nullopt) << node;
  }
}

TEST_F(MemoryNodes, HasProcessors) {
  SKIP_IF_PORTABLE("nodes of memory");
  EXPECT_TRUE(processors_of_node(1, root_).empty());
  for (const auto& [text, processors] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"0-2,5,8-9", {0, 1, 2, 5, 8, 9}}, {"7", {7}}, {"", {}}, {"3-", {}}, {"a-b", {}}}) {
    put("/sys/devices/system/node/node1/cpulist", text);
    EXPECT_EQ(processors_of_node(1, root_), processors) << text;
  }
}

std::vector<int> own_processors() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> found;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) found.push_back(i);
  return found;
}

TEST_F(MemoryNodes, AThreadRunsWhereItMayForAWhile) {
  SKIP_IF_PORTABLE("nodes of memory");
  const std::vector<int> before = own_processors();
  {
    const std::vector<int> first{before.front(), CPU_SETSIZE - 1, CPU_SETSIZE + 5};
    const RunsOn one(first);
    EXPECT_EQ(own_processors(), std::vector<int>{before.front()});
    const std::vector<int> last{before.back() == before.front() ? CPU_SETSIZE - 1 : before.back()};
    const RunsOn other(last);
    EXPECT_EQ(own_processors(), std::vector<int>{before.front()}) << "not one that it may use";
  }
  EXPECT_EQ(own_processors(), before);
  {
    const RunsOn none{std::span<const int>()};
    EXPECT_EQ(own_processors(), before);
  }
}

#ifdef SYS_get_mempolicy
TEST_F(MemoryNodes, MemoryIsOfANodeForAWhile) {
  SKIP_IF_PORTABLE("nodes of memory");
  const auto policy = [] {
    int found = -1;
    return syscall(SYS_get_mempolicy, &found, nullptr, 0, nullptr, 0) == 0 ? found : -1;
  };
  const int before = policy();
  if (before != 0) GTEST_SKIP() << "the system forbids it, or somebody has set a policy";
  {
    const NearMemory near(0);
    EXPECT_EQ(policy(), 1);
    const NearMemory nearer(0);  // leaves what is set
  }
  EXPECT_EQ(policy(), before);
  const NearMemory nowhere(std::nullopt);
  EXPECT_EQ(policy(), before);
}
#endif

}  // namespace
}  // namespace headrace
