// Objects of one store to another.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/copy_source.h"
#include "store/overlap.h"
#include "store/store.h"

namespace headrace {
namespace {

constexpr auto kTellEvery = std::chrono::milliseconds(100);

// "a/b" to "a/b/".
std::string folder_of(std::string_view prefix) {
  std::string folder(check_prefix(prefix));
  if (!folder.empty()) folder += '/';
  return folder;
}

bool is_same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

class Copy {
 public:
  Copy(const Store& from,
       std::string_view from_prefix,
       const std::function<Store()>& open_to,
       std::string_view to_prefix,
       const CopyOptions& options)
      : from_(from.driver()),
        from_folder_(folder_of(from_prefix)),
        to_folder_(folder_of(to_prefix)),
        options_(options),
        source_(from_, check_prefix(from_prefix), options.memory_nbytes) {
    if (objects_.empty()) {
      throw Error(ErrorCode::not_found,
                  "copy of " + from.url() + ": there is no object" +
                      (from_folder_.empty() ? "" : " below \"" + from_folder_ + '"') +
                      (source_.left_out().objects > 0
                           ? " whose key is a path (one is \"" + source_.left_out().first + "\")"
                           : ", as in a place whose name is wrong"));
    }
    const Store to = open_to();
    to_ = to.shared_driver();
    if (places_overlap(from, check_prefix(from_prefix), to, check_prefix(to_prefix))) {
      throw Error(ErrorCode::invalid_argument,
                  "copy of " + from.url() + " to " + to.url() + ": one lies within the other");
    }
    if (to_->read_only()) throw_read_only(to_->url());
    if (options.over != CopyOver::everything || options.remove_others) {
      for (ObjectSize& object : to_->list_sizes(check_prefix(to_prefix)))
        present_.emplace(object.key, std::move(object));
    }
    if (!options.remove_others) refuse_others_in_nodes(check_prefix(to_prefix));
    const MutexLock lock(mutex_);
    progress_.left_out = source_.left_out();
    progress_.objects = objects_.size();
    for (const ObjectSize& object : objects_) progress_.nbytes += object.nbytes;
  }

  CopyProgress run() {
    const std::span objects(objects_);
    copy_those_there(objects.first(source_.first_document()));
    copy_those_there(objects.subspan(source_.first_document()));
    if (options_.remove_others) remove_others();
    to_->sync();
    const CopyProgress done = progress();
    if (options_.progress) options_.progress(done);
    return done;
  }

 private:
  // False: it is gone. `held_nbytes` is what this thread holds of the memory.
  bool get(const std::string& key, Buffer& bytes, std::uint64_t& held_nbytes) {
    constexpr int kTries = 4;
    for (int i = 0;; ++i) {
      try {
        return source_.get(key, bytes, held_nbytes);
      } catch (const Error& error) {
        if (!is_too_large(error)) throw;
        bytes.reset();
        // It has grown since it was listed, or the list is wrong.
        const auto object = from_.open(key);
        if (!object) return false;
        const std::uint64_t nbytes = object->size();
        if (i + 1 == kTries || nbytes <= held_nbytes)
          throw error.with_context("copy of " + from_.url() +
                                   ": an object is larger than the store says");
        hold(nbytes, held_nbytes);
      }
    }
  }

  // What was listed and is not found was removed meanwhile, unless the store still lists it: then
  // the copy would lack it in silence.
  void copy_those_there(std::span<const ObjectSize> objects) {
    copy_all(objects);
    // Once more, as what was written anew by removing it first.
    const std::vector<ObjectSize> again = still_listed();
    if (again.empty()) return;
    copy_all(again);
    const std::vector<ObjectSize> missing = still_listed();
    if (missing.empty()) return;
    const bool is_one = missing.size() == 1;
    throw Error(ErrorCode::io,
                "copy of " + from_.url() + ": " + std::to_string(missing.size()) +
                    (is_one ? " object is" : " objects are") +
                    " listed and not found when read (first: " + missing[0].key + ')');
  }

