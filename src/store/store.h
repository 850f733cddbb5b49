#pragma once

// How the engine uses a store:
//  1. get(key, buffer) reads a small or whole object; false means there is none.
//  2. open(key) gives a reader for ranges of one object (shards, uncompressed chunks).
//  3. get_many(requests) reads many whole objects; stores that gain by it say so in batch_size().
//  4. set(key, bytes) replaces an object whole: a reader sees the old bytes or the new, never a
//     mix, and so does whoever comes after a writer that was killed. What a power cut leaves is
//     the store's to say (docs/survives.md): sync() returns when it can take nothing away of what
//     was set before.
// Every method may be called from any thread. Keys are "a/b/c", without a leading slash, and were
// checked by check_key().

#include <array>
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
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/condition.h"
#include "store/posix.h"

namespace headrace {

class AsyncReads;   // store/async.h
class AsyncWrites;  // store/async.h
struct Extent;      // store/async.h

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
  // The same as reads across a network are told it (AsyncRead::version); of others empty.
  virtual std::string version_text() const { return {}; }
  // Whether the object still is what version() was told of: false where it was written over in its
  // place since, and what was read may be a mix. True where the store cannot tell.
  virtual bool unchanged() const { return true; }
  virtual std::optional<WrittenAt> written() const { return std::nullopt; }
  // Hints, of a file on a disk: only parts of it will be read, and what lies around them is not to
  // be fetched with them; this part will be read soon.
  virtual void expect_parts() const {}
  virtual void expect(const ByteRange& part) const { static_cast<void>(part); }
  // Reads all of it where the store keeps a checksum: `corrupt` where that does not hold.
  virtual void check() const {}
  // Fills dst from `offset`. `corrupt` when the object ends before; `not_found` when it was removed
  // since it was opened, of stores that do not keep what is open.
  virtual void read(std::uint64_t offset, MutableBytes dst) const = 0;
  // Fills several destinations from consecutive bytes; at most IOV_MAX of them are one system call.
  virtual void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const;
  // The same of ranges that lie apart, which a store across a network is asked for at once.
  virtual void read_ranges(std::span<const RangeRead> reads) const;
  // The object's bytes where they lie in memory already; empty when they do not.
  virtual ConstBytes mapped() const { return {}; }
  // The descriptor of a local file that holds the bytes of the object and nothing else, to be read
  // through the page cache, for as long as this lives; -1 where there is none.
  virtual int file() const { return -1; }
  // The same object, opened once more past the page cache. `unsupported` where it is no file of its
  // own, or its file system has no O_DIRECT.
  virtual ObjectFile open_direct() const;
};

struct GetRequest {
  std::string key;
  Buffer* into = nullptr;              // resized to the object
  bool found = false;                  // set by get_many
  std::exception_ptr error = nullptr;  // set by get_many: why this object could not be read
  // A larger object is `corrupt`, and is not read where the store knows its size before.
  std::uint64_t max_nbytes = UINT64_MAX;
};

// Held off: whoever else takes the lock of the same prefix, in this process or another.
class PrefixLock {
 public:
  virtual ~PrefixLock() = default;
};

// Of the prefix to be locked, in a store that has folders.
enum class MissingFolder : std::uint8_t { leave, make };

// What became of an attempt to take one.
struct LockAttempt {
  enum class State {
    held,         // `lock` is released by its destructor; null where no other process sees the keys
    busy,         // somebody else has it
    unavailable,  // there are no locks here
  };
  State state = State::unavailable;
  std::unique_ptr<PrefixLock> lock{};
};

// Something that lies below a prefix, an object or what no key is: a link, an empty folder.
struct StoredName {
  enum class Kind { object, link, empty_folder };
  std::string key;
  Kind kind = Kind::object;
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
  // Reads that take no thread each, of a store across a network; null for a store that answers at
  // once, and is best asked by the methods below.
  virtual AsyncReads* async_reads() { return nullptr; }
  virtual AsyncWrites* async_writes() { return nullptr; }  // likewise
  // How many small objects get_many() had best be asked for at once; 1 where it gains nothing.
  virtual std::size_t batch_size() const { return 1; }

