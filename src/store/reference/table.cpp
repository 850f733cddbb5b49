#include "store/reference/table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "headrace/error.h"
#include "store/key_list.h"

namespace headrace {
namespace {

constexpr std::uint32_t kInline = UINT32_MAX;  // in place of a URL's number

std::uint64_t low_bits(unsigned bits) {
  return bits >= 64 ? UINT64_MAX : (std::uint64_t{1} << bits) - 1;
}

// Sorted by `less`, of equal ones the last.
template <typename Entries, typename Less>
void settle(Entries& entries, Less less) {
  if (!std::is_sorted(entries.begin(), entries.end(), less)) {
    std::stable_sort(entries.begin(), entries.end(), less);
  }
  auto kept = entries.begin();
  for (auto at = entries.begin(); at != entries.end(); ++at) {
    if (at != entries.begin() && !less(*kept, *at)) {
      *kept = *at;
    } else if (at != entries.begin()) {
      ++kept;
      if (kept != at) *kept = *at;
    }
  }
  if (!entries.empty()) entries.erase(kept + 1, entries.end());
}

}  // namespace

bool ReferenceTable::pack(const Family& family, const NumberedKey& key, std::uint64_t& place) {
  place = 0;
  for (unsigned i = 0; i < family.count; ++i) {
    if (key.numbers[i] > low_bits(family.bits[i])) return false;
    place = place << family.bits[i] | key.numbers[i];
  }
  return true;
}

NumberedKey ReferenceTable::unpack(const Family& family, std::uint64_t place) {
  NumberedKey key{family.stem, family.separator, family.count, {}};
  for (unsigned i = family.count; i-- > 0;) {
    key.numbers[i] = static_cast<std::uint32_t>(place & low_bits(family.bits[i]));
    place >>= family.bits[i];
  }
  return key;
}

ReferenceTable::Found ReferenceTable::found(const Entry& entry) const {
  Found found;
  found.is_inline = entry.url == kInline;
  if (found.is_inline) {
    found.bytes = bytes_of(std::string_view(inline_bytes_).substr(entry.offset, entry.nbytes));
  } else {
    found.range = {entry.url, entry.offset, entry.nbytes};
  }
  return found;
}

std::optional<ReferenceTable::Found> ReferenceTable::find(std::string_view key) const {
  NumberedKey numbered;
  if (split_numbered_key(key, numbered)) {
    const auto family = index_.find({numbered.stem, numbered.separator, numbered.count});
    std::uint64_t place = 0;
    if (family != index_.end() && pack(*family->second, numbered, place)) {
      const auto& entries = family->second->entries;
      const auto at = std::lower_bound(
          entries.begin(), entries.end(), place, [](const Entry& entry, std::uint64_t wanted) {
            return entry.place < wanted;
          });
      if (at != entries.end() && at->place == place) return found(*at);
    }
  }
  const auto at = std::lower_bound(
      named_.begin(), named_.end(), key, [this](const Named& named, std::string_view wanted) {
        return key_of(named) < wanted;
      });
  if (at == named_.end() || key_of(*at) != key) return std::nullopt;
  return found(at->entry);
}

std::size_t ReferenceTable::size() const {
  std::size_t n = named_.size();
  for (const Family& family : families_) n += family.entries.size();
  return n;
}

std::vector<std::string> ReferenceTable::list(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (const Named& named : named_) {
    if (lies_below(key_of(named), prefix)) keys.emplace_back(key_of(named));
  }
  for (const Family& family : families_) {
    // The prefix may end within the numbers: "x/c/3".
    const std::size_t common = std::min(prefix.size(), family.stem.size());
    if (prefix.substr(0, common) != std::string_view(family.stem).substr(0, common)) continue;
    for (const Entry& entry : family.entries) {
      std::string key;
      append_numbered_key(key, unpack(family, entry.place));
      if (lies_below(key, prefix)) keys.push_back(std::move(key));
    }
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<DirEntry> ReferenceTable::list_dir(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (const Named& named : named_) {
    if (lies_below(key_of(named), prefix)) keys.emplace_back(key_of(named));
  }
  const std::size_t at = prefix.empty() ? 0 : prefix.size() + 1;
  for (const Family& family : families_) {
    if (family.entries.empty()) continue;
    const std::string_view stem = family.stem;
    if (lies_below(stem, prefix) && stem.find('/', at) != std::string_view::npos) {
      keys.push_back(family.stem + '0');  // all of them have the same name there
      continue;
    }
    const std::size_t common = std::min(prefix.size(), stem.size());
    if (prefix.substr(0, common) != stem.substr(0, common)) continue;
    std::string last;
    for (const Entry& entry : family.entries) {
      std::string key;
      append_numbered_key(key, unpack(family, entry.place));
      if (!lies_below(key, prefix)) continue;
      // Of many chunks in one folder the first.
      const std::size_t slash = key.find('/', at);
      if (slash != std::string::npos) {
        if (key.compare(0, slash + 1, last) == 0) continue;
        last = key.substr(0, slash + 1);
      }
      keys.push_back(std::move(key));
    }
  }
  std::sort(keys.begin(), keys.end());
  return names_directly_below(keys, prefix);
}

ReferenceTable::Builder::Builder() : table_(std::make_shared<ReferenceTable>()) {}

std::uint32_t ReferenceTable::Builder::number_of(std::string_view url) {
  if (last_url_ != UINT32_MAX && table_->urls_[last_url_] == url) return last_url_;
  const auto at = url_numbers_.find(url);
  if (at != url_numbers_.end()) return last_url_ = at->second;
  if (table_->urls_.size() >= kInline - 1) throw Error(ErrorCode::unsupported, "2^32 URLs");
  const auto number = static_cast<std::uint32_t>(table_->urls_.size());
  url_numbers_.emplace(table_->urls_.emplace_back(url), number);
  return last_url_ = number;
}

void ReferenceTable::Builder::add_bytes(std::string_view key, ConstBytes bytes) {
  Entry entry;
  entry.url = kInline;
  entry.offset = table_->inline_bytes_.size();
  entry.nbytes = bytes.size();
  table_->inline_bytes_ += text_of(bytes);
  add(key, entry);
}

void ReferenceTable::Builder::add_range(std::string_view key,
                                        std::string_view url,
                                        std::uint64_t offset,
                                        std::uint64_t nbytes) {
  Entry entry;
  entry.url = number_of(url);
  entry.offset = offset;
  entry.nbytes = nbytes;
  add(key, entry);
}

void ReferenceTable::Builder::add(std::string_view key, Entry entry) {
  // Nobody can ask for it: VirtualiZarr 2.5 calls the chunk of a scalar "x/".
  if (key_fault(key) != nullptr) return;
  ++size_;
  NumberedKey numbered;
  if (!split_numbered_key(key, numbered)) return add_named(key, entry);
  Family& family = family_of(numbered);
  if (family.count == 0) return add_named(key, entry);  // dissolved
  if (!pack(family, numbered, entry.place)) {
    if (!widen(family, numbered)) {
      dissolve(family);
      return add_named(key, entry);
    }
    pack(family, numbered, entry.place);
  }
  family.entries.push_back(entry);
}

void ReferenceTable::Builder::add_named(std::string_view key, Entry entry) {
  table_->named_.push_back({table_->names_text_.size(), key.size(), entry});
  table_->names_text_ += key;
}

ReferenceTable::Family& ReferenceTable::Builder::family_of(const NumberedKey& key) {
  if (last_family_ != nullptr && last_family_->stem == key.stem &&
      last_family_->count == key.count && last_family_->separator == key.separator) {
    return *last_family_;
  }
  const auto at = table_->index_.find({key.stem, key.separator, key.count});
  if (at != table_->index_.end()) return *(last_family_ = at->second);
  Family& family = table_->families_.emplace_back();
  family.stem = key.stem;
  family.separator = key.separator;
  family.count = key.count;
  family.bits.fill(static_cast<std::uint8_t>(std::min(64 / key.count, 32U)));
  table_->index_.emplace(FamilyName{family.stem, family.separator, family.count}, &family);
  return *(last_family_ = &family);
}

// Gives each number the bits that it needs, and of what is left the same to each. False where 64
// are too few.
bool ReferenceTable::Builder::widen(Family& family, const NumberedKey& key) {
  std::array<std::uint32_t, NumberedKey::kMaxNumbers> most = key.numbers;
  for (const Entry& entry : family.entries) {
    const NumberedKey each = unpack(family, entry.place);
    for (unsigned i = 0; i < family.count; ++i) most[i] = std::max(most[i], each.numbers[i]);
  }
  unsigned needed = 0;
  Family wide;
  wide.stem = family.stem;
  wide.separator = family.separator;
  wide.count = family.count;
  for (unsigned i = 0; i < family.count; ++i) {
    needed += static_cast<unsigned>(std::bit_width(most[i]));
  }
  if (needed > 64) return false;
  const unsigned spare = (64 - needed) / family.count;
  for (unsigned i = 0; i < family.count; ++i) {
    const unsigned bits = static_cast<unsigned>(std::bit_width(most[i])) + spare;
    wide.bits[i] = static_cast<std::uint8_t>(std::min(bits, 32U));
  }
  for (Entry& entry : family.entries) {
    const NumberedKey each = unpack(family, entry.place);
    pack(wide, each, entry.place);
  }
  family.bits = wide.bits;
  return true;
}

void ReferenceTable::Builder::dissolve(Family& family) {
  for (const Entry& entry : family.entries) {
    std::string key;
    append_numbered_key(key, unpack(family, entry.place));
    add_named(key, entry);
  }
  family.entries = {};
  family.count = 0;  // its name in the index stays, so that all keys of it go the same way
}

void ReferenceTable::Builder::rewrite_urls(
    const std::function<std::string(const std::string&)>& rewrite) {
  url_numbers_.clear();  // two of them may become one, which does no harm
  for (std::string& url : table_->urls_) url = rewrite(url);
  last_url_ = UINT32_MAX;
}

std::shared_ptr<const ReferenceTable> ReferenceTable::Builder::finish() {
  for (Family& family : table_->families_) {
    settle(family.entries, [](const Entry& a, const Entry& b) { return a.place < b.place; });
  }
  const ReferenceTable& table = *table_;
  settle(table_->named_,
         [&](const Named& a, const Named& b) { return table.key_of(a) < table.key_of(b); });
  table_->inline_bytes_.shrink_to_fit();
  table_->names_text_.shrink_to_fit();
  url_numbers_.clear();
  last_family_ = nullptr;
  return std::exchange(table_, nullptr);
}

}  // namespace headrace
