#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "codec/hashes.h"
#include "engine/node/catalog.h"
#include "engine/node/create.h"
#include "engine/rechunk/plan.h"
#include "engine/rechunk/state.h"
#include "format/json.h"
#include "headrace/rechunk.h"
#include "store/url.h"

namespace headrace {
namespace {

constexpr const char* kFolder = ".rechunk";
// Requests with less fetch objects by several requests each.
constexpr std::size_t kLeastScratch = std::size_t{1} << 20;

// What is to be copied, by paths relative to its root.
struct Tree {
  Store store;
  std::string path;                                   // of the root
  std::vector<std::pair<std::string, Group>> groups;  // each after the one it is in
  std::vector<std::pair<std::string, Array>> arrays;
  bool consolidated = false;

  std::string place() const { return place_of(store, path); }
};

// The root's own name is "".
std::string node_below(const std::string& path, const std::string& name) {
  return name.empty() ? path : join_key(path, name);
}

void gather(const Group& group, const std::string& path, WalkLimit& limit, Tree& tree) {
  limit.count(tree.store, tree.path);
  tree.groups.emplace_back(path, group);
  for (const Node& node : group.members()) {
    const std::string member = join_key(path, node.name);
    if (node.is_group) {
      gather(group.group(node.name), member, limit, tree);
    } else {
      limit.count(tree.store, tree.path);
      tree.arrays.emplace_back(member, group.array(node.name).to(Device::cpu()));
    }
  }
}

Tree tree_of(const Group& group) {
  Tree tree{group.store(), group.path(), {}, {}, group.consolidated()};
  WalkLimit limit;
  gather(group, "", limit, tree);
  return tree;
}

Tree tree_of(const Array& array) {
  return {array.store(), array.path(), {}, {{"", array.to(Device::cpu())}}};
}

// Files by their one real path, whatever links and ".." lead there.
std::string real_place(const Store& store, const std::string& path) {
  const std::string place = node_below(store.url(), path);
  for (const std::string_view scheme : {"file://", "zip://"}) {
    if (!place.starts_with(scheme)) continue;
    std::error_code failed;
    const std::string file = percent_decode(std::string_view(place).substr(scheme.size()));
    const auto real = std::filesystem::weakly_canonical(file, failed);
    return failed ? file : real.string();
  }
  return place;
}

bool overlap(const std::string& a, const std::string& b) {
  const auto is_within = [](const std::string& inner, const std::string& outer) {
    return outer.empty() || inner == outer || inner.starts_with(outer + '/');
  };
  return is_within(a, b) || is_within(b, a);
}

Shape with_whole_dimensions(Shape extents, const Shape& shape) {
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == -1) extents[d] = std::max<std::int64_t>(shape[d], 1);
  }
  return extents;
}

// The source's own chunks; empty, for chosen ones, when they have more than one shape.
Shape chunks_of(const Array& source) {
  return source.is_rectilinear() && !source.is_sharded() ? Shape{} : source.chunks();
}

CreateOptions destination_of(const Array& source, bool in_group, const RechunkOptions& options) {
  CreateOptions result;
  result.shape = source.shape();
  result.dtype = source.dtype();
  result.fill_value = source.fill_value();
  result.attributes = attributes_in_v3(source);
  result.dimension_names = source.dimension_names();
  result.codecs = options.codecs;
  // Of a group's arrays those of another number of dimensions are not meant.
  const auto meant = [&](const Shape& extents) {
    return !in_group || extents.size() == result.shape.size();
  };
  const bool given = !options.chunks.empty() && meant(options.chunks);
  result.chunks = given ? with_whole_dimensions(options.chunks, result.shape) : chunks_of(source);
  if (options.shards && !options.shards->empty() && meant(*options.shards))
    result.shards = with_whole_dimensions(*options.shards, result.shape);
  return result;
}

