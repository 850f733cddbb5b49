#pragma once

// Where the bytes of millions of objects lie: in the table itself, or in a range of another object.
//  1. ReferenceTable::Builder takes references in any order; of two of one key the later counts.
//  2. finish() sorts them. The table is never changed afterwards, and any thread looks into it.
// A reference of a chunk takes 32 bytes, whatever its key.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "store/reference/numbered_key.h"
#include "store/store.h"

namespace headrace {

// Bytes of the object at a URL.
struct ObjectRange {
  static constexpr std::uint64_t kWhole = UINT64_MAX;

  std::uint32_t url = 0;  // ReferenceTable::url()
  std::uint64_t offset = 0;
  std::uint64_t nbytes = kWhole;  // the object as a whole, whatever its size
};

class ReferenceTable {
 public:
  class Builder;

  struct Found {
    bool is_inline = false;
    ConstBytes bytes{};   // where it is
    ObjectRange range{};  // where it is not
  };

  std::optional<Found> find(std::string_view key) const;
  const std::string& url(std::uint32_t number) const { return urls_[number]; }
  const std::deque<std::string>& urls() const { return urls_; }
  std::size_t size() const;

  // As StoreDriver has them; `prefix` without its slash.
  std::vector<std::string> list(std::string_view prefix) const;
  std::vector<DirEntry> list_dir(std::string_view prefix) const;

 private:
  struct Entry {
    std::uint64_t place = 0;  // the numbers of the key in so many bits each
    std::uint64_t offset = 0;
    std::uint64_t nbytes = 0;
    std::uint32_t url = 0;
  };
  // Keys that differ in their numbers only.
  struct Family {
    std::string stem;
    char separator = '\0';
    unsigned count = 0;
    std::array<std::uint8_t, NumberedKey::kMaxNumbers> bits{};
    std::deque<Entry> entries;
  };
  struct Named {
    std::size_t key_at = 0;  // in names_text_
    std::size_t key_nbytes = 0;
    Entry entry{};
  };
  struct FamilyName {
    std::string_view stem;
    char separator;
    unsigned count;
    friend bool operator==(const FamilyName&, const FamilyName&) = default;
  };
  struct FamilyHash {
    std::size_t operator()(const FamilyName& name) const {
      return std::hash<std::string_view>()(name.stem) * 31 + name.count * 2 +
             (name.separator == '/' ? 1 : 0);
    }
  };

  static bool pack(const Family& family, const NumberedKey& key, std::uint64_t& place);
  static NumberedKey unpack(const Family& family, std::uint64_t place);
  std::string_view key_of(const Named& named) const {
    return std::string_view(names_text_).substr(named.key_at, named.key_nbytes);
  }
  Found found(const Entry& entry) const;

  std::deque<Family> families_;  // stays where it is: the index has views of the stems
  std::unordered_map<FamilyName, Family*, FamilyHash> index_;
  std::deque<Named> named_;
  std::string names_text_;
  std::string inline_bytes_;
  std::deque<std::string> urls_;  // stay where they are: the builder has views of them
};

class ReferenceTable::Builder {
 public:
  Builder();

  // What is no key (check_key) is left out.
  void add_bytes(std::string_view key, ConstBytes bytes);
  void add_range(std::string_view key,
                 std::string_view url,
                 std::uint64_t offset,
                 std::uint64_t nbytes);
  std::size_t size() const { return size_; }
  std::size_t url_count() const { return table_->urls_.size(); }

  // Each URL becomes what the function makes of it.
  void rewrite_urls(const std::function<std::string(const std::string&)>& rewrite);
  std::shared_ptr<const ReferenceTable> finish();

 private:
  std::uint32_t number_of(std::string_view url);
  void add(std::string_view key, Entry entry);
  void add_named(std::string_view key, Entry entry);
  Family& family_of(const NumberedKey& key);
  bool widen(Family& family, const NumberedKey& key);
  void dissolve(Family& family);

  std::shared_ptr<ReferenceTable> table_;
  std::unordered_map<std::string_view, std::uint32_t> url_numbers_;
  std::uint32_t last_url_ = UINT32_MAX;
  Family* last_family_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace headrace
