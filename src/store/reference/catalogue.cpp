// The blocking half: catalogues of what lies on this machine.

#include "store/reference/catalogue.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "headrace/error.h"
#include "store/reference/catalogue_store.h"

namespace headrace {

void throw_unreachable(std::string_view key, const Whereabouts& where) {
  throw Error(ErrorCode::io,
              std::string(key) + " leads to " + where.key + " of " + where.store->url() +
                  ", which is not there",
              ENOENT);
}

namespace {

class InlineReader : public ObjectReader {
 public:
  InlineReader(Whereabouts where, std::string key)
      : where_(std::move(where)), key_(std::move(key)) {}

  std::uint64_t size() const override { return where_.bytes.size(); }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(key_, size(), offset, dst.size());
    if (!dst.empty()) std::memcpy(dst.data(), where_.bytes.data() + offset, dst.size());
  }
  ConstBytes mapped() const override { return where_.bytes; }

 private:
  Whereabouts where_;
  std::string key_;
};

// A part of another object.
class PartReader : public ObjectReader {
 public:
  PartReader(std::unique_ptr<ObjectReader> whole,
             std::uint64_t offset,
             std::uint64_t nbytes,
             std::string key)
      : whole_(std::move(whole)), offset_(offset), nbytes_(nbytes), key_(std::move(key)) {
    check_object_range(key_, whole_->size(), offset_, nbytes_);
  }

  std::uint64_t size() const override { return nbytes_; }
  std::uint64_t version() const override {
    const std::uint64_t version = whole_->version();
    return version == 0 ? 0 : (version + offset_) | 1;
  }
  bool unchanged() const override { return whole_->unchanged(); }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(key_, nbytes_, offset, dst.size());
    whole_->read(offset_ + offset, dst);
  }
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    check_object_range(key_, nbytes_, offset, total_size(dsts));
    whole_->read_scattered(offset_ + offset, dsts);
  }
  void read_ranges(std::span<const RangeRead> reads) const override {
    std::vector<RangeRead> shifted(reads.begin(), reads.end());
    for (RangeRead& each : shifted) {
      check_object_range(key_, nbytes_, each.offset, each.dst.size());
      each.offset += offset_;
    }
    whole_->read_ranges(shifted);
  }
  ConstBytes mapped() const override {
    const ConstBytes all = whole_->mapped();
    return all.empty() ? all : all.subspan(offset_, nbytes_);
  }

 private:
  std::unique_ptr<ObjectReader> whole_;
  std::uint64_t offset_;
  std::uint64_t nbytes_;
  std::string key_;
};

class LocalCatalogueStore : public OfCatalogue<StoreDriver> {
 public:
  using OfCatalogue::OfCatalogue;

  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }
  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    check_key(key);
    const std::optional<Whereabouts> where = catalogue_->find(key);
    if (!where) return false;
    get_at(key, *where, into, max_nbytes);
    return true;
  }

  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    check_key(key);
    std::optional<Whereabouts> where = catalogue_->find(key);
    if (!where) return nullptr;
    return open_at(key, std::move(*where));
  }

  bool exists(std::string_view key) override {
    check_key(key);
    return catalogue_->exists(key);
  }
};

}  // namespace

std::unique_ptr<ObjectReader> open_at(std::string_view key, Whereabouts where) {
  if (!where.store) return std::make_unique<InlineReader>(std::move(where), std::string(key));
  std::unique_ptr<ObjectReader> whole = where.store->open(where.key);
  if (!whole) throw_unreachable(key, where);
  if (where.nbytes == Whereabouts::kWhole) return whole;
  return std::make_unique<PartReader>(
      std::move(whole), where.offset, where.nbytes, std::string(key));
}

void get_at(std::string_view key,
            const Whereabouts& where,
            Buffer& into,
            std::uint64_t max_nbytes) {
  if (!where.store) {
    check_object_nbytes(key, where.bytes.size(), max_nbytes);
    into.assign(where.bytes);
    return;
  }
  if (where.nbytes == Whereabouts::kWhole) {
    if (!where.store->get_within(where.key, into, max_nbytes)) throw_unreachable(key, where);
    return;
  }
  check_object_nbytes(key, where.nbytes, max_nbytes);
  // Looks at the size of the object before there is memory for so many bytes.
  const auto part = open_at(key, where);
  into.resize(checked_cast<std::size_t>(where.nbytes, "reference"));
  part->read(0, into.bytes());
}

std::shared_ptr<StoreDriver> make_catalogue_store(std::shared_ptr<Catalogue> catalogue,
                                                  const Coalescing& near) {
  if (!catalogue->may_be_remote()) {
    return std::make_shared<LocalCatalogueStore>(std::move(catalogue));
  }
  return make_remote_catalogue_store(std::move(catalogue), near);
}

}  // namespace headrace