// An array of the same metadata without chunks, for its grids: plans are made before the
// destination is.
Array planned_destination(const Array& source, bool in_group, const RechunkOptions& options) {
  CreateOptions create = destination_of(source, in_group, options);
  Array array = create_array(memory_store(), "", create);
  const bool choose = options.shards && options.shards->empty();
  if (!choose || array.dtype().variable_length()) return array;
  const auto shards = choose_shards(
      array.shape(), array.chunks(), array.dtype().itemsize(), options.max_memory / 8);
  if (!shards) return array;
  create.chunks = array.chunks();
  create.shards = *shards;
  return create_array(memory_store(), "", create);
}

struct Job {
  Array source;
  Array planned;  // the destination's metadata
  RechunkPlan plan;
};

Job job_of(const std::string& path,
           const Array& source,
           bool in_group,
           const RechunkOptions& options) {
  try {
    Array planned = planned_destination(source, in_group, options);
    RechunkPlan plan{path, planned.chunks(), planned.shards(), {}};
    plan.passes = plan_passes(source.read_chunk_sizes(),
                              planned.write_chunk_sizes(),
                              source.dtype().itemsize(),
                              options.max_memory / 2);
    return {source, std::move(planned), std::move(plan)};
  } catch (const Error& e) {
    if (path.empty()) throw;
    throw e.with_context(path);
  }
}

std::vector<Job> jobs_of(const Tree& tree, const RechunkOptions& options) {
  std::vector<Job> jobs;
  for (const auto& [path, array] : tree.arrays)
    jobs.push_back(job_of(path, array, !tree.groups.empty(), options));
  return jobs;
}

std::vector<RechunkPlan> plans_of(const Tree& tree, const RechunkOptions& options) {
  std::vector<RechunkPlan> plans;
  for (Job& job : jobs_of(tree, options)) plans.push_back(std::move(job.plan));
  return plans;
}

std::string json_of(const Shape& extents) {
  std::string text = "[";
  for (const std::int64_t extent : extents)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + ']';
}

// Of the blocks, which are known by their numbers when a rechunk goes on: they are others where the
// source was resized meanwhile, or the planner changed.
std::uint32_t checksum(const std::vector<Job>& jobs) {
  std::string text;
  for (const Job& job : jobs) {
    text += json_quote(job.plan.path) + job.source.dtype().name();
    for (const RechunkPass& pass : job.plan.passes) {
      for (const Shape& sizes : pass.block_sizes) text += json_of(sizes);
    }
  }
  return crc32c(bytes_of(text));
}

// What must be the same when a rechunk goes on.
std::string arguments_json(const Tree& tree,
                           const std::vector<Job>& jobs,
                           const RechunkOptions& options) {
  std::string codecs = "null";
  if (options.codecs) {
    codecs = "[";
    for (const CodecSpec& codec : *options.codecs) {
      codecs += (codecs.size() > 1 ? ", [" : "[") + json_quote(codec.name) + ", " +
                (codec.configuration.empty() ? "{}" : codec.configuration) + ']';
    }
    codecs += ']';
  }
  return "{\"source\": " + json_quote(tree.place()) + ", \"chunks\": " + json_of(options.chunks) +
         ", \"shards\": " + (options.shards ? json_of(*options.shards) : "null") +
         ", \"codecs\": " + codecs + ", \"max_memory\": " + std::to_string(options.max_memory) +
         ", \"blocks\": " + std::to_string(checksum(jobs)) + '}';
}

std::size_t largest_block_nbytes(const std::vector<Job>& jobs) {
  std::int64_t largest = 0;
  for (const Job& job : jobs) {
    for (const RechunkPass& pass : job.plan.passes) largest = std::max(largest, pass.block_nbytes);
  }
  return static_cast<std::size_t>(largest);
}

std::vector<std::int64_t> block_nbytes(const RechunkPass& pass, std::size_t itemsize) {
  std::vector<std::int64_t> nbytes = {static_cast<std::int64_t>(itemsize)};
  for (const Shape& sizes : pass.block_sizes) {
    std::vector<std::int64_t> next;
    for (const std::int64_t n : nbytes) {
      for (const std::int64_t extent : sizes) next.push_back(n * extent);
    }
    nbytes = std::move(next);
  }
  return nbytes;
}

