#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {
class ObjectReader;  // src/store/store.h
class StoreDriver;   // src/store/store.h
}  // namespace headrace

#pragma GCC visibility push(default)
namespace headrace {

// Options by name, as users write them: {"io": "uring", "direct": "true", "fsync": "all"}.
using StorageOptions = std::map<std::string, std::string, std::less<>>;

enum class StoreMode {
  read,        // "r": must exist, never written
  read_write,  // "r+": must exist
  append,      // "a": created when missing
  create,      // "w-": must not exist
  overwrite,   // "w": emptied first, of what is Zarr's: see open_store
};

// One object of a store, open for reading: what it holds stays the same when it is replaced.
class StoredObject {
 public:
  explicit StoredObject(std::shared_ptr<const ObjectReader> reader) : reader_(std::move(reader)) {}

  std::uint64_t size() const;
  // `corrupt` when the object ends before dst is full.
  void read(std::uint64_t offset, std::span<std::byte> dst) const;

 private:
  std::shared_ptr<const ObjectReader> reader_;
};

// When an object was written, as its store tells: by clocks of seconds, or by a file's times, which
// programs may set.
struct WrittenAt {
  using Time = std::chrono::sys_time<std::chrono::nanoseconds>;
  Time earliest{}, latest{};
};

struct ObjectSize {
  std::string key;
  std::uint64_t nbytes = 0;
  std::optional<WrittenAt> written{};  // nothing: the store does not tell
};

// Objects that lie in a place and that no key can name ("a//b", "x/", "../q"): lists leave them
// out.
struct LeftOut {
  std::uint64_t objects = 0;
  std::string first{};
};

// A place that keeps bytes by key. Cheap to copy: copies share one driver. Thread-safe.
class Store {
 public:
  explicit Store(std::shared_ptr<StoreDriver> driver) : driver_(std::move(driver)) {}

  std::string url() const;  // "file:///data/era5.zarr", "memory://", "zip:///data/a.zip"
  bool read_only() const;
  // Whether a request takes milliseconds, and many are under way at a time.
  bool across_network() const;
  // Publishes a zip archive that is written: it appears under its name, whole, in place of what was
  // there. Writes after it fail. A second call does nothing, and so does one of another store.
  //
  // An archive that is dropped without it, with its last Store, Group and Array, is discarded: so
  // is what a writer that raised has left, and a child of fork never publishes its parent's. A
  // set() that failed (a full disk) leaves the archive as it was before that set(): whoever knows
  // that this is enough may still close() it.
  void close();
  // Drops the archive that close() would publish; what was there stays. Writes after it fail, and
  // close() does nothing. Of a folder that opening has made, with those above it, what is empty is
  // removed.
  void discard();
  // Returns when what was written through this process is on the disk of a file store, whatever
  // its option "fsync" says. An archive is synced by close(); of other stores it does nothing.
  void sync() const;

  // Keys are "a/b/c"; invalid_argument for one that could leave the store.
  std::optional<StoredObject> open(std::string_view key) const;  // nothing: no such object
  bool exists(std::string_view key) const;
  void set(std::string_view key, std::span<const std::byte> bytes) const;
  // The same where there is no such object yet, else `conflict`: of several writers one succeeds.
  // `unsupported` by a store that can not tell.
  void set_new(std::string_view key, std::span<const std::byte> bytes) const;
  void erase(std::string_view key) const;            // of a missing key: nothing happens
  void erase_prefix(std::string_view prefix) const;  // "" empties the store
  // All keys under "" or "a/b/", sorted; the names of objects and prefixes directly under it.
  std::vector<std::string> list(std::string_view prefix) const;
  std::vector<std::string> list_dir(std::string_view prefix) const;
  std::vector<ObjectSize> list_sizes(std::string_view prefix) const;  // as list()
  // The same, with what is not in the list.
  std::vector<std::string> list_dir(std::string_view prefix, LeftOut& left_out) const;
  std::vector<ObjectSize> list_sizes(std::string_view prefix, LeftOut& left_out) const;
  // Equal for two stores and prefixes ("a/b", "" for the root) exactly when they are one place,
  // whichever way leads there: links, "..", mounts, a cache in front.
  std::string identity(std::string_view prefix = "") const;

  StoreDriver& driver() const { return *driver_; }
  const std::shared_ptr<StoreDriver>& shared_driver() const { return driver_; }