  // A chunk that is gone reads as the fill value in the copy, too; so does all of an array that was
  // removed, or whose disk went away, and whose document had been copied or is copied from memory.
  void check_nodes_are_there(const std::set<std::string, std::less<>>& keys) const {
    for (const ObjectSize& object : std::span(objects_).subspan(source_.first_document())) {
      if (keys.contains(object.key)) continue;
      throw Error(ErrorCode::not_found,
                  "copy of " + from_.url() + ": " + object.key +
                      " is not there any more: it was removed while it was copied");
    }
  }

  // Of those that were not found by copy_all(), sorted; the others are gone.
  std::vector<ObjectSize> still_listed() {
    std::vector<ObjectSize> missing;
    {
      const MutexLock lock(mutex_);
      missing = std::exchange(missing_, {});
    }
    if (missing.empty()) return missing;
    std::set<std::string, std::less<>> keys;
    for (std::string& key : from_.list(check_prefix(from_folder_))) keys.insert(std::move(key));
    std::ranges::sort(missing, {}, &ObjectSize::key);
    const bool is_one_gone = std::ranges::any_of(
        missing, [&](const ObjectSize& object) { return !keys.contains(object.key); });
    if (is_one_gone) check_nodes_are_there(keys);
    const MutexLock lock(mutex_);
    for (const ObjectSize& object : missing) {
      if (keys.contains(object.key)) {
        --progress_.done;
        progress_.done_nbytes -= object.nbytes;
      } else if (progress_.gone.objects++ == 0) {
        progress_.gone.first = object.key;
      }
    }
    std::erase_if(missing, [&](const ObjectSize& object) { return !keys.contains(object.key); });
    return missing;
  }

