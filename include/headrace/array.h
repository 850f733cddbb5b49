#pragma once

// How to use it:
//  1. store = open_store(path); a = open_array(store, "t2m") reads metadata, nothing else.
//  2. a.read(selection) gives a Tensor; a.read_into(selection, view) fills the caller's memory.
//  3. create_array(...) and a.write(selection, view) put data; a chunk is replaced whole or not.
// Array and Group are cheap handles: copies share metadata and caches, any thread may use them.
//
// Writers of one array or group:
//  - Threads of a process may write parts of one chunk through any handles, however they were
//    opened. Processes must agree among themselves who writes which chunk (or shard).
//  - What changes metadata (append, resize, attributes, creation, consolidate_metadata) happens one
//    after the other among the threads and processes of a machine: each reads what the store has,
//    changes that, and shows it to all copies of its handle. Where a store has no lock that
//    processes share (a network, some network file systems), a change that is noticed is
//    `conflict`.
//  - A handle knows the shape that it saw last. Writing through one that others grew meanwhile
//    keeps what they wrote.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/codec.h"
#include "headrace/error.h"
#include "headrace/future.h"
#include "headrace/selection.h"
#include "headrace/store.h"
#include "headrace/tensor.h"

namespace headrace {
class ArrayState;  // src/engine/request/array_state.h
class GroupState;  // src/engine/node/group.cpp
}  // namespace headrace

#pragma GCC visibility push(default)
namespace headrace {

// How the inner chunks of a shard that is written lie in it: the last dimension fastest, the first
// one, or along a Z-order curve, as zarr-python writes them. Readers need not know.
enum class ShardOrder { lexicographic, colexicographic, morton };

struct OpenOptions {
  Device device{};
  std::optional<int> zarr_format{};  // none: v3 is looked for first, then v2
  bool read_only = false;            // writes through the handle fail with permission_denied
  bool use_consolidated = true;      // false: a group looks at each member's own metadata
  bool write_empty_chunks = false;   // keep chunks that are all fill value
  ShardOrder shard_order = ShardOrder::lexicographic;
  // open_array: zarr.json, or .zarray when zarr_format is 2, as the caller has it; what the store
  // holds is not looked at then.
  std::string metadata_json{};
  std::string attributes_json{};  // with it: .zattrs where zarr_format is 2
  // The documents are those that another handle was opened with: Array::open_options().
  bool as_opened = false;
  Implementations implementations{};
};

struct ReadOptions {
  Stream stream{};
  Implementations implementations{};  // added to those of the handle
  // Called by the calling thread now and then (about every 50 ms), also while it waits for threads
  // that are in the store; throwing from it stops the read. This is how an interpreter handles its
  // signals. The call returns when those threads have left the store: they write to the caller's
  // memory. A store that may never answer needs a time limit of its own.
  std::function<void()> poll{};
  std::size_t memory_budget = 0;  // of this request; 0: that of the configuration
  // When not null: grows by the bytes that the chunks read have in the store. Must outlive the
  // request.
  std::atomic<std::uint64_t>* encoded_nbytes = nullptr;
};
using WriteOptions = ReadOptions;

// Of update_attributes().
struct AttributeChanges {
  std::string set = "{}";             // a JSON object: names and their new values
  std::vector<std::string> remove{};  // names
  bool keep_present = false;          // of `set`, what has a value already keeps it
};

// Among the extents of Array::resize(): that of the array as the store has it, whoever has grown
// it.
inline constexpr std::int64_t kKeepExtent = std::numeric_limits<std::int64_t>::min();

// Gives the memory for a result of this shape.
using PlaceResult = std::function<TensorView(const Shape& shape)>;

// One array and one selection of a read_many.
struct ReadRequest;

class Array {
 public:
  explicit Array(std::shared_ptr<ArrayState> state) : state_(std::move(state)) {}

