#pragma once

// Stores whose objects lie elsewhere: a catalogue says where the bytes of a key are, and
// make_catalogue_store() reads them there.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "store/store.h"

namespace headrace {

// Where an object's bytes are: here, or a range of another store's object.
struct Whereabouts {
  static constexpr std::uint64_t kWhole = UINT64_MAX;

  std::shared_ptr<StoreDriver> store{};  // null: `bytes`
  std::string key{};
  std::uint64_t offset = 0;  // in the other object; nothing to `bytes`
  std::uint64_t nbytes = kWhole;
  // Of the other object: read it as it was when its version was that. As AsyncRead has it.
  std::string if_version{};
  std::int64_t if_unchanged_since = 0;  // likewise

  ConstBytes bytes{};
  std::shared_ptr<const void> owner{};  // keeps `bytes` where they are
};

// Never changes. Any thread calls any method.
class Catalogue {
 public:
  virtual ~Catalogue() = default;

  virtual std::string url() const = 0;
  virtual std::string identity() const = 0;  // equal for catalogues that are one place
  virtual std::string lasting_name() const { return url(); }  // as that of StoreDriver
  // Whether objects may lie in stores that are not of this machine.
  virtual bool may_be_remote() const = 0;
  // Nothing: there is no such key. May read to find out.
  virtual std::optional<Whereabouts> find(std::string_view key) = 0;
  virtual bool exists(std::string_view key) { return find(key).has_value(); }
  // As StoreDriver has them, of a checked prefix without its slash.
  virtual std::vector<std::string> list(std::string_view prefix) = 0;
  virtual std::vector<DirEntry> list_dir(std::string_view prefix) = 0;
};

// Read only. Ranges of one object that lie near each other and are asked for together are one
// request, as `near` says.
std::shared_ptr<StoreDriver> make_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                  const Coalescing& near);

// What is asked for together by default.
inline constexpr Coalescing kNearReferences{std::uint64_t{64} << 10, std::uint64_t{16} << 20};

}  // namespace headrace
