#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "engine/node/catalog.h"
#include "engine/node/consolidate.h"
#include "engine/node/create.h"
#include "engine/rechunk/blocks.h"
#include "engine/rechunk/plan.h"
#include "engine/rechunk/planned_array.h"
#include "engine/rechunk/state.h"
#include "engine/rechunk/tree.h"
#include "headrace/rechunk.h"
#include "store/store.h"

namespace headrace {
namespace {

// Requests with less fetch objects by several requests each.
constexpr std::size_t kLeastScratch = std::size_t{1} << 20;

class Rechunk {
 public:
  Rechunk(const RechunkTree& tree, Store store, std::string path, const RechunkOptions& options)
      : tree_(tree),
        store_(std::move(store)),
        path_(std::move(path)),
        options_(options),
        folder_(RechunkState::folder_of(path_)),
        is_archive_(store_.url().starts_with("zip:")),
        arrays_(planned_arrays(tree, options)),
        lock_(lock_notes(MissingFolder::leave)),
        state_(store_, folder_, arguments_json(tree, arrays_, options), !is_archive_),
        wanted_(largest_block_nbytes(arrays_)) {
    io_.poll = options.poll;
    io_.memory_budget = std::max(options.max_memory / 4, kLeastScratch);
  }

  void run() {
    start();
    count_total();
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (i >= state_.array()) {
        copy(i);
      } else {
        advance(arrays_[i].plan.nbytes_written());
      }
    }
    if (options_.verify) {
      for (const PlannedArray& array : arrays_) {
        if (options_.verifier) {
          options_.verifier(array.source, destination(array));
          advance(array.plan.passes.back().nbytes_written);
        } else {
          verify(array);
        }
      }
    }
    if (tree_.consolidated) consolidate_metadata(store_, path_);
    enter_consolidated("rechunk", store_, path_, options_.poll);
    state_.remove();
  }

 private:
  // Of the folder of notes, held while they count: of two rechunks at once one would take away what
  // the other reads. Null where there is no such folder yet, or the store has no locks.
  std::unique_ptr<PrefixLock> lock_notes(MissingFolder missing) const {
    LockAttempt attempt = store_.driver().try_lock(folder_, missing);
    if (attempt.state == LockAttempt::State::busy) {
      throw Error(ErrorCode::conflict,
                  "[rechunk] " + place_of(store_, path_) +
                      ": another rechunk is at work there; wait for its end, or end it");
    }
    return std::move(attempt.lock);
  }

  // A member called as the folder of notes would lie in it, and go with it.
  void refuse_name_of_notes() const {
    const auto is_called_so = [](const auto& node) {
      return node.first == RechunkState::kName || node.first == RechunkState::kLastName;
    };
    if (std::ranges::none_of(tree_.groups, is_called_so) &&
        std::ranges::none_of(tree_.arrays, is_called_so))
      return;
    throw Error(ErrorCode::invalid_argument,
                "[rechunk] " + tree_.place() + ": has a member \"" +
                    std::string(RechunkState::kName) + "\" or \"" + RechunkState::kLastName +
                    "\", where the destination of a rechunk keeps its notes: give it another name");
  }

  // Makes room and the nodes, or finds them made.
  void start() {
    refuse_name_of_notes();
    if (nodes_overlap(tree_.store, tree_.path, store_, path_)) {
      throw Error(ErrorCode::invalid_argument,
                  "[rechunk] " + place_of(store_, path_) + ": source and destination overlap");
    }
    for (const PlannedArray& array : arrays_) {
      if (is_archive_ && array.plan.passes.size() > 1) {
        throw Error(ErrorCode::unsupported,
                    "[rechunk] " + place_of(store_, path_) +
                        ": an archive takes one pass; give more max_memory, or write a folder");
      }
    }
    if (!state_.same_arguments() && !options_.overwrite) throw_other_arguments();
    if (!state_.found() || !state_.same_arguments()) {
      if (state_.found()) state_.forget();
      lock_.reset();  // what is removed may be the folder; under the node's lock nobody else begins
      const auto root = std::ranges::find_if(
          arrays_, [](const PlannedArray& array) { return array.plan.path.empty(); });
      const auto made = root == arrays_.end() ? nullptr : root->target.state()->metadata();
      const NewNode room =
          prepare_node("rechunk", store_, path_, 3, options_.overwrite, options_.poll, made.get());
      lock_ = lock_notes(MissingFolder::make);
      state_.begin(0, 0);
      if (!lock_)
        lock_ =
            lock_notes(MissingFolder::leave);  // of a store that makes folders with what they hold
    }
    for (const auto& [name, group] : tree_.groups) {
      const std::string where = node_below(path_, name);
      if (!node_is_group(store_, where)) create_group(store_, where, group.attributes_json(), 3);
    }
  }