  Shape shape() const;
  DType dtype() const;
  // Whether chunks, or shards, have more than one shape.
  bool is_rectilinear() const;
  bool is_sharded() const;
  // Of the stored unit; when sharded, of its inner chunks. `unsupported` where a rectilinear grid
  // gives it no one shape.
  Shape chunks() const;
  std::optional<Shape> shards() const;  // shape of the unit that is stored, when sharded
  // Along each dimension the extents of the chunks, of the inner ones when sharded; the last is cut
  // off at the end of the array. Of any grid.
  std::vector<Shape> read_chunk_sizes() const;
  std::vector<Shape> write_chunk_sizes() const;  // of the stored units
  // Along each dimension the largest extent of chunks, of the inner ones when sharded. Of any grid.
  Shape largest_chunks() const;
  Device device() const;
  int zarr_format() const;
  bool read_only() const;
  std::vector<CodecSpec> codecs() const;  // v2 filters and compressors by their v3 meaning
  // One element in native bytes; nothing when v2 says null.
  std::optional<std::vector<std::byte>> fill_value() const;
  std::string attributes_json() const;
  std::string metadata_json() const;  // as stored
  // What opens another handle like this one, with these metadata, elsewhere: without a request.
  OpenOptions open_options() const;
  std::vector<std::optional<std::string>> dimension_names() const;  // empty when there are none
  std::int64_t nchunks() const;                                     // of the grid of chunks()
  std::int64_t nchunks_initialized() const;  // lists the store (and reads shard indices)
  std::int64_t nbytes_stored() const;        // of the chunks as they are stored; lists the store
  std::string path() const;                  // within the store: "a/b", "" for the root
  Store store() const;

  // The same array read to another device; metadata and caches are shared.
  Array to(Device device) const;
  Array with_implementations(const Implementations& implementations) const;
  // Throws for codecs that nobody has or whose configuration is wrong, as the first read would.
  void check_codecs() const;

  // Missing chunks read as the fill value. `corrupt` names array, chunk key and codec.
  // Elements of variable length are VlenElements: read() makes them, in host memory and nowhere
  // else, and the other reads are `unsupported`; write() takes them, from memory of the caller.
  Tensor read(const Selection& selection = {}, const ReadOptions& options = {}) const;
  // Elements of variable length as offsets and values, with no object an element: what read()
  // reads, checked alike, and a copy of the bytes more, which both are there for a while. For a
  // device both blocks are new memory there, done when this returns; it decodes what it has kernels
  // for (docs/devices.md), the host the rest. `invalid_argument` for elements of one length,
  // `out_of_memory` where the values do not fit: an element that is selected a thousand times takes
  // its bytes a thousand times.
  RaggedTensor read_ragged(const Selection& selection = {}, const ReadOptions& options = {}) const;
  // Into memory that `place` gives when it is told the shape of the result, before anything is
  // read.
  void read_placed(const Selection& selection,
                   const PlaceResult& place,
                   const ReadOptions& options = {}) const;
  // Fills `out` in place. Its shape must be result_shape(selection), its dtype the array's.
  void read_into(const Selection& selection,
                 const TensorView& out,
                 const ReadOptions& options = {}) const;
  Future<Tensor> read_async(const Selection& selection = {}, const ReadOptions& options = {}) const;
  // `keep_alive` is held until the request is done.
  Future<Unit> read_into_async(const Selection& selection,
                               const TensorView& out,
                               std::shared_ptr<void> keep_alive,
                               const ReadOptions& options = {}) const;
  Shape result_shape(const Selection& selection) const;

