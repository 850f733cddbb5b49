#include "store/reference/parquet_references.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <list>
#include <map>
#include <utility>

#include "base/checked.h"
#include "base/fork_mutex.h"
#include "base/limits.h"
#include "headrace/error.h"
#include "store/key_list.h"
#include "store/reference/json_window.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/numbered_key.h"
#include "store/reference/parquet_file.h"
#include "store/reference/place.h"
#include "store/url.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMaxFileNbytes = std::uint64_t{1} << 30;
// Partitions that are kept, as fsspec does, and how much of them as they lie in memory.
constexpr std::size_t kKeptPartitions = 128;
constexpr std::size_t kKeptNbytes = std::size_t{512} << 20;
constexpr std::array<std::string_view, 4> kColumns = {"path", "offset", "size", "raw"};

// Of an array: how many chunks each dimension has.
std::vector<std::uint64_t> chunk_counts(std::string_view zarray, const std::string& name) {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> chunks;
  JsonWindow json(source_of(zarray), name);
  json.take('{');
  for (bool first = true; json.next_element('}', first); first = false) {
    const std::string field(json.string());
    json.take(':');
    if (field != "shape" && field != "chunks") {
      json.raw_value();
      continue;
    }
    auto& into = field == "shape" ? shape : chunks;
    json.take('[');
    for (bool first_one = true; json.next_element(']', first_one); first_one = false) {
      into.push_back(json.number());
      if (into.size() > NumberedKey::kMaxNumbers) json.fail("too many dimensions");
    }
  }
  if (shape.size() != chunks.size()) json.fail("shape and chunks do not match");
  std::vector<std::uint64_t> counts;
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (chunks[i] == 0) json.fail("chunks of nothing");
    counts.push_back(shape[i] / chunks[i] + (shape[i] % chunks[i] != 0 ? 1 : 0));
    if (__builtin_mul_overflow(product, std::max<std::uint64_t>(counts.back(), 1), &product)) {
      json.fail("more than 2^64 chunks");
    }
  }
  if (counts.empty()) counts.push_back(1);  // "x/0" of a scalar
  return counts;
}

class ParquetReferences : public References {
 public:
  ParquetReferences(std::shared_ptr<StoreDriver> store, const std::string& name)
      : store_(std::move(store)), name_(name) {
    Buffer file;
    if (!store_->get_within(".zmetadata", file, kMaxDocumentNbytes)) {
      throw Error(ErrorCode::not_found,
                  name + ": there is no .zmetadata, which a folder of references has",
                  ENOENT);
    }
    JsonWindow json(source_of(text_of(file)), name + "/.zmetadata");
    json.take('{');
    for (bool first = true; json.next_element('}', first); first = false) {
      const std::string field(json.string());
      json.take(':');
      if (field == "record_size") {
        record_size_ = json.number();
      } else if (field == "metadata") {
        read_metadata(json);
      } else {
        json.raw_value();
      }
    }
    if (record_size_ == 0) json.fail("wanted a record_size that is not 0");
  }