  // Whether a read of an object would wait for a disk, and so may gain by expect().
  virtual bool is_cold(std::string_view) { return false; }
  // A hint: this part of these objects will be read soon.
  virtual void expect(std::vector<std::string> keys, const Extent& part);
  virtual bool get(std::string_view key, Buffer& into) = 0;
  // The same with a bound, as GetRequest has it.
  virtual bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes);
  // Null: no such object. `io` when something lies there that is no object (a folder, a pipe).
  virtual std::unique_ptr<ObjectReader> open(std::string_view key) = 0;
  // Throws only what holds for all requests; what one object is at fault for is in its request.
  virtual void get_many(std::span<GetRequest> requests);
  virtual bool exists(std::string_view key) = 0;

  virtual void set(std::string_view key, ConstBytes bytes) = 0;
  // The same of an object whose parts lie apart in memory.
  virtual void set_parts(std::string_view key, std::span<const ConstBytes> parts);
  // Which conditions set_if() knows.
  virtual WriteConditions write_conditions() const { return {}; }
  // As set_parts() where the condition holds, else `conflict`, or the error of throw_in_doubt();
  // `unsupported` for a condition that the store does not know. What it gives is the version of
  // what was written; empty: the store does not tell.
  virtual std::string set_if(std::string_view key,
                             std::span<const ConstBytes> parts,
                             const WriteCondition& condition);
  virtual void erase(std::string_view key) = 0;            // of a missing key: nothing happens
  virtual void erase_prefix(std::string_view prefix) = 0;  // "" empties the store
  // All keys under a prefix ("" or "a/b/"), sorted.
  virtual std::vector<std::string> list(std::string_view prefix) = 0;
  // The same, where what is not in it is sure not to be there; else nothing. A name that is given
  // to another file while a folder is read may be left out of it.
  virtual std::optional<std::vector<std::string>> list_at_rest(std::string_view) { return {}; }
  // The names directly under a prefix, sorted, objects and prefixes told apart.
  virtual std::vector<DirEntry> list_dir(std::string_view prefix) = 0;
  // As list(), with the objects' sizes and times; what is removed meanwhile may be left out.
  virtual std::vector<ObjectSize> list_sizes(std::string_view prefix);
  // All that was set and erased before is on the disk, as far as the store has one.
  virtual void sync() {}
  // Publishes, or drops, what appears only in the end (a zip archive). A driver that is destroyed
  // without either drops it.
  virtual void close() {}
  virtual void discard() {}

  // For who changes what others may change, too (engine/node/lock.h, engine/node/remove.h).
  //
  // Equal for two drivers exactly when the prefix ("a/b", "" for the root) is one place behind
  // both, whichever way leads there: links, "..", mounts, a cache in front. At most one system call
  // where something lies there.
  virtual std::string identity(std::string_view prefix);
  // What a later call, of another process too, knows the store by: of two stores with equal names
  // one keeps what the other does, as far as nobody has changed it since. What is within one
  // process, or has no name, is named anew for each.
  virtual std::string lasting_name() { return url(); }
  // As get_within(), past what a cache keeps.
  virtual bool get_latest(std::string_view key, Buffer& into, std::uint64_t max_nbytes) {
    return get_within(key, into, max_nbytes);
  }
  // The same with the version for set_if(); empty where the store cannot tell.
  virtual bool get_versioned(std::string_view key,
                             Buffer& into,
                             std::uint64_t max_nbytes,
                             std::string& version) {
    version.clear();
    return get_latest(key, into, max_nbytes);
  }
  // Never waits.
  virtual LockAttempt try_lock(std::string_view prefix, MissingFolder missing);
  // Whether nothing lies there but what was set through such a driver: memory, an archive.
  virtual bool holds_only_keys() const { return false; }
  // Whether the last name of the prefix is a link that leads elsewhere.
  virtual bool is_link(std::string_view) { return false; }
  // As list(), with what is no object, and without what lies behind links.
  virtual std::vector<StoredName> list_names(std::string_view prefix);
  // Erases some of list_names(), and folders above them that are empty then, up to `kept` ("" or
  // "a/b"), which stays. invalid_argument, for no names too, when `kept` is the root of the file
  // system or of a mount.
  virtual void erase_names(std::span<const StoredName> names, std::string_view kept);
};

// invalid_argument for keys that could leave the store or mean nothing: empty, absolute, "." or
// ".." or empty segments, NUL, backslash.
void check_key(std::string_view key);

// For the drivers.
//
// Nothing where it is out of what WrittenAt can tell.
std::optional<WrittenAt::Time> written_time(std::int64_t seconds, std::int64_t nanoseconds = 0);
// Whether a key is of a document that describes nodes, of v2 or v3, and not of a chunk.
bool names_metadata(std::string_view key);
inline constexpr std::array<std::string_view, 5> kMetadataNames = {
    "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"};
// A name that no other store has, of this process or another; it begins with kUnnamed.
inline constexpr std::string_view kUnnamed = "unnamed:";
std::string new_store_name();
// The same as this process knows it: a child of fork has its own copy of what has the name.
std::string name_within_process(const std::string& name);
// Tells whom on_dropped_archive() named.
void tell_dropped_archive(const std::string& url) noexcept;
// What check_key() would complain of; null for a good key.
const char* key_fault(std::string_view key);
// "" or "a/b/" to "" or "a/b", checked as a key is.
std::string_view check_prefix(std::string_view prefix);
// `corrupt` when the range ends after the object; `object` says which for the message.
void check_object_range(std::string_view object,
                        std::uint64_t size,
                        std::uint64_t offset,
                        std::uint64_t nbytes);
// `corrupt` with EFBIG when a whole object has more than the bound on its kind, by which the engine
// knows it from bytes that are wrong.
void check_object_nbytes(std::string_view object, std::uint64_t nbytes, std::uint64_t max_nbytes);
bool is_too_large(const Error& error);
// An object that was replaced while it was read: `io` with ESTALE, by which the engine knows that
// to read anew gives what there is now.
[[noreturn]] void throw_changed(std::string_view object);
bool is_changed(const Error& error);
// A write on condition whose answer was lost, when another write was made meanwhile: behind it,
// which was made then, or in its place. `io` with EALREADY.
[[noreturn]] void throw_in_doubt(std::string_view object);
bool is_in_doubt(const Error& error);
// `conflict`, of one that was to be new.
[[noreturn]] void throw_exists(std::string_view object);
// `unsupported`, of a condition that the store does not know.
[[noreturn]] void throw_no_condition(std::string_view url, const WriteCondition& condition);
std::uint64_t total_size(std::span<const MutableBytes> parts);
std::uint64_t total_size(std::span<const ConstBytes> parts);
[[noreturn]] void throw_read_only(std::string_view url);

}  // namespace headrace
