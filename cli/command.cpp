#include "cli/command.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/suggest.h"

namespace headrace::cli {
namespace {

// A store at `location`; nothing when the place is no store, as a path into an archive is not.
std::optional<Store> try_store(const std::string& location, const StorageOptions& options) {
  try {
    return open_store(location, StoreMode::read, options);
  } catch (const Error& e) {
    const bool missing =
        e.code() == ErrorCode::not_found || e.os_error() == ENOTDIR || e.os_error() == ENOENT;
    if (!missing) throw;
    return std::nullopt;
  }
}

// "~/a" and "~name/a" as Python's os.path.expanduser has them: what has no home stays as it is.
std::string expanded(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const std::size_t slash = std::min(path.find('/'), path.size());
  const std::string name = path.substr(1, slash - 1);
  const char* home = name.empty() ? std::getenv("HOME") : nullptr;
  if (home == nullptr) {
    const passwd* const user = name.empty() ? ::getpwuid(::getuid()) : ::getpwnam(name.c_str());
    if (user == nullptr) return path;
    home = user->pw_dir;
  }
  return home + path.substr(slash);
}

// Where the part of a URL begins that may be shortened.
std::size_t root_of(const std::string& text) {
  const std::size_t scheme = text.find("://");
  return scheme == std::string::npos ? 0 : scheme + 3;
}

constexpr std::size_t kLookedAt = 1000;  // names, for a message

// Of a local path that leads nowhere: what the folder has that it breaks off in.
std::string what_was_meant(const CommonOptions& options) {
  if (options.target.find("://") != std::string::npos) return "";
  const std::string missing = ": there is no such file or folder";
  std::error_code failed;
  std::filesystem::path above = std::filesystem::path(options.target).lexically_normal();
  if (!above.has_filename()) above = above.parent_path();
  std::string name = above.filename();
  above = above.parent_path();
  while (!above.empty() && !std::filesystem::is_directory(above, failed)) {
    name = above.filename();
    if (above == above.parent_path()) return missing;
    above = above.parent_path();
  }
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(above.empty() ? "." : above, failed), end;
       !failed && it != end && names.size() < kLookedAt;
       it.increment(failed)) {
    const std::string found = it->path().filename();
    if (!found.starts_with('.')) names.push_back(found);
  }
  return missing + did_you_mean(name, names);
}

std::vector<std::string> nodes_in(const Store& store, const std::string& path) {
  std::vector<std::string> nodes;
  std::size_t looked_at = 0;
  for (const std::string& name : store.list_dir(path)) {
    if (++looked_at > kLookedAt / 10) break;
    if (node_is_group(store, path.empty() ? name : path + '/' + name)) nodes.push_back(name);
  }
  return nodes;
}

// Nodes below a place that is none, or beside it; else what is there instead.
std::string members_text(const Store& store, const std::string& path) {
  try {
    if (!store.across_network()) {
      const std::vector<std::string> inside = nodes_in(store, path);
      if (!inside.empty()) return did_you_mean("", inside, "below it there are");
      const std::size_t slash = path.rfind('/');
      const std::string above = slash == std::string::npos ? "" : path.substr(0, slash);
      const auto beside = path.empty() ? std::vector<std::string>() : nodes_in(store, above);
      if (!beside.empty()) return did_you_mean(path.substr(slash + 1), beside, "there are");
    }
    return ": " + what_is_there(store, path);
  } catch (const Error&) {
    return "";  // the message it would have been a part of says enough
  }
}

// Of a place on a web server, which lists nothing: what consolidated metadata name beside it.
std::string consolidated_text(const Store& place,
                              const CommonOptions& options,
                              const StorageOptions& storage) {
  if (!place.url().starts_with("http")) return "";
  std::string root = options.target;
  std::string path = options.path;
  try {
    if (path.empty()) {
      while (root.ends_with('/')) root.pop_back();
      const std::size_t slash = root.rfind('/');
      if (slash == std::string::npos || slash <= root_of(root)) return "";
      path = root.substr(slash + 1);
      root.resize(slash);
    }
    StorageOptions once = storage;  // a server that has no answer to this lets nobody wait
    once["max_retries"] = "0";
    const Store store = open_store(root, StoreMode::read, once);
    const std::vector<std::string> names = consolidated_names_beside(store, path);
    while (path.ends_with('/')) path.pop_back();
    return did_you_mean(path.substr(path.rfind('/') + 1), names, "there are");
  } catch (const Error&) {
    return "";
  }
}

std::string arrays_text(const Group& group) {
  std::vector<std::string> names;
  for (const Node& node : group.members())
    if (!node.is_group) names.push_back(node.name);
  return did_you_mean("", names, "there are");
}

}  // namespace

StoreMode mode_of_destination(const std::string& location, bool overwrite) {
  if (!names_archive(location)) return StoreMode::append;
  return overwrite ? StoreMode::overwrite : StoreMode::create;
}

StorageOptions parse_storage_options(std::string_view option,
                                     const std::vector<std::string>& pairs) {
  StorageOptions result;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw_usage(fmt::format("{}: expected NAME=VALUE, got \"{}\"", option, pair));
    }
    result[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return result;
}