  std::optional<Reference> find(std::string_view key) override {
    Reference reference;
    if (const auto at = metadata_.find(key); at != metadata_.end()) {
      reference.is_inline = true;
      reference.bytes = bytes_of(at->second);
      return reference;  // lives as long as this
    }
    NumberedKey split;
    if (!split_numbered_key(key, split)) return std::nullopt;
    const auto at = arrays_.find(split.stem);
    if (at == arrays_.end()) return std::nullopt;
    const std::vector<std::uint64_t>& counts = at->second;
    if (split.count != counts.size() || (split.count > 1 && split.separator != '.')) {
      return std::nullopt;
    }
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (split.numbers[i] >= counts[i]) return std::nullopt;
      number = number * counts[i] + split.numbers[i];
    }
    const auto partition = load(at->first, number / record_size_);
    if (!partition) return std::nullopt;
    return row(partition, number % record_size_);
  }

  std::vector<std::string> list(std::string_view prefix) override {
    std::vector<std::string> keys;
    for (const auto& [key, text] : metadata_) {
      if (lies_below(key, prefix)) keys.push_back(key);
    }
    for (const auto& [stem, counts] : arrays_) {
      const std::string_view folder = std::string_view(stem).substr(0, stem.size() - 1);
      if (stem.empty() || folder == prefix || lies_below(folder, prefix)) {
        list_chunks(stem, counts, keys);
      }
    }
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    if (arrays_.contains(prefix.empty() ? std::string() : std::string(prefix) + '/')) {
      return names_directly_below(list(prefix), prefix);
    }
    std::vector<std::string> keys;
    for (const auto& [key, text] : metadata_) {
      if (lies_below(key, prefix)) keys.push_back(key);
    }
    return names_directly_below(keys, prefix);
  }

  std::optional<bool> has_remote_urls() override { return std::nullopt; }

 private:
  using PartitionPtr = std::shared_ptr<const ParquetTable>;
  using PartitionKey = std::pair<std::string, std::uint64_t>;
  struct Kept {
    PartitionPtr table;
    std::size_t nbytes;
    std::list<PartitionKey>::iterator age;
  };

  void read_metadata(JsonWindow& json) {
    json.take('{');
    for (bool first = true; json.next_element('}', first); first = false) {
      const std::string key(json.string());
      json.take(':');
      if (const char* fault = key_fault(key)) json.fail("key \"" + key + "\" " + fault);
      metadata_[key] = json.peek() == '"' ? json.string() : json.raw_value();
      constexpr std::string_view kArray = ".zarray";
      if (key == kArray || key.ends_with("/.zarray")) {
        arrays_[key.substr(0, key.size() - kArray.size())] =
            chunk_counts(metadata_[key], name_ + "/.zmetadata: " + key);
      }
    }
  }

  // Null: there is no such file, nor any of its chunks.
  PartitionPtr load(const std::string& stem, std::uint64_t record) EXCLUDES(mutex_) {
    PartitionKey key(stem, record);
    {
      const ForkLock lock(mutex_);
      const auto at = kept_.find(key);
      if (at != kept_.end()) {
        ages_.splice(ages_.begin(), ages_, at->second.age);
        return at->second.table;
      }
    }
    const std::string file = stem + "refs." + std::to_string(record) + ".parq";
    Buffer bytes;
    if (!store_->get_within(file, bytes, kMaxFileNbytes)) return nullptr;
    auto table = std::make_shared<const ParquetTable>(
        read_parquet(bytes, name_ + '/' + file, kColumns, record_size_));
    const std::size_t nbytes = table->nbytes();
    std::vector<PartitionPtr> dropped;  // freed after the lock
    const ForkLock lock(mutex_);
    const auto at = kept_.find(key);
    if (at != kept_.end()) return at->second.table;
    while (!ages_.empty() &&
           (ages_.size() >= kKeptPartitions || kept_nbytes_ + nbytes > kKeptNbytes)) {
      const auto oldest = kept_.find(ages_.back());
      kept_nbytes_ -= oldest->second.nbytes;
      dropped.push_back(std::move(oldest->second.table));
      kept_.erase(oldest);
      ages_.pop_back();
    }
    ages_.push_front(key);
    kept_.emplace(std::move(key), Kept{table, nbytes, ages_.begin()});
    kept_nbytes_ += nbytes;
    return table;
  }

  std::optional<Reference> row(const PartitionPtr& table, std::uint64_t number) const {
    if (number >= table->rows) return std::nullopt;
    const auto i = static_cast<std::size_t>(number);
    const auto text_at = [&](const char* column) -> std::optional<std::string_view> {
      const ParquetColumn* const found = table->find(column);
      if (found == nullptr || !found->is_bytes || found->rows[i] == ParquetColumn::kNull) {
        return std::nullopt;
      }
      return found->values[found->rows[i]];
    };
    const auto number_at = [&](const char* column) -> std::uint64_t {
      const ParquetColumn* const found = table->find(column);
      if (found == nullptr || found->is_bytes) return 0;
      if (found->numbers[i] < 0) {
        throw Error(ErrorCode::corrupt, name_ + ": a reference of a negative " + column);
      }
      return static_cast<std::uint64_t>(found->numbers[i]);
    };
    Reference reference;
    reference.owner = table;
    if (const auto raw = text_at("raw")) {
      reference.is_inline = true;
      reference.bytes = bytes_of(*raw);
      return reference;
    }
    const auto url = text_at("path");
    if (!url) return std::nullopt;
    reference.url = *url;
    reference.offset = number_at("offset");
    reference.nbytes = number_at("size");
    if (reference.offset == 0 && reference.nbytes == 0) reference.nbytes = ObjectRange::kWhole;
    return reference;
  }

  void list_chunks(const std::string& stem,
                   const std::vector<std::uint64_t>& counts,
                   std::vector<std::string>& keys) {
    std::uint64_t total = 1;
    for (const std::uint64_t count : counts) total *= count;
    // Of the files that there are: the shape may speak of more than any disk holds.
    for (const DirEntry& file : store_->list_dir(stem)) {
      constexpr std::string_view kBegin = "refs.";
      constexpr std::string_view kEnd = ".parq";
      const std::string_view name = file.name;
      if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
      const std::string_view digits =
          name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
      std::uint64_t record = 0;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), record);
      std::uint64_t first = 0;
      if (error != std::errc() || end != digits.data() + digits.size() ||
          __builtin_mul_overflow(record, record_size_, &first) || first >= total) {
        continue;
      }
      const PartitionPtr table = load(stem, record);
      if (!table) continue;
      const std::uint64_t rows = std::min({table->rows, record_size_, total - first});
      for (std::uint64_t i = 0; i < rows; ++i) {
        if (!row(table, i)) continue;
        NumberedKey key{stem, '.', static_cast<unsigned>(counts.size()), {}};
        std::uint64_t rest = first + i;
        for (std::size_t d = counts.size(); d-- > 0;) {
          key.numbers[d] = checked_cast<std::uint32_t>(rest % counts[d], "chunk number");
          rest /= counts[d];
        }
        append_numbered_key(keys.emplace_back(), key);
      }
    }
  }

  std::shared_ptr<StoreDriver> store_;
  std::string name_;
  std::uint64_t record_size_ = 0;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::map<std::string, std::vector<std::uint64_t>, std::less<>> arrays_;  // by their stems
  ForkMutex mutex_;
  std::map<PartitionKey, Kept> kept_ GUARDED_BY(mutex_);
  std::list<PartitionKey> ages_ GUARDED_BY(mutex_);  // the longest unused last
  std::size_t kept_nbytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<References> open_parquet_references(const std::string& place,
                                                    const StorageOptions& options) {
  return std::make_unique<ParquetReferences>(
      open_plain_place(place, StoreMode::read, options).shared_driver(), shown_place(place));
}

}  // namespace headrace
