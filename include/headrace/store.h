#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace headrace {

class StoreDriver;  // src/store/store.h

// Options by name, as users write them: {"io": "uring", "direct": "true", "fsync": "true"}.
using StorageOptions = std::map<std::string, std::string, std::less<>>;

enum class StoreMode {
  read,        // "r": must exist, never written
  read_write,  // "r+": must exist
  append,      // "a": created when missing
  create,      // "w-": must not exist
  overwrite,   // "w": emptied first
};

// A place that keeps bytes by key. Cheap to copy: copies share one driver. Thread-safe.
class Store {
 public:
  explicit Store(std::shared_ptr<StoreDriver> driver) : driver_(std::move(driver)) {}

  std::string url() const;  // "file:///data/era5.zarr", "memory://", "zip:///data/a.zip"
  bool read_only() const;
  // Finishes what is buffered (a zip archive's directory); writes after it fail. Idempotent.
  void close();
  StoreDriver& driver() const { return *driver_; }
  const std::shared_ptr<StoreDriver>& shared_driver() const { return driver_; }

 private:
  std::shared_ptr<StoreDriver> driver_;
};

// A path or URL: a folder, a .zip file, file://, zip://, memory://NAME (the same name is the same
// store within the process). `not_found` when mode wants it to exist and it does not;
// `unsupported` for a scheme this build lacks.
//
// Options: "io" = "pread" | "uring" (file), "direct" = "true" (O_DIRECT, file), "fsync" = "true"
// (file: data and folder entry are durable when a write returns).
Store open_store(std::string_view path_or_url,
                 StoreMode mode = StoreMode::read,
                 const StorageOptions& options = {});

// A new, empty store in memory that nobody else sees.
Store memory_store();

}  // namespace headrace