 private:
  std::shared_ptr<StoreDriver> driver_;
};

// A path or URL: a folder, a .zip file, file://, zip://, memory://NAME (the same name is the same
// store within the process). `not_found` when mode wants it to exist and it does not;
// `unsupported` for a scheme this build lacks.
//
// Options: "io" = "pread" | "uring" (file), "direct" = "true" (O_DIRECT, file), and "fsync": what a
// power cut can take away no more when a write has returned (file), or close() (zip).
//
//   "none"      nothing is promised.
//   "metadata"  the default: documents that describe nodes (zarr.json, .zarray, .zattrs, ...), and
//               that one was erased; an archive, whole. Chunks of the last half minute may be
//               missing, empty or full of zeros; so an append may have the new shape without them.
//   "all"       chunks too ("true" means the same, "false" means "none").
//
// A killed process takes nothing of what was written, whatever the option: docs/survives.md.
//
// StoreMode::overwrite removes Zarr's own from a folder: metadata, chunks and the nodes below.
// Other files stay, and a folder that is no node and not empty is invalid_argument, as is one that
// is the root of the file system or of a mount.
Store open_store(std::string_view path_or_url,
                 StoreMode mode = StoreMode::read,
                 const StorageOptions& options = {});

// Whether open_store() takes it for a zip archive, there or still to be made: zip://, or a path or
// file:// URL that ends with .zip and is no folder.
bool names_archive(std::string_view path_or_url);

// A new, empty store in memory that nobody else sees.
Store memory_store();

// What is wrong with a place and how it is mended, as a JSON object:
//   {"url": ..., "good": true, "findings": [{"check": "tls", "state": "problem", "says": ...}]}
// States are "good", "note" (what costs time, or may be meant so) and "problem"; "good" of the
// whole is that there is no problem. Asks a server some ten times, for small documents; writes
// nothing, and shows no secret. What is wrong with the place is a finding, never an error.
std::string doctor_json(std::string_view path_or_url, const StorageOptions& options = {});

// Which objects copy_objects() leaves as they are in the other store.
enum class CopyOver {
  everything,   // none
  older,        // those of equal size that were written after the source's: what a copy has done;
                // where a store does not tell when, those of equal bytes
  other_size,   // those of equal size
  other_bytes,  // those of equal bytes, which are read for it
};

struct CopyProgress {
  std::uint64_t objects = 0, nbytes = 0;    // of the source
  std::uint64_t done = 0, done_nbytes = 0;  // with those that were the same or gone
  std::uint64_t copied = 0, copied_nbytes = 0;
  std::uint64_t removed = 0;
  LeftOut left_out{};  // of the source
  LeftOut gone{};      // were listed, and removed before they were read
};

struct CopyOptions {
  CopyOver over = CopyOver::everything;
  bool verify = false;         // each object is read back and compared; `corrupt` when it differs
  bool remove_others = false;  // what is below the target's prefix only, once all is copied
  int at_once = 16;            // objects on their way at a time
  // Of those; one object lies in memory whole, however large.
  std::uint64_t memory_nbytes = std::uint64_t{256} << 20;
  // Called by the calling thread now and then, and at the end. What it throws ends the copy.
  std::function<void(const CopyProgress&)> progress{};
};

// Copies all objects below a prefix ("" or "a/b") to below one of another store, as they are.
// Documents that describe nodes go last, so that no array is seen before its chunks. An object that
// is removed meanwhile is left out, and `io` one that is listed and never found. The first failure
// ends the copy; to call it again with another CopyOver goes on where it ended. `invalid_argument`
// where one place lies within the other, `not_found` where the source has no object, as a place
// whose name is wrong. `invalid_argument`, with nothing copied, where the target has chunks in the
// folder of an array that is copied, or documents in that of a node, which the source lacks, unless
// `remove_others`: they would be read as parts of the copy.
CopyProgress copy_objects(const Store& from,
                          std::string_view from_prefix,
                          const Store& to,
                          std::string_view to_prefix,
                          const CopyOptions& options = {});
// The same to a store that is opened, and made, only when the source has objects.
CopyProgress copy_objects(const Store& from,
                          std::string_view from_prefix,
                          const std::function<Store()>& open_to,
                          std::string_view to_prefix,
                          const CopyOptions& options = {});

// Who is told, by its URL, of an archive that is dropped without close() or discard(); nobody at
// first. Called by whichever thread drops it; it must not throw.
using DroppedArchiveHandler = void (*)(const std::string& url);
void on_dropped_archive(DroppedArchiveHandler handler);

// The URLs of the archives that this process writes and has neither closed nor discarded.
std::vector<std::string> unpublished_archives();

struct StoredBytes {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  // keeps `bytes` where they are
};

// Bytes of one object.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Which ranges of one object are asked for as one: those with at most `gap` unused bytes between
// them, up to `run` bytes.
struct Coalescing {
  std::uint64_t gap = 0;
  std::uint64_t run = 0;
};

// What CustomStore::submit() is asked for.
struct StoreRead {
  enum class Kind { whole, range, suffix };
  std::uint64_t id = 0;  // for the answer
  std::string key{};
  Kind kind = Kind::whole;
  ByteRange range{};  // of a suffix its most bytes, at offset 0: the object may have fewer
  // Not empty: of this version, as an answer told it; Error `io` with ESTALE when it is another.
  std::string if_version{};
};

// Takes the answers to CustomStore::submit(), each once, from any thread; others are ignored.
class StoreAnswers {
 public:
  virtual ~StoreAnswers() = default;
  // `version` differs whenever the object was replaced, and is empty where nobody can tell. Shard
  // indices are kept by it. `object_nbytes`: of the whole object; 0: not known.
  virtual void found(std::uint64_t id,
                     StoredBytes bytes,
                     std::string version = {},
                     std::uint64_t object_nbytes = 0) noexcept = 0;
  virtual void missing(std::uint64_t id) noexcept = 0;
  virtual void failed(std::uint64_t id, std::exception_ptr error) noexcept = 0;
};

// A store that the application keeps itself: derive from this, and hand it to make_store().
// Every method may be called from any thread, by several at once. Keys were checked: "a/b/c",
// nothing that leaves the store. Whatever they throw reaches the caller of the read or write.
class CustomStore {
 public:
  virtual ~CustomStore() = default;