// The elements of one block after another, in the same memory: that of a Tensor each is kept for a
// while, and smaller blocks at the edges would take more.
class Block {
 public:
  explicit Block(std::size_t room_nbytes) : room_nbytes_(room_nbytes) {}

  // Valid until the next one.
  TensorView read(const Array& array, const Selection& block, const ReadOptions& options) {
    if (array.dtype().variable_length()) {
      strings_ = array.read(block, options);
      return strings_->view();
    }
    TensorView view{nullptr, array.result_shape(block), {}, array.dtype(), Device::cpu()};
    memory_.resize(std::max(room_nbytes_, view.size() * view.dtype.itemsize()));
    view.data = memory_.data();
    array.read_into(block, view, options);
    return view;
  }

 private:
  const std::size_t room_nbytes_;  // of the largest block, as far as it is known
  Buffer memory_;
  std::optional<Tensor> strings_;
};

bool same_elements(const TensorView& a, const TensorView& b) {
  if (!a.dtype.variable_length()) {
    const std::size_t nbytes = a.size() * a.dtype.itemsize();
    return nbytes == 0 || std::memcmp(a.data, b.data, nbytes) == 0;
  }
  const auto* left = static_cast<const VlenElement*>(a.data);
  const auto* right = static_cast<const VlenElement*>(b.data);
  return std::equal(left, left + a.size(), right, [](const auto& x, const auto& y) {
    return x.text() == y.text();
  });
}

std::string text_of(const Selection& block) {
  std::string text;
  for (const SelectionItem& item : block.items()) {
    const auto& range = std::get<Slice>(item);
    text += (text.empty() ? "" : ", ") + std::to_string(*range.start) + ':' +
            std::to_string(*range.stop);
  }
  return '[' + text + ']';
}

class Rechunk {
 public:
  Rechunk(const Tree& tree, Store store, std::string path, const RechunkOptions& options)
      : tree_(tree),
        store_(std::move(store)),
        path_(std::move(path)),
        options_(options),
        folder_(join_key(path_, kFolder)),
        is_archive_(store_.url().starts_with("zip:")),
        jobs_(jobs_of(tree, options)),
        lock_(lock_notes(false)),
        state_(store_, folder_, arguments_json(tree, jobs_, options), !is_archive_),
        wanted_(largest_block_nbytes(jobs_)) {
    io_.poll = options.poll;
    io_.memory_budget = std::max(options.max_memory / 4, kLeastScratch);
  }

