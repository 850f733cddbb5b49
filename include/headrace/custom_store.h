#pragma once

// A store that the application keeps itself: derive from CustomStore, and hand it to make_store().

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/store.h"

namespace headrace {

struct StoredBytes {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  // keeps `bytes` where they are
};

// Every method may be called from any thread, by several at once. Keys were checked: "a/b/c",
// nothing that leaves the store. Whatever they throw reaches the caller of the read or write.
class CustomStore {
 public:
  virtual ~CustomStore() = default;

  virtual std::string url() const = 0;  // for messages
  virtual bool read_only() const = 0;
  // How many objects get() had best be asked for at once.
  virtual std::size_t batch_size() const = 0;

  // Whole objects, in the order of the keys; nothing where there is none.
  virtual std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) = 0;
  virtual std::optional<std::uint64_t> size(const std::string& key) = 0;
  // Fewer bytes when the object ends before.
  virtual StoredBytes get_range(const std::string& key,
                                std::uint64_t offset,
                                std::uint64_t nbytes) = 0;

  // Replaces the object whole.
  virtual void set(const std::string& key, std::span<const std::byte> bytes) = 0;
  virtual void erase(const std::string& key) = 0;
  virtual void erase_prefix(const std::string& prefix) = 0;
  // All keys under "" or "a/b/"; the names of objects and prefixes directly under it.
  virtual std::vector<std::string> list(const std::string& prefix) = 0;
  virtual std::vector<std::string> list_dir(const std::string& prefix) = 0;
};

Store make_store(std::shared_ptr<CustomStore> store);

}  // namespace headrace
