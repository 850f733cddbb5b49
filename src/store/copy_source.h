#pragma once

// What a copy of objects takes from its source (store/copy.cpp).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "store/store.h"

namespace headrace {

// The objects below a prefix of a store, and its documents as they were before the other objects
// were looked for. What grows is written the other way round: a copy of an array that grows
// meanwhile has all chunks of its shape.
class CopySource {
 public:
  // Reads as many documents as there is memory for.
  CopySource(StoreDriver& store, std::string_view prefix, std::uint64_t memory_nbytes);

  // What no key can name.
  const LeftOut& left_out() const { return left_out_; }
  // The documents are the last, from this one on.
  const std::vector<ObjectSize>& objects() const { return objects_; }
  std::size_t first_document() const { return first_document_; }
  // The keys of documents that were not there at first, and are not copied.
  const std::set<std::string, std::less<>>& appeared() const { return appeared_; }

  bool has(const std::string& key) const;  // as one of objects() or appeared()
  bool has_documents() const { return first_document_ < objects_.size(); }
  bool is_node(const std::string& folder) const;  // "" or "a/b/": whether it has a document there
  // Of a folder, "" or "a/b/": by its .zarray, or its zarr.json.
  bool is_array(const std::string& folder) const;

  // False: it is gone. A larger object is `corrupt`, as in StoreDriver::get_within().
  bool get(const std::string& key, Buffer& bytes, std::uint64_t max_nbytes) const;

 private:
  void read_documents(std::span<const ObjectSize> documents, std::uint64_t memory_nbytes);
  std::uint64_t read_grown(const GetRequest& request, std::uint64_t room);

  StoreDriver& store_;
  LeftOut left_out_;
  std::vector<ObjectSize> objects_;
  std::size_t first_document_ = 0;
  std::map<std::string, std::optional<Buffer>> documents_;  // that were read
  std::set<std::string, std::less<>> appeared_;
};

}  // namespace headrace
