#pragma once

// Machines whose memory is in several nodes (NUMA): what is near to a device. On others, and where
// the kernel does not tell, nothing happens.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// The node that a PCI device is at, "0000:3b:00.0"; none where there is only one. `root` stands in
// front of /sys, for tests.
std::optional<int> node_of_pci_device(std::string address, const std::string& root = "");
std::vector<int> processors_of_node(int node, const std::string& root = "");

// While it lives, fresh memory of this thread is of the node as long as that has some. A policy
// that somebody else has set stays.
class NearMemory {
 public:
  explicit NearMemory(std::optional<int> node);
  ~NearMemory();
  NearMemory(const NearMemory&) = delete;
  NearMemory& operator=(const NearMemory&) = delete;

 private:
  [[maybe_unused]] bool set_ = false;  // where the system has no nodes
};

// While it lives, this thread runs on those of its processors that are in the list, if any are.
class RunsOn {
 public:
  explicit RunsOn(std::span<const int> processors);
  ~RunsOn();
  RunsOn(const RunsOn&) = delete;
  RunsOn& operator=(const RunsOn&) = delete;

 private:
  struct Processors;
  std::unique_ptr<Processors> before_;  // null: nothing was changed
};

}  // namespace headrace
