#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/fork_mutex.h"
#include "engine/node/catalog.h"
#include "headrace/array.h"

namespace headrace {

// Behind a group's handles. Options are those the group was opened with; arrays and groups opened
// through it start from them.
class GroupState {
 public:
  // nodes: null when consolidated metadata are missing or not wanted.
  GroupState(Store s,
             std::string p,
             GroupMetadata metadata,
             std::shared_ptr<const NodeMap> n,
             OpenOptions o,
             std::shared_ptr<const NodeMap> names = nullptr)
      : store(std::move(s)),
        path(std::move(p)),
        options(std::move(o)),
        nodes(std::move(n)),
        passed_over(std::move(names)),
        metadata_(std::make_shared<const GroupMetadata>(std::move(metadata))) {}

  const Store store;
  const std::string path;
  const OpenOptions options;
  const std::shared_ptr<const NodeMap> nodes;
  // Of as_stored(): the consolidated metadata that are not gone by.
  const std::shared_ptr<const NodeMap> passed_over;

  std::shared_ptr<const GroupMetadata> metadata() const;
  // Under the node's lock: change(attributes as the store has them) gives the new ones.
  void change_attributes(const std::function<std::string(const std::string&)>& change,
                         const std::function<void()>& poll);
  // A node by its path within the group. Consolidated metadata are asked first; a node made after
  // they were written is still found in the store.
  std::optional<NodeDocuments> find(const std::string& name) const;

 private:
  void replace_metadata(GroupMetadata metadata);

  mutable ForkMutex mutex_;
  std::shared_ptr<const GroupMetadata> metadata_ GUARDED_BY(mutex_);  // replaced whole
};

// Handles of nodes whose documents are at hand.
Array make_array(const Store& store,
                 const std::string& path,
                 const NodeDocuments& node,
                 const OpenOptions& options);
Group make_group(const Store& store,
                 const std::string& path,
                 const NodeDocuments& node,
                 const OpenOptions& options);

}  // namespace headrace