CLI::Option* add_place(CLI::App& command,
                       const std::string& name,
                       std::string& place,
                       const std::string& what) {
  const auto expand = [](std::string& path) {
    path = expanded(path);
    return std::string();  // no complaint
  };
  return command.add_option(name, place, what)->transform(CLI::Validator(expand, ""));
}

void add_json_option(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "Print one JSON document");
}

void add_target_options(CLI::App& command, CommonOptions& options) {
  add_place(command,
            "target",
            options.target,
            "Path or URL of an array or group, as in DATA.zarr/GROUP/ARRAY")
      ->required();
  command.add_option(
      "--storage-option", options.storage_options, "NAME=VALUE for the store, as in io=uring");
  add_json_option(command, options);
}

void add_common_options(CLI::App& command, CommonOptions& options) {
  add_target_options(command, options);
  command.add_option("--device", options.device, "cpu, cuda, cuda:N or auto");
  command.add_option("--threads", options.threads, "Threads for reading; 0 for all processors")
      ->check(at_least(0));
}

void add_path_argument(CLI::App& command, CommonOptions& options) {
  command.add_option("path", options.path, "Path within the target, as in GROUP/ARRAY");
}

CLI::Validator at_least(std::int64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= INT_MAX)
      return "";
    return fmt::format("expected a number, {} or more, got \"{}\"", least, text);
  };
  return CLI::Validator(check, "");
}

void throw_usage(const std::string& message) { throw CLI::ValidationError(message); }

Target open_target(const CommonOptions& options) {
  Config settings = config();
  if (options.threads > 0) settings.threads = options.threads;
  set_config(settings);
  OpenOptions open;
  try {
    open.device = Device::parse(options.device.empty() ? settings.device : options.device);
  } catch (const Error& e) {
    throw_usage(e.what());
  }
  open.read_only = true;

  const StorageOptions storage = parse_storage_options("--storage-option", options.storage_options);
  std::string location = options.target;
  if (!options.path.empty()) location += '/' + options.path;
  while (location.size() > root_of(location) + 1 && location.back() == '/') location.pop_back();
  std::string path;
  for (;;) {
    if (auto store = try_store(location, storage)) {
      const auto is_group = node_is_group(*store, path);
      if (is_group) return {*store, path, *is_group, open};
      throw Error(ErrorCode::not_found,
                  "no array or group " + (path.empty() ? "at " : '\'' + path + "' in ") +
                      store->url() + members_text(*store, path) +
                      consolidated_text(*store, options, storage));
    }
    const std::size_t slash = location.rfind('/');
    if (slash == std::string::npos || slash <= root_of(location)) {
      throw Error(ErrorCode::not_found, "no store at " + options.target + what_was_meant(options));
    }
    path = location.substr(slash + 1) + (path.empty() ? "" : '/' + path);
    location.resize(slash);
  }
}

Array open_target_array(const CommonOptions& options) {
  const Target target = open_target(options);
  if (target.is_group) {
    throw Error(
        ErrorCode::invalid_argument,
        options.target + " is a group: name one of its arrays" + arrays_text(target.group()));
  }
  return target.array();
}

void NodeCount::add() {
  constexpr std::size_t kMax = std::size_t{1} << 20;
  if (++n_ <= kMax) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("more than {} groups and arrays: name a group further down", kMax));
}

Walk::Walk(const Group& root) {
  std::vector<NodeLeftOut> left_out_here;
  const std::vector<Node> members = root.members(left_out_here);
  gather(root, members, left_out_here);
}

void Walk::gather(const Group& group,
                  const std::vector<Node>& members,
                  const std::vector<NodeLeftOut>& left_out_here) {
  const auto path_of = [&](const std::string& name) {
    return group.path().empty() ? name : group.path() + '/' + name;
  };
  groups.push_back(group.path());
  for (const NodeLeftOut& node : left_out_here) left_out.push_back({path_of(node.name), node.why});
  for (const Node& node : members) {
    count_.add();
    if (!node.is_group) {
      arrays.push_back({path_of(node.name), node.name, group});
      continue;
    }
    std::optional<std::pair<Group, std::vector<Node>>> below;
    std::vector<NodeLeftOut> left_out_below;
    try {
      const Group opened = group.group(node.name);
      below.emplace(opened, opened.members(left_out_below));
    } catch (const Error& e) {
      broken.emplace_back(path_of(node.name), e);
    }
    if (below) gather(below->first, below->second, left_out_below);
  }
}

std::string left_out_text(const std::vector<NodeLeftOut>& nodes) {
  std::string text;
  for (const NodeLeftOut& node : nodes)
    text += fmt::format("left out: {}: {}\n", printable(node.name), printable(node.why));
  return text;
}

std::vector<std::string> names_of(const std::vector<NodeLeftOut>& nodes) {
  std::vector<std::string> names;
  for (const NodeLeftOut& node : nodes) names.push_back(node.name);
  return names;
}

std::string shape_text(const Shape& shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0])
                           : fmt::format("({})", fmt::join(shape, ", "));
}

double nbytes_of(const Array& array) {
  auto nbytes = static_cast<double>(array.dtype().itemsize());
  for (const std::int64_t extent : array.shape()) nbytes *= static_cast<double>(extent);
  return nbytes;
}

}  // namespace headrace::cli