  // `data` broadcasts to the selection's shape. Chunks that are not covered are read and merged.
  // Chunks that end up all fill value are removed unless the handle was told to keep them.
  // Data in device memory are encoded there to zstd up to level 3, lz4, and blosc with these inside
  // (zstd up to clevel 2), behind shuffles; the result is about as small as that of zstd's level 1
  // and of LZ4's default. Other codecs, higher levels and chunks that are not covered are left to
  // the host. `implementations` forces either ("headrace-cuda", "libzstd"): `unsupported` when the
  // device cannot, and for "nvcomp", which only decodes.
  void write(const Selection& selection,
             const TensorView& data,
             const WriteOptions& options = {}) const;
  Future<Unit> write_async(const Selection& selection,
                           const TensorView& data,
                           std::shared_ptr<void> keep_alive,
                           const WriteOptions& options = {}) const;
  // What lies outside the new shape is removed, chunks and parts of chunks, after the shape is
  // stored: a crash between leaves what a later resize would show again. Where a rectilinear grid
  // ends before it, one chunk is added for the rest; where it reaches further, its edges stay.
  // kKeepExtent leaves a dimension as the store has it. Of `options` these three use `poll`, while
  // they wait for others too.
  void resize(const Shape& shape, const WriteOptions& options = {}) const;
  // Grows the array as the store has it along `axis` and writes there. Returns the new shape. Where
  // the store has locks the data come first, so that nobody sees the shape without them: a crash
  // leaves data that the next append replaces. Elsewhere the shape comes first, and is put back
  // when the write fails.
  Shape append(const TensorView& data, int axis = 0, const WriteOptions& options = {}) const;
  void set_attributes_json(std::string_view json, const WriteOptions& options = {}) const;
  // Changes some attributes and leaves the others as the store has them. Returns all of them as
  // they were before: there it can be seen whether one that was to be removed was there.
  std::string update_attributes(const AttributeChanges& changes,
                                const WriteOptions& options = {}) const;

  // Decodes every stored chunk and checks every checksum. Calls `bad` for each chunk that fails, by
  // its key ("c/0/1", "c/0/1[5]" for the inner chunk 5 of a shard), from several threads in turn;
  // returns the number of chunks looked at.
  std::int64_t verify(const std::function<void(const std::string& key, const Error& error)>& bad,
                      const ReadOptions& options = {}) const;

  const std::shared_ptr<ArrayState>& state() const { return state_; }

 private:
  std::shared_ptr<ArrayState> state_;
};

struct ReadRequest {
  Array array;
  Selection selection;
  TensorView out;
  PlaceResult place{};  // called in place of `out`, by the calling thread before anything is read
};

// One plan for all: the chunks of every request share the threads.
void read_many(const std::vector<ReadRequest>& requests, const ReadOptions& options = {});

struct Node {
  std::string name;  // within the group
  bool is_group = false;
};

// What lies in a group and is no member of it, and why.
struct NodeLeftOut {
  std::string name;
  std::string why;
};

class Group {
 public:
  explicit Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

  // Sorted by name; from consolidated metadata when there is any. A walk through groups by their
  // members ends: links that lead back to this group or one it is in are left out, and groups that
  // nest deeper than 64 are `unsupported`.
  std::vector<Node> members() const;
  // The same, with what looks like a node and is left out: those links, nodes of the other format,
  // folders with nodes below them and no document of their own, those with what look like chunks,
  // and names that as_stored() knows from consolidated metadata alone. Looks into the folders that
  // are no nodes. Of a group that has its members from consolidated metadata: nothing.
  std::vector<Node> members(std::vector<NodeLeftOut>& left_out) const;
  // The names of the links that members() leaves out.
  std::vector<std::string> links_back() const;
  // The group, and those below it, as the nodes' own documents have them: consolidated metadata may
  // be older. Itself where the store does not list, or has none.
  Group as_stored() const;
  bool contains(std::string_view name) const;
  std::optional<bool> is_group(std::string_view name) const;  // nothing when there is no such node
  Array array(std::string_view name, const OpenOptions& options = {}) const;
  Group group(std::string_view name) const;
  // Removes an array, or a group and everything below it, from the store, and from the consolidated
  // metadata of the groups that it is in. This handle goes on by those that it was opened with.
  void remove(std::string_view name, const std::function<void()>& poll = {}) const;
  std::string attributes_json() const;
  void set_attributes_json(std::string_view json, const WriteOptions& options = {}) const;
  std::string update_attributes(const AttributeChanges& changes,
                                const WriteOptions& options = {}) const;
  std::string metadata_json() const;
  bool consolidated() const;
  int zarr_format() const;
  bool read_only() const;
  std::string path() const;
  Store store() const;

  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  std::vector<Node> listed_members(std::vector<NodeLeftOut>* left_out) const;

