#include "store/copy_source.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/interrupt.h"
#include "base/json_scan.h"
#include "base/limits.h"
#include "headrace/error.h"
#include "store/left_out.h"

namespace headrace {
namespace {

bool tells_of_size(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return is_too_large(e);
  } catch (...) {
    return false;
  }
}

// Whether a zarr.json is of an array; of a malformed one nobody reads chunks.
bool describes_array(std::string_view document) {
  JsonScanner json(document, "zarr.json");
  try {
    json.expect('{', "an object");
    do {
      json.skip_space();
      if (json.peek() != '"') return false;
      const std::string_view name = json.scan_string();
      json.expect(':', "':'");
      const std::string_view value = json.scan_value();
      if (name == "\"node_type\"") return value == "\"array\"";
    } while (json.next_element('}'));
  } catch (const Error&) {
  }
  return false;
}

}  // namespace

CopySource::CopySource(StoreDriver& store, std::string_view prefix, std::uint64_t memory_nbytes)
    : store_(store) {
  const auto is_document = [](const ObjectSize& object) { return names_metadata(object.key); };
  std::vector<ObjectSize> documents = [&] {
    const LeftOutScope scope(left_out_);
    return store_.list_sizes(prefix);
  }();
  if (std::ranges::none_of(documents, is_document)) {
    objects_ = std::move(documents);
    first_document_ = objects_.size();
    return;
  }
  std::erase_if(documents, std::not_fn(is_document));
  read_documents(documents, memory_nbytes);
  objects_ = store_.list_sizes(prefix);
  std::set<std::string_view> known, present;
  for (const ObjectSize& document : documents) known.insert(document.key);
  std::erase_if(objects_, [&](const ObjectSize& object) {
    if (!is_document(object)) return false;
    if (const auto at = known.find(object.key); at != known.end()) {
      present.insert(*at);
    } else {
      appeared_.insert(object.key);
    }
    return true;
  });
  first_document_ = objects_.size();
  for (ObjectSize& document : documents)
    if (present.contains(document.key)) objects_.push_back(document);
}

// As far as there is room for them, which others are not held by then.
void CopySource::read_documents(std::span<const ObjectSize> documents,
                                std::uint64_t memory_nbytes) {
  std::uint64_t nbytes = 0;
  std::vector<GetRequest> requests;
  for (const ObjectSize& document : documents) {
    if (document.nbytes > memory_nbytes - nbytes) continue;
    nbytes += document.nbytes;
    GetRequest& request = requests.emplace_back();
    request.key = document.key;
    request.into = &documents_[document.key].emplace();
    request.max_nbytes = document.nbytes;
  }
  constexpr std::size_t kAtOnce = 256;
  const auto* const interrupt = current_interrupt();
  for (std::size_t i = 0; i < requests.size(); i += kAtOnce) {
    if (interrupt != nullptr) (*interrupt)();
    store_.get_many(std::span(requests).subspan(i, std::min(kAtOnce, requests.size() - i)));
  }
  for (GetRequest& request : requests) {
    if (request.error && tells_of_size(request.error)) {
      nbytes += read_grown(request, memory_nbytes - nbytes);
      continue;
    }
    if (request.error) std::rethrow_exception(request.error);
    if (!request.found) documents_[request.key].reset();
  }
}

// A document that has grown since it was listed, as far as there is room; else it is read in its
// turn. How much more it has.
std::uint64_t CopySource::read_grown(const GetRequest& request, std::uint64_t room) {
  std::optional<Buffer>& document = documents_[request.key];
  try {
    if (!store_.get_within(request.key, *document, request.max_nbytes + room)) document.reset();
  } catch (const Error& error) {
    if (!is_too_large(error)) throw;
    documents_.erase(request.key);
    return 0;
  }
  const std::uint64_t nbytes = document ? document->size() : 0;
  return nbytes > request.max_nbytes ? nbytes - request.max_nbytes : 0;
}

bool CopySource::has(const std::string& key) const {
  const auto documents = objects_.begin() + static_cast<std::ptrdiff_t>(first_document_);
  const auto is_in = [&](auto begin, auto end) {
    const auto at = std::ranges::lower_bound(begin, end, key, {}, &ObjectSize::key);
    return at != end && at->key == key;
  };
  return is_in(objects_.begin(), documents) || is_in(documents, objects_.end()) ||
         appeared_.contains(key);
}

bool CopySource::is_node(const std::string& folder) const {
  return std::ranges::any_of(
      kMetadataNames, [&](std::string_view name) { return has(folder + std::string(name)); });
}

bool CopySource::is_array(const std::string& folder) const {
  if (has(folder + ".zarray")) return true;
  const std::string key = folder + "zarr.json";
  Buffer document;
  return has(key) && get(key, document, kMaxDocumentNbytes) && describes_array(text_of(document));
}

bool CopySource::get(const std::string& key, Buffer& bytes, std::uint64_t max_nbytes) const {
  const auto document = documents_.find(key);
  if (document == documents_.end()) return store_.get_within(key, bytes, max_nbytes);
  if (document->second) bytes.assign(*document->second);
  return document->second.has_value();
}

}  // namespace headrace