  void run() {
    start();
    count_total();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (i >= state_.array()) {
        copy(i);
      } else {
        advance(jobs_[i].plan.nbytes_written());
      }
    }
    if (options_.verify) {
      for (const Job& job : jobs_) verify(job);
    }
    if (tree_.consolidated) consolidate_metadata(store_, path_);
    state_.remove();
  }

 private:
  // Of the folder of notes, held while they count: of two rechunks at once one would take away what
  // the other reads. Null where there is no such folder yet, or the store has no locks.
  std::unique_ptr<PrefixLock> lock_notes(bool make) const {
    LockAttempt attempt = store_.driver().try_lock(folder_, make);
    if (attempt.state == LockAttempt::State::busy) {
      throw Error(ErrorCode::conflict,
                  "[rechunk] " + place_of(store_, path_) +
                      ": another rechunk is at work there; wait for its end, or end it");
    }
    return std::move(attempt.lock);
  }

  // Makes room and the nodes, or finds them made.
  void start() {
    if (nodes_overlap(tree_.store, tree_.path, store_, path_)) {
      throw Error(ErrorCode::invalid_argument,
                  "[rechunk] " + place_of(store_, path_) + ": source and destination overlap");
    }
    for (const Job& job : jobs_) {
      if (is_archive_ && job.plan.passes.size() > 1) {
        throw Error(ErrorCode::unsupported,
                    "[rechunk] " + place_of(store_, path_) +
                        ": an archive takes one pass; give more max_memory, or write a folder");
      }
    }
    if (!state_.same_arguments() && !options_.overwrite) {
      throw Error(ErrorCode::invalid_argument,
                  "[rechunk] " + place_of(store_, path_) +
                      ": a rechunk with other arguments, or of what the source was then, stopped "
                      "halfway there; give the same ones or overwrite");
    }
    if (!state_.found() || !state_.same_arguments()) {
      if (state_.found()) state_.forget();
      lock_.reset();  // what is removed may be the folder; under the node's lock nobody else begins
      const NodeLock lock =
          prepare_node("rechunk", store_, path_, 3, options_.overwrite, options_.poll);
      lock_ = lock_notes(true);
      state_.begin(0, 0);
      if (!lock_) lock_ = lock_notes(false);  // of a store that makes folders with what they hold
    }
    for (const auto& [name, group] : tree_.groups) {
      const std::string where = node_below(path_, name);
      if (!node_is_group(store_, where)) create_group(store_, where, group.attributes_json(), 3);
    }
  }

  void count_total() {
    for (const Job& job : jobs_) {
      total_ += job.plan.nbytes_written();
      if (options_.verify) total_ += job.plan.passes.back().nbytes_written;
    }
  }

  Array destination(const Job& job) const {
    const std::string where = node_below(path_, job.plan.path);
    if (!node_is_group(store_, where)) {
      store_array_metadata(store_, where, *job.planned.state()->metadata());
    }
    return open_array(store_, where);
  }

  std::string between(std::size_t i) const { return folder_ + "/between-" + std::to_string(i); }

  // The array between two passes; it has no node above it.
  Array intermediate(std::size_t i) const {
    const std::string where = between(i);
    if (!node_is_group(store_, where)) {
      const Job& job = jobs_[i];
      CreateOptions create;
      create.shape = job.source.shape();
      create.dtype = job.source.dtype();
      create.fill_value = job.source.fill_value();
      create.codecs.emplace();
      for (Shape& sizes :
           common_chunks(job.plan.passes[0].block_sizes, job.plan.passes[1].block_sizes))
        create.edges.emplace_back(std::move(sizes));
      store_array_metadata(store_, where, new_array_metadata(create));
    }
    return open_array(store_, where);
  }

  void copy(std::size_t i) {
    const Job& job = jobs_[i];
    if (state_.array() != i) state_.begin(i, 0);
    const Array target = destination(job);
    const std::vector<RechunkPass>& passes = job.plan.passes;
    if (passes.size() == 1) {
      copy_blocks(job.source, target, passes[0]);
    } else {
      const Array between = intermediate(i);
      if (state_.pass() == 0) {
        copy_blocks(job.source, between, passes[0]);
        state_.begin(i, 1);
      } else {
        advance(passes[0].nbytes_written);
      }
      copy_blocks(between, target, passes[1]);
    }
    state_.begin(i + 1, 0);
    if (passes.size() > 1) store_.erase_prefix(between(i) + '/');
  }

  void copy_blocks(const Array& source, const Array& target, const RechunkPass& pass) {
    const std::vector<std::int64_t> nbytes = block_nbytes(pass, source.dtype().itemsize());
    std::vector<Selection> blocks;
    std::vector<std::size_t> numbers;  // of these blocks in the pass
    std::vector<Selection> all = block_selections(pass.block_sizes);
    std::int64_t done = 0;
    for (std::size_t block = 0; block < all.size(); ++block) {
      if (state_.is_done(block)) {
        done += nbytes[block];
      } else {
        numbers.push_back(block);
        blocks.push_back(std::move(all[block]));
      }
    }
    if (done > 0) advance(done);
    const auto finished = [&](std::size_t i) {
      state_.finish_block(numbers[i]);
      advance(nbytes[numbers[i]]);
    };
    try {
      if (options_.executor) {
        options_.executor(source, target, blocks, finished);
      } else {
        copy_in_turn(source, target, blocks, finished);
      }
    } catch (...) {
      try {
        state_.save();
      } catch (...) {  // what was done since the last note is done again; why is told
      }
      throw;
    }
  }

  void copy_in_turn(const Array& source,
                    const Array& target,
                    const std::vector<Selection>& blocks,
                    const std::function<void(std::size_t)>& finished) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (options_.poll) options_.poll();
      target.write(blocks[i], wanted_.read(source, blocks[i], io_), io_);
      finished(i);
    }
  }

  void verify(const Job& job) {
    const Array target = destination(job);
    const std::size_t itemsize = target.dtype().itemsize();
    // A block of each of the two; a shard is not cut.
    const RechunkPass pass = plan_pass(
        job.source.read_chunk_sizes(),
        target.read_chunk_sizes(),
        itemsize,
        std::max(options_.max_memory / 4, checked_nbytes(target.chunks(), itemsize, "chunks")));
    const std::vector<std::int64_t> nbytes = block_nbytes(pass, itemsize);
    const std::vector<Selection> blocks = block_selections(pass.block_sizes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (options_.poll) options_.poll();
      if (!same_elements(wanted_.read(job.source, blocks[i], io_),
                         got_.read(target, blocks[i], io_))) {
        throw Error(ErrorCode::corrupt,
                    "[rechunk] verify: " + place_of(store_, target.path()) + ' ' +
                        text_of(blocks[i]) + " differs from " + tree_.place());
      }
      advance(nbytes[i]);
    }
  }

  void advance(std::int64_t nbytes) {
    done_ += nbytes;
    if (options_.progress) options_.progress(done_, total_);
  }

  const Tree& tree_;
  const Store store_;
  const std::string path_;
  const RechunkOptions& options_;
  const std::string folder_;
  const bool is_archive_;
  const std::vector<Job> jobs_;
  std::unique_ptr<PrefixLock> lock_;  // before state_, which reads the notes
  RechunkState state_;
  ReadOptions io_;
  Block wanted_;
  Block got_{0};  // by verify
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

