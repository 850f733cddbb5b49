#pragma once

// One file a command. Each adds its subcommand to the app; its callback runs while the arguments
// are parsed and leaves the exit status in `status` when that is not 0.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/output.h"
#include "headrace/headrace.h"

namespace headrace::cli {

void add_advise(CLI::App& app);
void add_bench(CLI::App& app);
void add_convert(CLI::App& app);
void add_doctor(CLI::App& app);
void add_info(CLI::App& app);
void add_read(CLI::App& app);
void add_rechunk(CLI::App& app);
void add_tree(CLI::App& app);
void add_verify(CLI::App& app, int& status);
void add_version(CLI::App& app);

// What every command that opens something takes.
struct CommonOptions {
  std::string target;
  std::string device;
  int threads = 0;
  bool json = false;
  std::vector<std::string> storage_options;
};
void add_json_option(CLI::App& command, CommonOptions& options);
void add_common_options(CLI::App& command, CommonOptions& options);

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

// "(10, 20)", "(10,)", "()".
std::string shape_text(const Shape& shape);
double nbytes_of(const Array& array);

}  // namespace headrace::cli