  [[noreturn]] void throw_other_arguments() const {
    std::string names;
    bool source = false;
    for (const std::string& name : state_.other_arguments()) {
      source = source || name == "source";
      if (name == "blocks" && !names.empty()) continue;  // other ones wherever something else is
      names += (names.empty() ? "" : ", ");
      names += name == "documents" ? "metadata of the source" : name;
    }
    std::string message = "[rechunk] " + place_of(store_, path_) +
                          ": a rechunk with other arguments, or of what the source was then, "
                          "stopped halfway there (other: " +
                          names + "); give the same ones or overwrite";
    if (source && source_name(tree_, options_).starts_with(kUnnamed))
      message +=
          ". A source without a name, as in memory, is known only by the store that was open";
    throw Error(ErrorCode::invalid_argument, message);
  }

  void count_total() {
    for (const PlannedArray& array : arrays_) {
      total_ += array.plan.nbytes_written();
      if (options_.verify) total_ += array.plan.passes.back().nbytes_written;
    }
  }

  Array destination(const PlannedArray& array) const {
    const std::string where = node_below(path_, array.plan.path);
    if (!node_is_group(store_, where)) {
      store_documents(store_, where, documents_of(*array.target.state()->metadata()));
    }
    return open_array(store_, where);
  }

  std::string between(std::size_t i) const { return folder_ + "/between-" + std::to_string(i); }

  // The array between two passes; it has no node above it.
  Array intermediate(std::size_t i) const {
    const std::string where = between(i);
    if (!node_is_group(store_, where)) {
      const PlannedArray& array = arrays_[i];
      CreateOptions create;
      create.shape = array.source.shape();
      create.dtype = array.source.dtype();
      create.fill_value = fill_of(array.source);
      create.codecs.emplace();
      for (Shape& sizes :
           common_chunks(array.plan.passes[0].block_sizes, array.plan.passes[1].block_sizes))
        create.edges.emplace_back(std::move(sizes));
      store_documents(store_, where, documents_of(new_array_metadata(create)));
    }
    return open_array(store_, where);
  }

  void copy(std::size_t i) {
    const PlannedArray& array = arrays_[i];
    if (state_.array() != i) state_.begin(i, 0);
    const Array target = destination(array);
    const std::vector<RechunkPass>& passes = array.plan.passes;
    if (passes.size() == 1) {
      copy_blocks(array.source, target, passes[0]);
    } else {
      const Array between = intermediate(i);
      if (state_.pass() == 0) {
        copy_blocks(array.source, between, passes[0]);
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
    std::vector<bool> copied(blocks.size());
    const auto finished = [&](std::size_t i) {
      if (i >= copied.size() || copied[i]) {
        throw Error(ErrorCode::invalid_argument,
                    "[rechunk] executor: block " + std::to_string(i) + " of " +
                        std::to_string(copied.size()) + " is none, or was finished before");
      }
      copied[i] = true;
      state_.finish_block(numbers[i]);
      advance(nbytes[numbers[i]]);
    };
    try {
      if (options_.executor) {
        options_.executor(source, target, blocks, finished);
        if (const auto left = std::ranges::count(copied, false); left > 0) {
          throw Error(ErrorCode::invalid_argument,
                      "[rechunk] executor: " + std::to_string(left) + " of " +
                          std::to_string(copied.size()) + " blocks were not finished");
        }
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

  void verify(const PlannedArray& array) {
    const Array target = destination(array);
    const std::size_t itemsize = target.dtype().itemsize();
    // A block of each of the two; a shard is not cut.
    const RechunkPass pass = plan_pass(
        array.source.read_chunk_sizes(),
        target.read_chunk_sizes(),
        itemsize,
        std::max(options_.max_memory / 4, checked_nbytes(target.chunks(), itemsize, "chunks")));
    const std::vector<std::int64_t> nbytes = block_nbytes(pass, itemsize);
    const std::vector<Selection> blocks = block_selections(pass.block_sizes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (options_.poll) options_.poll();
      if (!same_elements(wanted_.read(array.source, blocks[i], io_),
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

  const RechunkTree& tree_;
  const Store store_;
  const std::string path_;
  const RechunkOptions& options_;
  const std::string folder_;
  const bool is_archive_;
  const std::vector<PlannedArray> arrays_;
  std::unique_ptr<PrefixLock> lock_;  // before state_, which reads the notes
  RechunkState state_;
  ReadOptions io_;
  BlockMemory wanted_;
  BlockMemory got_{0};  // by verify
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

void rechunk(const Array& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options) {
  const RechunkTree tree = tree_of(source);
  Rechunk(tree, store, node_path(path), options).run();
}

void rechunk(const Group& source,
             const Store& store,
             std::string_view path,
             const RechunkOptions& options) {
  const RechunkTree tree = tree_of(source, options.left_out);
  Rechunk(tree, store, node_path(path), options).run();
}

bool rechunk_is_unfinished(const Store& store, std::string_view path) {
  return RechunkState::is_in(store, node_path(path));
}

}  // namespace headrace