std::int64_t RechunkPlan::nbytes_read() const {
  std::int64_t nbytes = 0;
  for (const RechunkPass& pass : passes) nbytes += pass.nbytes_read;
  return nbytes;
}

std::int64_t RechunkPlan::nbytes_written() const {
  std::int64_t nbytes = 0;
  for (const RechunkPass& pass : passes) nbytes += pass.nbytes_written;
  return nbytes;
}

double RechunkPlan::amplification() const {
  const auto nbytes = static_cast<double>(passes.back().nbytes_written);
  return nbytes == 0 ? 1 : static_cast<double>(nbytes_read()) / nbytes;
}

std::vector<RechunkPlan> plan_rechunk(const Array& source, const RechunkOptions& options) {
  return plans_of(tree_of(source), options);
}

std::vector<RechunkPlan> plan_rechunk(const Group& source, const RechunkOptions& options) {
  return plans_of(tree_of(source), options);
}

bool nodes_overlap(const Store& store,
                   std::string_view path,
                   const Store& other_store,
                   std::string_view other_path) {
  const std::string one(path);
  const std::string other(other_path);
  if (store.shared_driver() == other_store.shared_driver()) return overlap(one, other);
  constexpr const char* kNamelessMemory = "memory://";
  if (store.url() == kNamelessMemory || other_store.url() == kNamelessMemory) return false;
  return overlap(real_place(store, one), real_place(other_store, other));
}

void rechunk(const Array& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options) {
  const Tree tree = tree_of(source);
  Rechunk(tree, store, node_path(path), options).run();
}

void rechunk(const Group& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options) {
  const Tree tree = tree_of(source);
  Rechunk(tree, store, node_path(path), options).run();
}

}  // namespace headrace