  std::shared_ptr<GroupState> state_;
};

// `not_found` when there is no such node of that kind.
Array open_array(const Store& store, std::string_view path = "", const OpenOptions& options = {});
Group open_group(const Store& store, std::string_view path = "", const OpenOptions& options = {});
// True for a group, false for an array, nothing when there is no node.
std::optional<bool> node_is_group(const Store& store,
                                  std::string_view path = "",
                                  std::optional<int> zarr_format = {});
// Of a place without a node, what a message can say: "the folder is empty", "the server answers 404
// for zarr.json, .zarray and .zgroup", "there is no zarr.json, .zarray or .zgroup, but a.txt, b/".
std::string what_is_there(const Store& store,
                          std::string_view path = "",
                          std::optional<int> zarr_format = {});
// The names beside a path without a node, for a message about it, where a web server lists none: by
// the consolidated metadata of the store's root, which one request reads, or two. None where these
// are not to be had, or name the path itself.
std::vector<std::string> consolidated_names_beside(const Store& store, std::string_view path);

struct CreateOptions {
  Shape shape{};
  DType dtype{};
  Shape chunks{};  // empty: chosen, 1-4 MiB, whole trailing dimensions first
  Shape shards{};  // empty: no sharding
  // A rectilinear grid of chunks, or, where `chunks` are given too, of shards: a dimension each one
  // extent, or the extents of all, which reach to the end of the array at least. v3 only.
  std::vector<std::variant<std::int64_t, Shape>> edges{};
  // array -> array, then array -> bytes (at most one), then bytes -> bytes. Without it: bytes,
  // zstd.
  std::optional<std::vector<CodecSpec>> codecs{};
  std::optional<std::vector<std::byte>> fill_value{};  // native bytes; none: zero
  bool null_fill_value = false;  // v2: none in the metadata either, which marks no element missing
  int zarr_format = 3;
  char order = 'C';  // v2 only
  std::string
      dimension_separator{};   // "/" or "."; empty: the format's default ("/" in v3, "." in v2)
  bool v2_chunk_keys = false;  // v3: chunk_key_encoding "v2"
  std::string attributes{};    // JSON object, empty for none
  std::vector<std::optional<std::string>> dimension_names{};
  // Remove a node that is there, which is invalid_argument otherwise: its metadata, chunks and the
  // nodes below it. Other files stay, links are removed and not followed. invalid_argument for a
  // folder that is no node and holds files.
  bool overwrite = false;
  bool write_empty_chunks = false;
  std::function<void()> poll{};  // while waiting for others, as that of ReadOptions
};

Array create_array(const Store& store, std::string_view path, const CreateOptions& options);
Group create_group(const Store& store,
                   std::string_view path = "",
                   std::string_view attributes_json = "",
                   int zarr_format = 3,
                   bool overwrite = false,
                   const std::function<void()>& poll = {});

// Gathers the metadata of everything under `path` into its group's own metadata.
void consolidate_metadata(const Store& store,
                          std::string_view path = "",
                          const std::function<void()>& poll = {});

// Removes the node at `path` and those below it, as StoreMode::overwrite does.
void remove_nodes(const Store& store,
                  std::string_view path = "",
                  const std::function<void()>& poll = {});

}  // namespace headrace
#pragma GCC visibility pop
