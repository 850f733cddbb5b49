#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/key_locks.h"
#include "headrace/store.h"
#include "store/store.h"

namespace headrace {

// Who holds it is the only one to change the metadata of a node: among the threads of this process,
// and, where the store has locks, among the processes of this machine. Orders: that of a group
// before that of a node below it; before any of ObjectLocks. Code of the application that runs
// under it must not change the same node.
class NodeLock {
 public:
  // Waits, calling `poll` now and then; throwing from it ends the wait. The folder of a
  // node that will be is one to make.
  NodeLock(const Store& store,
           const std::string& path,
           const std::function<void()>& poll,
           MissingFolder missing = MissingFolder::leave);

  // False: others may change the node meanwhile, and what is stored has to be looked at again.
  bool excludes_processes() const { return excludes_processes_; }

 private:
  KeyLocks::Lock in_process_;
  std::unique_ptr<PrefixLock> between_processes_;
  bool excludes_processes_ = false;
};

}  // namespace headrace
