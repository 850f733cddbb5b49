#pragma once

#include <functional>
#include <string>

#include "engine/node/catalog.h"
#include "engine/node/lock.h"
#include "engine/request/array_state.h"
#include "headrace/array.h"

namespace headrace {

// Checks all of `options` and gives the metadata, documents included, of the array they describe.
ArrayMetadata new_array_metadata(const CreateOptions& options);

// Room for a node, made by prepare_node(). It is the caller's for as long as this lives.
struct NewNode {
  NodeLock lock;
  bool overwrite = false;
  // Groups above had what was there in their consolidated metadata. Those of the new node are for
  // enter_consolidated(), once this is gone: no two locks are held.
  bool is_consolidated = false;

  // Where other processes are not held off, on condition that there is none yet.
  void store(const char* call,
             const Store& store,
             const std::string& path,
             const NodeDocuments& documents) const;
};

// Makes room for a node: refuses or removes what is there, and makes the groups above it that are
// missing, the root too, as zarr-python does. `call` is for messages. `made` is the array that is
// made there, which no chunks may lie in the way of; null for a group.
NewNode prepare_node(const char* call,
                     const Store& store,
                     const std::string& path,
                     int zarr_format,
                     bool overwrite,
                     const std::function<void()>& poll,
                     const ArrayMetadata* made);

}  // namespace headrace
