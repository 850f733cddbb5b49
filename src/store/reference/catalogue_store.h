#pragma once

// What the two stores of a catalogue share.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
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
  std::string identity(std::string_view prefix) override {
    return catalogue_->identity() + '#' + std::string(prefix);
  }
  bool holds_only_keys() const override { return true; }

 protected:
  const std::shared_ptr<Catalogue> catalogue_;
};

std::unique_ptr<ObjectReader> open_at(std::string_view key, Whereabouts where);
void get_at(std::string_view key, const Whereabouts& where, Buffer& into, std::uint64_t max_nbytes);
// `io`: a reference to an object that is not there is no missing chunk.
[[noreturn]] void throw_unreachable(std::string_view key, const Whereabouts& where);

std::shared_ptr<StoreDriver> make_remote_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                         const Coalescing& near);

}  // namespace headrace