  // By threads of its own: they wait for stores, not for processors.
  void copy_all(std::span<const ObjectSize> objects) {
    std::vector<std::thread> threads;
    const std::size_t n = std::min<std::size_t>(std::max(options_.at_once, 1), objects.size());
    {
      const MutexLock lock(mutex_);
      waiting_ = objects;
      running_ = n;
    }
    try {
      for (std::size_t i = 0; i < n; ++i) threads.push_back(start_thread([this] { work(); }));
      wait();
    } catch (...) {
      {
        const MutexLock lock(mutex_);
        running_ -= n - threads.size();
      }
      fail(std::current_exception());
    }
    for (std::thread& thread : threads) thread.join();
    const MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  // Tells of the progress until all threads are done, or the caller wants no more.
  void wait() {
    const auto* const interrupt = current_interrupt();
    while (true) {
      {
        const MutexLock lock(mutex_);
        if (running_ == 0 || failure_) return;
        changed_.wait_for(mutex_, kTellEvery);
      }
      if (interrupt != nullptr) (*interrupt)();
      if (options_.progress) options_.progress(progress());
    }
  }

  void work() {
    const InterruptScope scope([this] {
      const MutexLock lock(mutex_);
      if (failure_) throw Error(ErrorCode::cancelled, "the copy has ended by an error");
    });
    try {
      Buffer bytes, other;
      while (const ObjectSize* object = take()) {
        std::uint64_t held_nbytes = object->nbytes;
        const bool copied = copy(*object, bytes, other, held_nbytes);
        const std::uint64_t nbytes = bytes.size();
        bytes.reset();
        other.reset();
        give_back(*object, held_nbytes, copied, nbytes);
      }
    } catch (...) {
      fail(std::current_exception());
    }
    const MutexLock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  // The next one, when there is room for it; null: nothing is left to do.
  const ObjectSize* take() {
    const MutexLock lock(mutex_);
    while (!failure_ && !waiting_.empty() && !has_room(waiting_[0].nbytes)) changed_.wait(mutex_);
    if (failure_ || waiting_.empty()) return nullptr;
    const ObjectSize* object = waiting_.data();
    waiting_ = waiting_.subspan(1);
    held_nbytes_ += object->nbytes;
    return object;
  }

  // One object has room, however large.
  bool has_room(std::uint64_t nbytes) const REQUIRES(mutex_) {
    return held_nbytes_ == 0 || (held_nbytes_ <= options_.memory_nbytes &&
                                 nbytes <= options_.memory_nbytes - held_nbytes_);
  }

  // Another number of bytes in the place of those that this thread holds, which it gives back
  // before it waits: no two wait for each other.
  void hold(std::uint64_t nbytes, std::uint64_t& held_nbytes) {
    const MutexLock lock(mutex_);
    held_nbytes_ -= std::exchange(held_nbytes, 0);
    changed_.notify_all();
    while (!failure_ && !has_room(nbytes)) changed_.wait(mutex_);
    if (failure_) throw Error(ErrorCode::cancelled, "the copy has ended by an error");
    held_nbytes_ += nbytes;
    held_nbytes = nbytes;
  }

  // `nbytes` is what it has, which the list need not know.
  void give_back(const ObjectSize& object,
                 std::uint64_t held_nbytes,
                 bool copied,
                 std::uint64_t nbytes) {
    const MutexLock lock(mutex_);
    held_nbytes_ -= held_nbytes;
    ++progress_.done;
    progress_.done_nbytes += object.nbytes;
    if (copied) {
      ++progress_.copied;
      progress_.copied_nbytes += nbytes;
    }
    changed_.notify_all();
  }

  bool copy(const ObjectSize& object, Buffer& bytes, Buffer& other, std::uint64_t& held_nbytes) {
    const std::string target = target_of(object.key);
    const auto present = present_.find(target);
    const Same same = present == present_.end() ? Same::no : compare(object, present->second);
    if (same == Same::yes) return false;
    if (!get(object.key, bytes, held_nbytes)) {
      const MutexLock lock(mutex_);
      missing_.push_back(object);
      return false;
    }
    if (same == Same::by_bytes && has(target, bytes, other)) return false;
    to_->set(target, bytes);
    if (options_.verify && !has(target, bytes, other)) {
      throw Error(ErrorCode::corrupt,
                  to_->url() + ": " + target + " is not what was written when it is read back");
    }
    return true;
  }

  // Whether what the target has is what the source has, as far as the lists tell.
  enum class Same { no, yes, by_bytes };
  Same compare(const ObjectSize& object, const ObjectSize& present) const {
    if (options_.over == CopyOver::everything || object.nbytes != present.nbytes) return Same::no;
    // A document says other things in as many bytes: "shape": [100], [200].
    if (options_.over == CopyOver::other_bytes || names_metadata(object.key)) return Same::by_bytes;
    if (options_.over == CopyOver::other_size) return Same::yes;
    if (!object.written || !present.written) return Same::by_bytes;
    return present.written->earliest > object.written->latest ? Same::yes : Same::no;
  }

  // Whether the target has these bytes by now.
  bool has(const std::string& target, const Buffer& bytes, Buffer& other) {
    try {
      return to_->get_latest(target, other, bytes.size()) && is_same(bytes, other);
    } catch (const Error& error) {
      if (!is_too_large(error)) throw;
      return false;
    }
  }

  // Chunks of what was there would be elements of the array that is copied onto it, and documents,
  // of another format or consolidated, would be read in place of those that are copied.
  void refuse_others_in_nodes(std::string_view to_prefix) {
    if (!source_.has_documents()) return;
    std::size_t n = 0;
    std::string first;
    for_each_present(to_prefix, [&](const std::string& key) {
      if (source_.has(source_of(key))) return;
      if (!is_document_of_copied_node(key) && !is_in_copied_array(key)) return;
      if (n++ == 0) first = key;
    });
    if (n == 0) return;
    throw Error(ErrorCode::invalid_argument,
                "copy of " + from_.url() + " to " + to_->url() +
                    ": in the folders of nodes that are copied the destination has " +
                    std::to_string(n) + (n == 1 ? " object" : " objects") +
                    " that the source lacks (first: " + first +
                    "), which would be read as parts of the copy; \"sync --delete\" removes them");
  }

  bool is_document_of_copied_node(const std::string& target) const {
    return names_metadata(target) &&
           source_.is_node(source_of(target.substr(0, target.rfind('/') + 1)));
  }

  template <typename Visit>
  void for_each_present(std::string_view to_prefix, Visit visit) {
    if (options_.over != CopyOver::everything) {
      for (const auto& [key, object] : present_) visit(key);
      return;
    }
    std::vector<std::string> keys;
    try {
      keys = to_->list(to_prefix);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;  // a store that cannot list
    }
    for (const std::string& key : keys) visit(key);
  }

  bool is_in_copied_array(const std::string& target) {
    std::size_t end = to_folder_.size();
    while (true) {
      const std::string folder = target.substr(0, end);  // with its slash
      auto known = is_array_.find(folder);
      if (known == is_array_.end())
        known = is_array_.emplace(folder, source_.is_array(source_of(folder))).first;
      if (known->second) return true;
      const std::size_t slash = target.find('/', end);
      if (slash == std::string::npos) return false;
      end = slash + 1;
    }
  }

  void remove_others() {
    std::set<std::string, std::less<>> wanted;
    for (const std::string& key : source_.appeared()) wanted.insert(target_of(key));
    for (const ObjectSize& object : objects_) wanted.insert(target_of(object.key));
    std::set<std::string> others;
    for (const auto& [key, object] : present_) {
      if (wanted.contains(key)) continue;
      const std::string link = link_above(key);
      if (link.empty()) {
        others.insert(key);
      } else if (const auto at = wanted.lower_bound(link + '/');
                 at == wanted.end() || !at->starts_with(link + '/')) {
        others.insert(link);
      }
    }
    // Documents that describe nodes first: no array is seen without its chunks.
    for (const bool documents : {true, false}) {
      for (const std::string& name : others) {
        if (names_metadata(name) != documents) continue;
        to_->erase(name);
        const MutexLock lock(mutex_);
        ++progress_.removed;
      }
    }
  }

  // The outermost link that an object of the target lies behind, or "": what that leads to is not
  // the target's to remove.
  std::string link_above(const std::string& key) {
    for (std::size_t slash = key.find('/', to_folder_.size()); slash != std::string::npos;
         slash = key.find('/', slash + 1)) {
      const std::string folder = key.substr(0, slash);
      auto known = is_link_.find(folder);
      if (known == is_link_.end()) known = is_link_.emplace(folder, to_->is_link(folder)).first;
      if (known->second) return folder;
    }
    return {};
  }

  std::string target_of(const std::string& key) const {
    return to_folder_ + key.substr(from_folder_.size());
  }
  std::string source_of(const std::string& target) const {
    return from_folder_ + target.substr(to_folder_.size());
  }

  void fail(std::exception_ptr failure) {
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }

  CopyProgress progress() {
    const MutexLock lock(mutex_);
    return progress_;
  }

  StoreDriver& from_;
  std::shared_ptr<StoreDriver> to_;  // opened when the source has been found
  const std::string from_folder_, to_folder_;
  const CopyOptions& options_;
  const CopySource source_;
  const std::vector<ObjectSize>& objects_ = source_.objects();
  std::map<std::string, ObjectSize> present_;  // in the target; not changed while threads run
  std::map<std::string, bool> is_link_;        // folders of the target
  std::map<std::string, bool> is_array_;       // likewise, by what is copied

  Mutex mutex_;
  ConditionVariable changed_;
  std::span<const ObjectSize> waiting_ GUARDED_BY(mutex_);
  std::vector<ObjectSize> missing_ GUARDED_BY(mutex_);  // that were listed and not found
  std::size_t running_ GUARDED_BY(mutex_) = 0;
  std::uint64_t held_nbytes_ GUARDED_BY(mutex_) = 0;
  CopyProgress progress_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
};

}  // namespace

CopyProgress copy_objects(const Store& from,
                          std::string_view from_prefix,
                          const Store& to,
                          std::string_view to_prefix,
                          const CopyOptions& options) {
  return copy_objects(
      from, from_prefix, [&] { return to; }, to_prefix, options);
}

CopyProgress copy_objects(const Store& from,
                          std::string_view from_prefix,
                          const std::function<Store()>& open_to,
                          std::string_view to_prefix,
                          const CopyOptions& options) {
  return Copy(from, from_prefix, open_to, to_prefix, options).run();
}

}  // namespace headrace
