#include "engine/node/removed.h"

#include <string>

#include "engine/node/catalog.h"
#include "headrace/error.h"

namespace headrace {
namespace {

// By its own document, or by consolidated metadata alone.
bool is_there(const Store& store, const std::string& path, int zarr_format) {
  const NodeDocuments array{NodeType::array, zarr_format, {}, {}};
  if (store.driver().exists(join_key(path, document_name(array)))) return true;
  for (const std::string& above : groups_above(path)) {
    const auto group = find_node(store, above, zarr_format);
    if (!group || group->type != NodeType::group) continue;
    const auto nodes = consolidated_nodes(store, above, group_metadata_of(store, above, *group));
    if (nodes && nodes->contains(above.empty() ? path : path.substr(above.size() + 1))) return true;
  }
  return false;
}

void check(const ArrayShared& array, int zarr_format) {
  if (is_there(array.store, array.path, zarr_format)) return;
  throw Error(ErrorCode::not_found,
              "[read] " + place_of(array.store, array.path) +
                  ": there is no array any more; it was removed since it was opened");
}

}  // namespace

void look_for_removal(ArrayShared& array) {
  if (array.has_document && array.store.driver().has_files()) array.check_is_there = check;
}

}  // namespace headrace
