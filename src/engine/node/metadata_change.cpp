#include "engine/node/metadata_change.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "format/json.h"

namespace headrace {
NodeChange::NodeChange(const char* call,
                       const Store& store,
                       const std::string& path,
                       NodeType type,
                       int zarr_format,
                       const std::function<void()>& poll,
                       const NodeDocuments* given)
    : call_(call), store_(store), path_(path), lock_(store, path, poll) {
  const bool versioned = !excludes_processes() && store.driver().write_conditions().version;
  if (auto found = find_latest(store, path, type, zarr_format, versioned ? &versions_ : nullptr)) {
    documents_ = std::move(*found);
  } else if (given) {
    is_stored_ = false;
    documents_ = *given;
  } else {
    throw Error(ErrorCode::not_found,
                std::string("[") + call + "] " + place_of(store, path) + ": there is no " +
                    (type == NodeType::array ? "array" : "group") +
                    " any more; it was removed since it was opened");
  }
}

void NodeChange::throw_conflict() const {
  throw Error(ErrorCode::conflict,
              std::string("[") + call_ + "] " + place_of(store_, path_) +
                  ": another writer changed the metadata meanwhile, and the store has no lock that "
                  "holds it off");
}

bool NodeChange::is_current() const {
  const auto found = find_latest(store_, path_, documents_.type, documents_.zarr_format);
  if (!found) return !is_stored_;
  return is_stored_ && found->document == documents_.document &&
         found->attributes == documents_.attributes;
}

void NodeChange::check_unchanged() const {
  if (!is_current()) throw_conflict();
}

bool NodeChange::replaces_on_condition() const {
  if (excludes_processes()) return false;
  const WriteConditions known = store_.driver().write_conditions();
  // Of what was read a store that tells versions told one.
  const bool told = (!is_stored_ || !versions_.document.empty()) &&
                    (!versions_.has_attributes || !versions_.attributes.empty());
  return known.version && known.missing && told;
}

// False: the server does not know the condition.
bool NodeChange::replace(const char* name,
                         const std::string& text,
                         bool is_there,
                         std::string& version) {
  const std::string key = join_key(path_, name);
  const ConstBytes bytes = bytes_of(text);
  const std::string where = std::string("[") + call_ + "] " + place_of(store_, path_);
  try {
    version = store_.driver().set_if(
        key,
        {&bytes, 1},
        is_there ? WriteCondition::if_version(version) : WriteCondition::if_missing());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::conflict) {
      throw Forestalled(error.code(),
                        where + ": another writer changed the metadata meanwhile: " + error.what());
    }
    if (is_in_doubt(error)) {
      throw InDoubt(error.code(), where + ": " + error.what(), error.os_error());
    }
    if (error.code() == ErrorCode::unsupported) return false;
    throw;
  }
  if (version.empty() && read_latest(store_, key, &version) != text) throw_conflict();
  return true;
}

bool NodeChange::store_on_condition(const std::string& document, const std::string& attributes) {
  if (documents_.zarr_format == 2 && (!is_stored_ || attributes != documents_.attributes)) {
    if (!replace(".zattrs", attributes, versions_.has_attributes, versions_.attributes))
      return false;
    versions_.has_attributes = true;
    documents_.attributes = attributes;
  }
  if (!is_stored_ || document != documents_.document) {
    if (!replace(document_name(documents_), document, is_stored_, versions_.document)) return false;
    documents_.document = document;
  }
  is_stored_ = true;
  return true;
}

// What could not be read again is not stored: an attribute may be deep, or long, by itself alone.
void check_readable(const std::string& where, const std::string& document) {
  try {
    Json::parse(document, "the metadata");
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, where + ": " + error.what());
  }
}

void NodeChange::check_documents(const std::string& document, const std::string& attributes) const {
  const std::string where = std::string("[") + call_ + "] " + place_of(store_, path_);
  if (!is_stored_ || document != documents_.document) check_readable(where, document);
  if (documents_.zarr_format == 2 && attributes != documents_.attributes)
    check_readable(where, attributes);
}

void NodeChange::store(std::string document, std::string attributes) {
  check_documents(document, attributes);
  if (replaces_on_condition() && store_on_condition(document, attributes)) return;
  if (!excludes_processes()) check_unchanged();
  const bool is_v2 = documents_.zarr_format == 2;
  StoreDriver& driver = store_.driver();
  if (is_v2 && (!is_stored_ || attributes != documents_.attributes)) {
    driver.set(join_key(path_, ".zattrs"), bytes_of(attributes));
    documents_.attributes = std::move(attributes);
  }
  if (!is_stored_ || document != documents_.document) {
    driver.set(join_key(path_, document_name(documents_)), bytes_of(document));
    documents_.document = std::move(document);
  }
  is_stored_ = true;
  // Somebody who read before this write and writes after it is seen now, if ever.
  if (!excludes_processes()) check_unchanged();
}

ArrayChange::ArrayChange(const char* call,
                         const ArrayState& state,
                         const std::function<void()>& poll)
    : state_(state),
      node_([&] {
        const auto seen = state.metadata();
        const NodeDocuments given = documents_of(*seen);
        return NodeChange(call,
                          state.shared()->store,
                          state.path(),
                          NodeType::array,
                          seen->zarr_format,
                          poll,
                          state.shared()->has_document ? nullptr : &given);
      }()),
      now_(state.metadata()) {
  const NodeDocuments& found = node_.documents();
  if (found.document == now_->document &&
      (found.zarr_format == 3 || found.attributes == now_->attributes))
    return;
  auto fresh = std::make_shared<const ArrayMetadata>(
      array_metadata_of(state.shared()->store, state.path(), found));
  if (fresh->dtype != now_->dtype || fresh->ndim() != now_->ndim()) {
    throw Error(ErrorCode::conflict,
                std::string("[") + call + "] " + place_of(state.shared()->store, state.path()) +
                    ": another array has taken its place since it was opened: of " +
                    std::to_string(fresh->ndim()) + " dimensions and dtype " +
                    fresh->dtype.to_string() + ", expected " + std::to_string(now_->ndim()) +
                    " and " + now_->dtype.to_string());
  }
  now_ = std::move(fresh);
  state_.show_metadata(now_);
}

void ArrayChange::store(std::shared_ptr<const ArrayMetadata> metadata) {
  node_.store(metadata->document,
              metadata->attributes == now_->attributes ? node_.documents().attributes
                                                       : metadata->attributes);
  now_ = std::move(metadata);
  state_.show_metadata(now_);
}

std::string changed_attributes(const std::string& now, const AttributeChanges& changes) {
  const std::string set = checked_json_object(changes.set, "attributes");
  const std::vector<Json::Member> present = Json::parse(now, "attributes").members();
  std::vector<Json::Member> wanted = Json::parse(set, "attributes").members();
  std::string result;
  const auto add = [&](std::string_view name, std::string_view value) {
    result += (result.empty() ? "" : ", ") + json_quote(name) + ": " + std::string(value);
  };
  for (const auto& [name, value] : present) {
    if (std::ranges::find(changes.remove, name) != changes.remove.end()) continue;
    const auto next = std::ranges::find_if(
        wanted, [&key = name](const auto& member) { return member.first == key; });
    if (next == wanted.end()) {
      add(name, value.text());
      continue;
    }
    add(name, changes.keep_present ? value.text() : next->second.text());
    wanted.erase(next);
  }
  for (const auto& [name, value] : wanted) add(name, value.text());
  return json_compact('{' + result + '}');
}

}  // namespace headrace
