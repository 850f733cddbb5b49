#include "engine/rechunk/state.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "engine/node/catalog.h"
#include "format/json.h"

namespace headrace {
namespace {

constexpr auto kSaveInterval = std::chrono::milliseconds(500);
// At most this part of the time goes into notes, where the disk is slow to sync.
constexpr int kSaveShare = 20;
// Bounds what a damaged document makes us allocate.
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 28;

std::string key_of(const std::string& folder) { return folder + "/progress.json"; }
std::string last_key_of(const std::string& folder) { return folder + ".json"; }

std::size_t count_of(const Json& json) {
  const std::int64_t value = json.integer();
  if (value < 0 || value > kMaxBlocks) json.fail(ErrorCode::corrupt, "out of range");
  return static_cast<std::size_t>(value);
}

}  // namespace

std::string RechunkState::folder_of(const std::string& path) { return join_key(path, kName); }

bool RechunkState::is_in(const Store& store, const std::string& path) {
  try {
    return store.exists(key_of(folder_of(path))) || store.exists(last_key_of(folder_of(path)));
  } catch (const Error& e) {
    // What a bucket says of a missing object to who may not list it.
    if (e.code() != ErrorCode::permission_denied) throw;
    return false;
  }
}

RechunkState::RechunkState(Store store, std::string folder, std::string arguments, bool kept)
    : store_(std::move(store)),
      folder_(std::move(folder)),
      key_(key_of(folder_)),
      last_key_(last_key_of(folder_)),
      arguments_(json_compact(arguments)),
      kept_(kept) {
  if (!kept_) return;
  auto document = read_document(store_, key_);
  if (!document) document = read_document(store_, last_key_);
  if (document) load(*document);
}

void RechunkState::load(const std::string& document) {
  const JsonObject json(Json::parse(document, key_));
  found_ = true;
  found_arguments_ = json.at("arguments").compact();
  array_ = count_of(json.at("array"));
  pass_ = count_of(json.at("pass"));
  for (const Json& range : json.at("done").items()) {
    const std::vector<Json> ends = range.items();
    if (ends.size() != 2) range.fail(ErrorCode::corrupt, "expected two numbers");
    const std::size_t stop = count_of(ends[1]);
    if (stop > done_.size()) done_.resize(stop);
    for (std::size_t block = count_of(ends[0]); block < stop; ++block) done_[block] = true;
  }
}

std::vector<std::string> RechunkState::other_arguments() const {
  std::vector<std::string> names;
  if (same_arguments()) return names;
  const JsonObject found(Json::parse(found_arguments_, key_));
  const JsonObject given(Json::parse(arguments_, "arguments"));
  for (const auto& [name, value] : given.members()) {
    const std::optional<Json> other = found.find(name);
    if (!other || other->text() != value.text()) names.push_back(name);
  }
  return names;
}

std::string RechunkState::document() const {
  std::string done;
  for (std::size_t block = 0; block < done_.size(); ++block) {
    if (!done_[block]) continue;
    const std::size_t start = block;
    while (block < done_.size() && done_[block]) ++block;
    done +=
        (done.empty() ? "[" : ", [") + std::to_string(start) + ", " + std::to_string(block) + ']';
  }
  return "{\"arguments\": " + arguments_ + ", \"array\": " + std::to_string(array_) +
         ", \"pass\": " + std::to_string(pass_) + ", \"done\": [" + done + "]}\n";
}

void RechunkState::finish_block(std::size_t block) {
  if (block >= done_.size()) done_.resize(block + 1);
  done_[block] = true;
  if (std::chrono::steady_clock::now() >= next_save_) save();
}

void RechunkState::begin(std::size_t array, std::size_t pass) {
  array_ = array;
  pass_ = pass;
  done_.clear();
  save();
}

// What a note calls done is on the disk before the note is: what goes on from it after a power cut
// reads none of it again. The store writes such notes through to the disk, too.
void RechunkState::save() {
  if (!kept_) return;
  const auto start = std::chrono::steady_clock::now();
  store_.sync();
  store_.set(key_, bytes_of(document()));
  const auto end = std::chrono::steady_clock::now();
  next_save_ = end + std::max<std::chrono::steady_clock::duration>(kSaveInterval,
                                                                   kSaveShare * (end - start));
}

// One object is the last to go: a folder would be left without what was in it.
void RechunkState::remove() {
  if (kept_) {
    store_.set(last_key_, bytes_of(document()));
    store_.erase_prefix(folder_ + '/');
    store_.erase(last_key_);
  }
  array_ = pass_ = 0;
  done_.clear();
  found_ = false;
}

void RechunkState::forget() {
  if (!kept_) return;
  store_.erase(key_);
  store_.erase(last_key_);
}

}  // namespace headrace
