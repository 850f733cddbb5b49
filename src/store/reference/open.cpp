#include "store/reference/open.h"

#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/system.h"
#include "headrace/error.h"
#include "store/reference/catalogue.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/parquet_references.h"
#include "store/reference/place.h"
#include "store/reference/references.h"
#include "store/reference/targets.h"
#include "store/url.h"

namespace headrace {
namespace {

// What fsspec's file system of references knows besides, and what has no meaning here.
constexpr std::string_view kIgnored[] = {"asynchronous",
                                         "cache_size",
                                         "lazy",
                                         "simple_templates",
                                         "skip_instance_cache",
                                         "target_protocol",
                                         "use_listings_cache"};

class Options {
 public:
  // `url` as it is shown.
  Options(const StorageOptions& options, std::string url) : left_(options), url_(std::move(url)) {
    for (const std::string_view name : kIgnored) take(name);
  }

  std::string take(std::string_view name) {
    const auto at = left_.find(name);
    if (at == left_.end()) return {};
    std::string value = std::move(at->second);
    left_.erase(at);
    return value == "null" ? std::string() : value;
  }

  std::uint64_t take_number(std::string_view name, std::uint64_t otherwise) {
    const std::string text = take(name);
    if (text.empty()) return otherwise;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    throw Error(ErrorCode::invalid_argument,
                "store " + url_ + ": option " + std::string(name) + ": wanted a number, got \"" +
                    text + "\"");
  }

  void finish() const {
    if (left_.empty()) return;
    throw Error(ErrorCode::invalid_argument,
                "store " + url_ + ": option \"" + left_.begin()->first +
                    "\" means nothing to a reference store");
  }

 private:
  StorageOptions left_;
  std::string url_;
};

// An object from its first byte to its last.
JsonWindow::Source source_of_object(std::shared_ptr<const ObjectReader> object) {
  return [object = std::move(object), at = std::uint64_t{0}](MutableBytes into) mutable {
    const auto n =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), object->size() - at));
    object->read(at, into.first(n));
    at += n;
    return n;
  };
}

// What zstd makes of a small file at the most: of references tens of times its size.
constexpr std::uint64_t kUnpackedAnyway = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxRatio = 1000;

// What zstd makes of it: kerchunk's users compress large files.
class ZstdSource {
 public:
  explicit ZstdSource(JsonWindow::Source packed)
      : packed_(std::move(packed)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) throw Error(ErrorCode::out_of_memory, "zstd");
    input_.resize(ZSTD_DStreamInSize());
  }

  std::size_t operator()(MutableBytes into) {
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size) {
        in_ = {input_.data(), packed_(input_.bytes()), 0};
        taken_ += in_.size;
        if (in_.size == 0) {
          if (left_ != 0) throw Error(ErrorCode::corrupt, "the zstd data end in a frame");
          break;
        }
      }
      left_ = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(left_)) {
        throw Error(ErrorCode::corrupt, std::string("zstd: ") + ZSTD_getErrorName(left_));
      }
    }
    made_ += out.pos;
    if (made_ > kUnpackedAnyway && made_ / kMaxRatio > taken_) {
      throw Error(ErrorCode::corrupt, "the zstd data make a thousand times their size");
    }
    return out.pos;
  }

 private:
  JsonWindow::Source packed_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  Buffer input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t left_ = 0;  // of a frame that was begun
  std::uint64_t taken_ = 0;
  std::uint64_t made_ = 0;
};

JsonWindow::Source json_source(const Target& file, const std::string& name) {
  std::shared_ptr<const ObjectReader> object = file.store->open(file.key);
  if (!object) throw Error(ErrorCode::not_found, "there are no references " + name, ENOENT);
  std::byte magic[4] = {};
  if (object->size() >= sizeof magic) object->read(0, magic);
  JsonWindow::Source source = source_of_object(object);
  if (load_le<std::uint32_t>(magic) != ZSTD_MAGICNUMBER) return source;
  auto unpacked = std::make_shared<ZstdSource>(std::move(source));
  return [unpacked = std::move(unpacked)](MutableBytes into) { return (*unpacked)(into); };
}

// What the bytes of a source are told by, once they are read.
struct Digest {
  std::uint32_t crc = 0;
  std::uint64_t nbytes = 0;

  void add(ConstBytes bytes) {
    crc = crc32c_after(crc, bytes);
    nbytes += bytes.size();
  }
};

JsonWindow::Source digested(JsonWindow::Source source, Digest& digest) {
  return [source = std::move(source), &digest](MutableBytes into) {
    const std::size_t n = source(into);
    digest.add(into.first(n));
    return n;
  };
}

class ReferenceCatalogue : public Catalogue {
 public:
  ReferenceCatalogue(std::string url,
                     const Digest& digest,
                     std::unique_ptr<References> references,
                     TargetRules rules,
                     std::string target)
      : url_(std::move(url)),
        lasting_name_(url_ + '#' + std::to_string(digest.nbytes) + '-' +
                      std::to_string(digest.crc)),
        references_(std::move(references)),
        remote_protocol_(is_remote_url(rules.protocol + "://")),
        remote_home_(is_remote_url(rules.home)),
        targets_(std::move(rules)),
        target_(std::move(target)) {}

