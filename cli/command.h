#pragma once

// One file a command. Each adds its subcommand to the app; its callback runs while the arguments
// are parsed and leaves the exit status in `status` when that is not 0.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "headrace/headrace.h"

namespace headrace::cli {

void add_advise(CLI::App& app);
void add_bench(CLI::App& app);
// `called` as the shell names the command: the Python of its package lies beside it.
void add_cells(CLI::App& app, const std::string& called);
void add_completion(CLI::App& app);
void add_convert(CLI::App& app);
void add_cp(CLI::App& app);
void add_doctor(CLI::App& app, int& status);
void add_du(CLI::App& app);
// Of the commands that were added before it.
void add_help(CLI::App& app);
void add_info(CLI::App& app);
void add_ls(CLI::App& app);
void add_manual(CLI::App& app);
void add_read(CLI::App& app);
void add_rechunk(CLI::App& app);
void add_sync(CLI::App& app);
void add_tree(CLI::App& app);
void add_verify(CLI::App& app, int& status);
void add_version(CLI::App& app);

// What every command that opens something takes.
struct CommonOptions {
  std::string target;
  std::string path;  // within it
  std::string device;
  int threads = 0;
  bool json = false;
  std::vector<std::string> storage_options;
};
// A path or URL, with its ~ written out as a shell does where it is not quoted.
CLI::Option* add_place(CLI::App& command,
                       const std::string& name,
                       std::string& place,
                       const std::string& what);
void add_json_option(CLI::App& command, CommonOptions& options);
// What is looked at. A command that reads nothing but metadata takes no device and no threads.
void add_target_options(CLI::App& command, CommonOptions& options);
void add_common_options(CLI::App& command, CommonOptions& options);
// The path of a node within the target, by itself: what stands behind it.
void add_path_argument(CLI::App& command, CommonOptions& options);
// How a command opens the place that it writes to: an archive is new, or replaced, whole.
StoreMode mode_of_destination(const std::string& location, bool overwrite);
// Of the values of `option`, NAME=VALUE.
StorageOptions parse_storage_options(std::string_view option,
                                     const std::vector<std::string>& pairs);

// A check of options for a number that is `least` or more.
CLI::Validator at_least(std::int64_t least);

// A command's own usage errors: exit status 2, like those of the parser.
[[noreturn]] void throw_usage(const std::string& message);

// A node named by a path or URL: PATH, PATH/node, archive.zip/node.
struct Target {
  Store store;
  std::string path;
  bool is_group = false;
  OpenOptions options;

  Array array() const { return open_array(store, path, options); }
  Group group() const { return open_group(store, path, options); }
};
// Applies --threads, too.
Target open_target(const CommonOptions& options);
Array open_target_array(const CommonOptions& options);

// Counts what a walk through groups comes by and throws where there is no end of it: links between
// groups can make more paths than memory holds.
class NodeCount {
 public:
  void add();

 private:
  std::size_t n_ = 0;
};

// What is below a group, by paths within its store.
struct Walk {
  struct ArrayPlace {
    std::string path;
    std::string name;
    Group group;  // it is in
  };
  std::vector<ArrayPlace> arrays;
  std::vector<std::string> groups;                    // with the one that it began at
  std::vector<std::pair<std::string, Error>> broken;  // groups that cannot be opened or listed
  std::vector<NodeLeftOut> left_out;

  explicit Walk(const Group& root);

 private:
  void gather(const Group& group,
              const std::vector<Node>& members,
              const std::vector<NodeLeftOut>& left_out_here);

  NodeCount count_;
};
// "left out: a/b: ..." for each.
std::string left_out_text(const std::vector<NodeLeftOut>& nodes);
std::vector<std::string> names_of(const std::vector<NodeLeftOut>& nodes);
// Why a link back is left out.
inline constexpr const char* kLeadsBack = "a link that leads back to a group it is in";

// "(10, 20)", "(10,)", "()".
std::string shape_text(const Shape& shape);
double nbytes_of(const Array& array);

}  // namespace headrace::cli
