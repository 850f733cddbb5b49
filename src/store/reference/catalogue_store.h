#pragma once

// What the two stores of a catalogue share.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "store/reference/catalogue.h"
#include "store/store.h"

namespace headrace {

// What a store of a catalogue is whoever asks it: Base is StoreDriver or AsyncDriver.
template <typename Base>
class OfCatalogue : public Base {
 public:
  explicit OfCatalogue(std::shared_ptr<Catalogue> catalogue) : catalogue_(std::move(catalogue)) {}

  std::string url() const override { return catalogue_->url(); }
  bool read_only() const override { return true; }
  void set(std::string_view, ConstBytes) override { throw_read_only(url()); }
  void erase(std::string_view) override { throw_read_only(url()); }
  void erase_prefix(std::string_view) override { throw_read_only(url()); }
  std::vector<std::string> list(std::string_view prefix) override {
    return catalogue_->list(check_prefix(prefix));
  }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return catalogue_->list_dir(check_prefix(prefix));
  }
  // As the catalogue has them: millions are not looked at one by one.
  std::vector<ObjectSize> list_sizes(std::string_view prefix) override {
    std::vector<ObjectSize> objects;
    for (std::string& key : list(prefix)) objects.push_back({std::move(key)});
    parallel_for(objects.size(), [&](std::size_t i) {
      if (const auto nbytes = nbytes_of(objects[i].key)) {
        objects[i].nbytes = *nbytes;
      } else {
        objects[i].key.clear();
      }
    });
    std::erase_if(objects, [](const ObjectSize& object) { return object.key.empty(); });
    return objects;
  }
  std::string identity(std::string_view prefix) override {
    return catalogue_->identity() + '#' + std::string(prefix);
  }
  std::string lasting_name() override { return catalogue_->lasting_name(); }
  bool holds_only_keys() const override { return true; }

 protected:
  const std::shared_ptr<Catalogue> catalogue_;

 private:
  std::optional<std::uint64_t> nbytes_of(const std::string& key) {
    const std::optional<Whereabouts> where = catalogue_->find(key);
    if (!where) return std::nullopt;
    if (!where->store) return where->bytes.size();
    if (where->nbytes != Whereabouts::kWhole) return where->nbytes;
    const auto object = this->open(key);
    return object ? std::optional(object->size()) : std::nullopt;
  }
};

std::unique_ptr<ObjectReader> open_at(std::string_view key, Whereabouts where);
void get_at(std::string_view key, const Whereabouts& where, Buffer& into, std::uint64_t max_nbytes);
// `io`: a reference to an object that is not there is no missing chunk.
[[noreturn]] void throw_unreachable(std::string_view key, const Whereabouts& where);

std::shared_ptr<StoreDriver> make_remote_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                         const Coalescing& near);

}  // namespace headrace
