#include "headrace/array.h"
#include "headrace/store.h"
#include "store/store.h"
#include "store/url.h"

namespace headrace {

Store open_store(std::string_view path_or_url, StoreMode mode, const StorageOptions& options) {
  Store store = open_place(path_or_url, mode, options);
  // A new archive has nothing in it, and memory holds nothing but keys.
  if (mode == StoreMode::overwrite && !store.driver().holds_only_keys()) remove_nodes(store);
  return store;
}

}  // namespace headrace
