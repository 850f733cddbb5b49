#pragma once

// What a rechunk has done so far, as the small JSON document ".rechunk/progress.json" beside the
// nodes that it writes, and ".rechunk.json" while that folder is removed:
//   {"arguments": {...}, "array": 2, "pass": 0, "done": [[0, 17], [19, 20]]}
// Arrays are taken in turn, each pass by pass; `done` are ranges of the blocks of the one in work.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "headrace/store.h"

namespace headrace {

class RechunkState {
 public:
  static constexpr const char* kName = ".rechunk";           // of the folder
  static constexpr const char* kLastName = ".rechunk.json";  // of the document, at the end
  static std::string folder_of(const std::string& path);     // of the node that is written
  static bool is_in(const Store& store, const std::string& path);

  // What is in the store under `folder`, or a beginning. `kept` false: in memory only.
  RechunkState(Store store, std::string folder, std::string arguments, bool kept);

  // Whether somebody began there; then whether with the same arguments.
  bool found() const { return found_; }
  bool same_arguments() const { return !found_ || found_arguments_ == arguments_; }
  std::vector<std::string> other_arguments() const;  // the names of those that are not the same

  std::size_t array() const { return array_; }
  std::size_t pass() const { return pass_; }
  bool is_done(std::size_t block) const { return block < done_.size() && done_[block]; }

  // Writes the document at most twice a second, after what it calls done is on the disk: what was
  // done since is done again after a kill or a power cut.
  void finish_block(std::size_t block);
  void begin(std::size_t array, std::size_t pass);  // with no block done
  void save();
  // Forgets all, the document and whatever else is in the folder. Until the last of it is gone the
  // same call finds all done.
  void remove();
  // Takes the document away, for good: what it calls done is about to be removed.
  void forget();

 private:
  void load(const std::string& document);
  std::string document() const;

  const Store store_;
  const std::string folder_;
  const std::string key_;
  const std::string last_key_;
  const std::string arguments_;  // JSON
  const bool kept_;
  bool found_ = false;
  std::string found_arguments_;
  std::size_t array_ = 0;
  std::size_t pass_ = 0;
  std::vector<bool> done_;
  std::chrono::steady_clock::time_point next_save_{};
};

}  // namespace headrace
