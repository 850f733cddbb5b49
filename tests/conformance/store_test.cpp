#include "headrace/store.h"

#include <gtest/gtest.h>

#include "base/system.h"
#include "conformance/inject.h"
#include "conformance/store_kit.h"
#include "conformance/temp_folder.h"
#include "headrace/cached_store.h"
#include "store/http/driver.h"
#include "store/uring.h"
#include "support/http_server.h"
#include "support/toy_protocol.h"

namespace headrace::test {

namespace {

// Stores that open_store() makes at a path.
class PathFixture : public StoreFixture {
 public:
  PathFixture(const std::string& name, StorageOptions options)
      : path_(folder_ / name), options_(std::move(options)) {}

  std::shared_ptr<StoreDriver> writable() override {
    if (!store_) store_ = open_store(path_, StoreMode::overwrite, options_).shared_driver();
    return store_;
  }
  std::shared_ptr<StoreDriver> reopened() override {
    store_->close();
    return open_store(path_, StoreMode::read, options_).shared_driver();
  }

 private:
  TempFolder folder_;
  std::string path_;
  StorageOptions options_;
  std::shared_ptr<StoreDriver> store_;
};

class MemoryFixture : public StoreFixture {
 public:
  std::shared_ptr<StoreDriver> writable() override {
    if (!store_) store_ = open_store("memory://kit", StoreMode::overwrite).shared_driver();
    return store_;
  }
  std::shared_ptr<StoreDriver> reopened() override {
    return open_store("memory://kit", StoreMode::read).shared_driver();
  }

 private:
  std::shared_ptr<StoreDriver> store_;
};

// A store in front of one in memory.
class WrapperFixture : public StoreFixture {
 public:
  std::shared_ptr<StoreDriver> writable() override {
    if (!store_) store_ = wrap(inner_.writable());
    return store_;
  }
  std::shared_ptr<StoreDriver> reopened() override { return wrap(inner_.reopened()); }

 private:
  virtual std::shared_ptr<StoreDriver> wrap(std::shared_ptr<StoreDriver> store) const = 0;

  MemoryFixture inner_;
  std::shared_ptr<StoreDriver> store_;
};

// The injecting stores, told to do nothing, must not be noticed.
class InjectFixture : public WrapperFixture {
  std::shared_ptr<StoreDriver> wrap(std::shared_ptr<StoreDriver> store) const override {
    return make_faulty_store(make_counting_store(std::move(store), std::make_shared<StoreCounts>()),
                             std::make_shared<Faults>());
  }
};

// Memory for some blocks, all of them on disk.
class CachedFixture : public WrapperFixture {
  std::shared_ptr<StoreDriver> wrap(std::shared_ptr<StoreDriver> store) const override {
    return cached_store(
               Store(std::move(store)),
               {.memory_nbytes = 200'000, .directory = folder_ / "cache", .block_nbytes = 20'000})
        .shared_driver();
  }

  TempFolder folder_;
};

// Over HTTP, lists in pages and large objects in parts.
class HttpFixture : public StoreFixture {
 public:
  explicit HttpFixture(bool suffix_ranges) : suffix_ranges_(suffix_ranges) {
    objects_.set_page(60);
  }

  std::shared_ptr<StoreDriver> writable() override {
    if (!store_) store_ = make(HttpAccess::read_write);
    return store_;
  }
  std::shared_ptr<StoreDriver> reopened() override { return make(HttpAccess::read_only); }

 private:
  std::shared_ptr<StoreDriver> make(HttpAccess access) const {
    const ProtocolAbilities abilities{
        .suffix_ranges = suffix_ranges_, .max_put_nbytes = 100'000, .part_nbytes = 60'000};
    return make_http_driver(
        make_toy_protocol(objects_.url(), abilities), make_http_client({}), access);
  }

  const bool suffix_ranges_;
  ObjectServer objects_;
  std::shared_ptr<StoreDriver> store_;
};

// That, behind a cache.
class CachedHttpFixture : public StoreFixture {
 public:
  std::shared_ptr<StoreDriver> writable() override {
    if (!store_) store_ = wrap(inner_.writable());
    return store_;
  }
  std::shared_ptr<StoreDriver> reopened() override { return wrap(inner_.reopened()); }

 private:
  std::shared_ptr<StoreDriver> wrap(std::shared_ptr<StoreDriver> store) const {
    return cached_store(
               Store(std::move(store)),
               {.memory_nbytes = 200'000, .directory = folder_ / "cache", .block_nbytes = 20'000})
        .shared_driver();
  }

  TempFolder folder_;
  HttpFixture inner_{true};
  std::shared_ptr<StoreDriver> store_;
};

StoreCase at_path(std::string name, std::string file, StorageOptions options) {
  return {std::move(name), [=] { return std::make_unique<PathFixture>(file, options); }};
}

std::vector<StoreCase> cases() {
  std::vector<StoreCase> all = {
      at_path("file", "a.zarr", {}),
      at_path("durable", "a.zarr", {{"fsync", "true"}}),
      at_path("zip", "a.zip", {}),
      {"memory", [] { return std::make_unique<MemoryFixture>(); }},
      {"cached", [] { return std::make_unique<CachedFixture>(); }},
      {"http", [] { return std::make_unique<HttpFixture>(true); }},
      {"http_without_suffixes", [] { return std::make_unique<HttpFixture>(false); }},
      {"cached_http", [] { return std::make_unique<CachedHttpFixture>(); }},
      {"inject", [] { return std::make_unique<InjectFixture>(); }},
  };
  if (!is_portable()) all.push_back(at_path("direct", "a.zarr", {{"direct", "true"}}));
  std::string why_not;
  if (uring_available(why_not)) {
    all.push_back(at_path("uring", "a.zarr", {{"io", "uring"}}));
    all.push_back(at_path("uring_direct", "a.zarr", {{"io", "uring"}, {"direct", "true"}}));
  }
  return all;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, testing::ValuesIn(cases()), case_name);

}  // namespace headrace::test