  virtual std::string url() const = 0;  // for messages
  virtual bool read_only() const = 0;
  // As Store::identity(): writers of one chunk in one process wait for each other by it.
  virtual std::string identity(const std::string& prefix) const;
  // What another process may know the store by, as that of a rechunk which goes on: where two have
  // equal names, one keeps what the other does. Empty: it is known by this object alone.
  virtual std::string lasting_name() const;
  // The folder of this machine that has the objects of a prefix, where there is one: writers of
  // several processes hold each other off by a lock on it. Empty: there is none.
  virtual std::string folder(const std::string& prefix) const;
  // How many objects get() had best be asked for at once.
  virtual std::size_t batch_size() const = 0;
  // True where it answers in microseconds: then it is asked by the threads that decode. Else reads
  // of arrays wait for it in threads of their own, at most 32 of them, which hold up nothing.
  virtual bool local() const { return false; }

  // True where get() hands over what lies in memory, without a copy: then an object is asked for
  // once, whole, whatever is wanted of it, and size() and the ranges are not asked for.
  virtual bool in_memory() const { return false; }

  // Whole objects, in the order of the keys; nothing where there is none.
  virtual std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) = 0;
  virtual std::optional<std::uint64_t> size(const std::string& key) = 0;
  // Nothing when there is no such object (any more), fewer bytes when it ends before.
  virtual std::optional<StoredBytes> get_range(const std::string& key, const ByteRange& range) = 0;
  // The same of several ranges, in their order; one after the other, unless it is overridden.
  virtual std::optional<std::vector<StoredBytes>> get_ranges(const std::string& key,
                                                             std::span<const ByteRange> ranges);
  // Of inner chunks, which get_ranges() is asked for; nothing: as the configuration says.
  virtual std::optional<Coalescing> coalescing() const { return std::nullopt; }

  // Reads of arrays that take no thread each: of a store whose depth() is not 0, the default. That
  // is how many reads it works on at a time. submit() begins them and returns; what it throws is
  // the answer to all of them that have none. Who is told by cancel() that nobody waits for an
  // answer any more may go on with it or not.
  virtual std::size_t depth() const { return 0; }
  virtual void submit(std::vector<StoreRead> reads, std::shared_ptr<StoreAnswers> answers);
  virtual void cancel(std::uint64_t id);

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
#pragma GCC visibility pop
