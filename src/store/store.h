#pragma once

// How the engine uses a store:
//  1. get(key, buffer) reads a small or whole object; false means there is none.
//  2. open(key) gives a reader for ranges of one object (shards, uncompressed chunks).
//  3. get_many(requests) reads many whole objects; stores that gain by it say so in batch_size().
//  4. set(key, bytes) replaces an object whole: a reader sees the old bytes or the new, never a
//  mix,
//     and a crash leaves one of them.
// Every method may be called from any thread. Keys are "a/b/c", without a leading slash, and were
// checked by check_key().

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "headrace/store.h"
#include "store/posix.h"

namespace headrace {

// A local file that holds the bytes of an object and nothing else.
struct ObjectFile {
  FileDescriptor fd;
  std::string path;  // for messages
};

// Bytes of an object, and where they go.
struct RangeRead {
  std::uint64_t offset = 0;
  MutableBytes dst;
};

class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual std::uint64_t size() const = 0;
  // Differs whenever the object was replaced; 0 when the store cannot tell. What is derived from an
  // object (shard indices) is kept for as long as this stays the same.
  virtual std::uint64_t version() const { return 0; }
  // Fills dst from `offset`. `corrupt` when the object ends before; `not_found` when it was removed
  // since it was opened, of stores that do not keep what is open.
  virtual void read(std::uint64_t offset, MutableBytes dst) const = 0;
  // Fills several destinations from consecutive bytes; at most IOV_MAX of them are one system call.
  virtual void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const;
  // The same of ranges that lie apart, which a store across a network is asked for at once.
  virtual void read_ranges(std::span<const RangeRead> reads) const;
  // The object's bytes where they lie in memory already; empty when they do not.
  virtual ConstBytes mapped() const { return {}; }
  // The same object, opened once more past the page cache. `unsupported` where it is no file of its
  // own, or its file system has no O_DIRECT.
  virtual ObjectFile open_direct() const;
};

struct GetRequest {
  std::string key;
  Buffer* into = nullptr;              // resized to the object
  bool found = false;                  // set by get_many
  std::exception_ptr error = nullptr;  // set by get_many: why this object could not be read
};

struct DirEntry {
  std::string name;
  bool is_prefix = false;  // more keys lie under name + "/"
  // Of a prefix: it is the store's root or one on the way here once more, by a link. Who lists what
  // lies under each prefix in turn leaves it out, or would never end.
  bool leads_back = false;
  friend auto operator<=>(const DirEntry&, const DirEntry&) = default;
};

class StoreDriver {
 public:
  virtual ~StoreDriver() = default;

  virtual std::string url() const = 0;
  virtual bool read_only() const = 0;
  // True when a request costs microseconds: then small runs, read and decoded in turn, beat long
  // ones. False for stores across a network.
  virtual bool local() const { return true; }
  // Whether objects are files that may be read by others: ObjectReader::open_direct.
  virtual bool has_files() const { return false; }
  // Of reads through ObjectReader::read_ranges; nothing: as the configuration says.
  virtual std::optional<Coalescing> coalescing() const { return std::nullopt; }
  // How many small objects get_many() had best be asked for at once; 1 where it gains nothing.
  virtual std::size_t batch_size() const { return 1; }

  virtual bool get(std::string_view key, Buffer& into) = 0;
  // Null: no such object. `io` when something lies there that is no object (a folder, a pipe).
  virtual std::unique_ptr<ObjectReader> open(std::string_view key) = 0;
  // Throws only what holds for all requests; what one object is at fault for is in its request.
  virtual void get_many(std::span<GetRequest> requests);
  virtual bool exists(std::string_view key) = 0;

  virtual void set(std::string_view key, ConstBytes bytes) = 0;
  // The same of an object whose parts lie apart in memory.
  virtual void set_parts(std::string_view key, std::span<const ConstBytes> parts);
  virtual void erase(std::string_view key) = 0;            // of a missing key: nothing happens
  virtual void erase_prefix(std::string_view prefix) = 0;  // "" empties the store
  // All keys under a prefix ("" or "a/b/"), sorted.
  virtual std::vector<std::string> list(std::string_view prefix) = 0;
  // The names directly under a prefix, sorted, objects and prefixes told apart.
  virtual std::vector<DirEntry> list_dir(std::string_view prefix) = 0;
  virtual void close() {}
};

// invalid_argument for keys that could leave the store or mean nothing: empty, absolute, "." or
// ".." or empty segments, NUL, backslash.
void check_key(std::string_view key);

// For the drivers.
//
// What check_key() would complain of; null for a good key.
const char* key_fault(std::string_view key);
// "" or "a/b/" to "" or "a/b", checked as a key is.
std::string_view check_prefix(std::string_view prefix);
// `corrupt` when the range ends after the object; `object` says which for the message.
void check_object_range(std::string_view object,
                        std::uint64_t size,
                        std::uint64_t offset,
                        std::uint64_t nbytes);
std::uint64_t total_size(std::span<const MutableBytes> parts);
std::uint64_t total_size(std::span<const ConstBytes> parts);
[[noreturn]] void throw_read_only(std::string_view url);

}  // namespace headrace