  std::string url() const override { return url_; }
  std::string identity() const override { return url_; }
  std::string lasting_name() const override { return lasting_name_; }
  bool may_be_remote() const override {
    if (!targets_.may_be_remote() && !remote_protocol_) return false;
    // What is relative is so to the home.
    return remote_protocol_ || remote_home_ || is_remote_url(target_) ||
           references_->has_remote_urls().value_or(true);
  }

  std::optional<Whereabouts> find(std::string_view key) override {
    std::optional<Reference> reference = references_->find(key);
    if (!reference) return std::nullopt;
    Whereabouts where;
    if (reference->is_inline) {
      where.bytes = reference->bytes;
      where.owner = std::move(reference->owner);
      return where;
    }
    try {
      Target target = targets_.open(reference->url.empty() ? target_ : reference->url);
      where.store = std::move(target.store);
      where.key = std::move(target.key);
    } catch (const Error& error) {
      throw error.with_context(url_ + ": " + std::string(key));
    }
    where.offset = reference->offset;
    where.nbytes = reference->nbytes;
    return where;
  }
  bool exists(std::string_view key) override { return references_->find(key).has_value(); }
  std::vector<std::string> list(std::string_view prefix) override {
    return references_->list(prefix);
  }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return references_->list_dir(prefix);
  }

 private:
  std::string url_;
  std::string lasting_name_;
  std::unique_ptr<References> references_;
  bool remote_protocol_;
  bool remote_home_;
  Targets targets_;
  std::string target_;
};

bool is_folder(const std::string& path) {
  struct stat st;
  return !path.empty() && os().stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool is_of_web(std::string_view place) {
  const std::string scheme = scheme_of_url(place);
  return scheme == "http" || scheme == "https";
}

bool names_parquet(std::string_view place) {
  return place.ends_with('/') || place.ends_with(".parq") || place.ends_with(".parquet");
}

}  // namespace

std::shared_ptr<StoreDriver> open_reference_store(std::string_view url,
                                                  StoreMode mode,
                                                  const StorageOptions& options) {
  const std::string shown_url = shown_place(url);
  if (mode != StoreMode::read) throw_read_only(shown_url);
  Options given(options, shown_url);
  std::string file(url.substr(url.find("://") + 3));
  if (file.find("://") == std::string::npos) file = percent_decode(file);
  const std::string fo = given.take("fo");
  if (!fo.empty() && !file.empty() && file != "/") {
    throw Error(ErrorCode::invalid_argument,
                "store " + shown_url + ": has a path, and the option \"fo\" another one");
  }
  if (!fo.empty()) file = fo;
  if (file.empty() || file == "/") {
    throw Error(ErrorCode::invalid_argument,
                "store " + shown_url +
                    ": wants a file of references, as in reference:///data/refs.json, or the "
                    "option \"fo\"");
  }
  const StorageOptions file_options =
      options_of_json(given.take("target_options"), "target_options");
  TargetRules rules;
  rules.allow = parse_allow(given.take("allow"));
  rules.protocol = given.take("remote_protocol");
  rules.options = options_of_json(given.take("remote_options"), "remote_options");
  Templates overrides;
  const std::string override_text = given.take("template_overrides");
  if (!override_text.empty()) {
    JsonWindow json(source_of(override_text), "template_overrides");
    overrides = read_templates(json);
  }
  std::string target = given.take("target");
  Coalescing near = kNearReferences;
  near.gap = given.take_number("max_gap", near.gap);
  near.run = given.take_number("max_block", near.run);
  given.finish();

  // Of all that says where the bytes of a key are, but for what a folder of Parquet has: that is
  // read as it is needed.
  Digest digest;
  for (const std::string& text : {override_text, rules.protocol, target}) {
    digest.add(bytes_of(text));
    digest.add(bytes_of(std::string_view("\n")));
  }
  std::string name;
  std::unique_ptr<References> references;
  if (file.starts_with('{')) {
    name = "reference://";
    references = references_of(
        read_kerchunk_json(digested(source_of(file), digest), "references", overrides));
  } else {
    const std::string path = local_path(file);
    const std::string place = path.empty() ? file : path;
    const std::string shown = shown_place(place);
    if (is_of_web(file) && file.find('?') != std::string::npos) {
      throw Error(ErrorCode::invalid_argument,
                  "store reference://" + shown +
                      ": what stands behind \"?\" is given as target_options={\"query\": ...}, and "
                      "that of what the references lead to by remote_options");
    }
    name = "reference://" + (path.empty() ? shown : percent_encode_path(path));
    rules.home = folder_of(place);
    if (is_folder(path) || (path.empty() && names_parquet(file))) {
      references = open_parquet_references(place, file_options);
    } else {
      const Target object = open_object(place, file_options);
      references = references_of(
          read_kerchunk_json(digested(json_source(object, shown), digest), shown, overrides));
    }
  }
  return make_catalogue_store(
      std::make_shared<ReferenceCatalogue>(
          std::move(name), digest, std::move(references), std::move(rules), std::move(target)),
      near);
}

}  // namespace headrace
