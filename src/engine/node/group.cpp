#include <utility>

#include "engine/node/consolidate.h"
#include "engine/node/group_state.h"
#include "engine/node/metadata_change.h"
#include "engine/request/array_state.h"
#include "engine/request/config.h"
#include "headrace/array.h"

namespace headrace {
namespace {

std::string member_path(std::string_view name) {
  std::string clean = node_path(name);
  if (clean.empty())
    throw Error(ErrorCode::invalid_argument, "[group] the name of a member is empty");
  return clean;
}

[[noreturn]] void throw_no_member(const GroupState& state,
                                  const char* kind,
                                  const std::string& name,
                                  const std::optional<NodeDocuments>& found) {
  std::string message =
      "[group] " + place_of(state.store, state.path) + " has no " + kind + " '" + name + '\'';
  if (found) message += found->type == NodeType::group ? ": it is a group" : ": it is an array";
  throw Error(ErrorCode::not_found, message);
}

[[noreturn]] void throw_read_only(const GroupState& state) {
  throw Error(ErrorCode::permission_denied,
              "[group] " + place_of(state.store, state.path) + " is open for reading only");
}

// The part of consolidated metadata that lies below `name`.
std::shared_ptr<const NodeMap> nodes_below(const NodeMap& nodes, const std::string& name) {
  auto below = std::make_shared<NodeMap>();
  const std::string prefix = name + '/';
  for (auto it = nodes.lower_bound(prefix); it != nodes.end() && it->first.starts_with(prefix);
       ++it) {
    below->emplace(it->first.substr(prefix.size()), it->second);
  }
  return below;
}

}  // namespace

std::shared_ptr<const GroupMetadata> GroupState::metadata() const {
  ForkLock lock(mutex_);
  return metadata_;
}

void GroupState::replace_metadata(GroupMetadata metadata) {
  auto fresh = std::make_shared<const GroupMetadata>(std::move(metadata));
  ForkLock lock(mutex_);
  metadata_.swap(fresh);
}

std::optional<NodeDocuments> GroupState::find(const std::string& name) const {
  if (nodes) {
    if (const auto found = nodes->find(name); found != nodes->end()) return found->second;
  }
  return find_node(store, join_key(path, name), metadata()->zarr_format);
}

std::vector<Node> Group::listed_members(std::vector<NodeLeftOut>* left_out) const {
  std::vector<Node> result;
  for (auto& [name, node] : list_nodes(
           state_->store, state_->path, zarr_format(), state_->passed_over.get(), left_out)) {
    result.push_back({std::move(name), node.type == NodeType::group});
  }
  return result;
}

std::vector<Node> Group::members() const {
  std::vector<Node> result;
  if (state_->nodes) {
    check_depth(state_->store, state_->path);
    for (const auto& [name, node] : *state_->nodes) {
      if (name.find('/') == std::string::npos)
        result.push_back({name, node.type == NodeType::group});
    }
    return result;
  }
  return listed_members(nullptr);
}

std::vector<Node> Group::members(std::vector<NodeLeftOut>& left_out) const {
  return state_->nodes ? members() : listed_members(&left_out);
}

namespace {

// Whether the store names what lies below the path. A web server does not, and a bucket may let
// nobody list who may read.
bool lists(const Store& store, const std::string& path) {
  try {
    store.driver().list_dir(path.empty() ? "" : path + '/');
    return true;
  } catch (const Error& e) {
    const bool cannot = e.code() == ErrorCode::unsupported ||
                        e.code() == ErrorCode::permission_denied ||
                        e.code() == ErrorCode::not_found;
    if (!cannot) throw;
    return false;
  }
}

}  // namespace

Group Group::as_stored() const {
  if (!state_->nodes || !lists(state_->store, state_->path)) return *this;
  OpenOptions options = state_->options;
  options.use_consolidated = false;
  options.zarr_format = zarr_format();
  const Group fresh = open_group(state_->store, state_->path, options);
  return Group(std::make_shared<GroupState>(
      state_->store, state_->path, *fresh.state()->metadata(), nullptr, options, state_->nodes));
}

std::vector<std::string> Group::links_back() const {
  if (state_->nodes) return {};
  return list_links_back(state_->store, state_->path);
}

bool Group::contains(std::string_view name) const { return is_group(name).has_value(); }

std::optional<bool> Group::is_group(std::string_view name) const {
  const auto node = state_->find(member_path(name));
  if (!node) return std::nullopt;
  return node->type == NodeType::group;
}

Array Group::array(std::string_view name, const OpenOptions& options) const {
  const std::string clean = member_path(name);
  const auto node = state_->find(clean);
  if (!node || node->type != NodeType::array) throw_no_member(*state_, "array", clean, node);
  OpenOptions merged = options;
  // A default cannot be told from a wish for "cpu": that one is
  // group.array(name).to(Device::cpu()).
  if (merged.device == Device()) merged.device = state_->options.device;
  merged.read_only |= state_->options.read_only;
  merged.implementations.insert(state_->options.implementations.begin(),
                                state_->options.implementations.end());
  return make_array(state_->store, join_key(state_->path, clean), *node, merged);
}

Group Group::group(std::string_view name) const {
  const std::string clean = member_path(name);
  const auto node = state_->find(clean);
  if (!node || node->type != NodeType::group) throw_no_member(*state_, "group", clean, node);
  const std::string path = join_key(state_->path, clean);
  if (state_->passed_over) {
    return Group(std::make_shared<GroupState>(state_->store,
                                              path,
                                              group_metadata_of(state_->store, path, *node),
                                              nullptr,
                                              state_->options,
                                              nodes_below(*state_->passed_over, clean)));
  }
  if (!state_->nodes || !state_->nodes->contains(clean)) {
    return make_group(state_->store, path, *node, state_->options);
  }
  // zarr-python leaves the inner groups' own consolidated metadata empty: the outer one counts.
  GroupMetadata metadata = group_metadata_of(state_->store, path, *node);
  metadata.consolidated.reset();
  return Group(std::make_shared<GroupState>(state_->store,
                                            path,
                                            std::move(metadata),
                                            nodes_below(*state_->nodes, clean),
                                            state_->options));
}

void Group::remove(std::string_view name, const std::function<void()>& poll) const {
  if (read_only()) throw_read_only(*state_);
  const std::string clean = member_path(name);
  const auto node = state_->find(clean);
  if (!node) throw_no_member(*state_, "member", clean, node);
  const std::string path = join_key(state_->path, clean);
  LeftConsolidated left("group", state_->store, path, poll);
  remove_nodes(state_->store, path, poll);
  left.done();
}

std::string Group::attributes_json() const { return state_->metadata()->attributes; }

void GroupState::change_attributes(const std::function<std::string(const std::string&)>& change,
                                   const std::function<void()>& poll) {
  if (options.read_only || store.read_only()) throw_read_only(*this);
  const int format = metadata()->zarr_format;
  again_when_forestalled(poll, OnDoubt::again, [&] {
    NodeChange node("group", store, path, NodeType::group, format, poll);
    std::string attributes = change(group_metadata_of(store, path, node.documents()).attributes);
    // The rest of the document stays: somebody may have consolidated metadata.
    std::string document = node.documents().document;
    if (format == 3) document = with_attributes(document, attributes);
    node.store(std::move(document), std::move(attributes));
    GroupMetadata fresh = group_metadata_of(store, path, node.documents());
    fresh.consolidated.reset();  // `nodes` has them
    replace_metadata(std::move(fresh));
  });
}

void Group::set_attributes_json(std::string_view json, const WriteOptions& options) const {
  const std::string attributes = checked_json_object(json, "attributes");
  state_->change_attributes([&](const std::string&) { return attributes; }, options.poll);
}

std::string Group::update_attributes(const AttributeChanges& changes,
                                     const WriteOptions& options) const {
  std::string before;
  state_->change_attributes(
      [&](const std::string& now) {
        before = now;
        return changed_attributes(now, changes);
      },
      options.poll);
  return before;
}

std::string Group::metadata_json() const { return state_->metadata()->document; }
bool Group::consolidated() const { return state_->nodes != nullptr; }
int Group::zarr_format() const { return state_->metadata()->zarr_format; }
bool Group::read_only() const { return state_->options.read_only || state_->store.read_only(); }
std::string Group::path() const { return state_->path; }
Store Group::store() const { return state_->store; }

}  // namespace headrace
