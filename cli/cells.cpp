// What is done to cells is Python's: the command finds the Python that has the package and becomes
// it.

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/command.h"
#include "cli/platform.h"

// NOLINTNEXTLINE(readability-identifier-naming): POSIX's name
extern char** environ;

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string action;
  std::vector<std::string> stores;
  std::vector<std::string> matrices;
  std::vector<std::string> columns;
  std::string join = "inner";
  std::string shard_size;
  std::string max_memory;
  int seed = 0;
  int chunk_rows = 64;
  int processes = 1;
  bool no_shuffle = false;
  bool overwrite = false;
  bool json = false;
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

bool can_run(const fs::path& program) {
  std::error_code failed;
  return fs::is_regular_file(program, failed) && access(program.c_str(), X_OK) == 0;
}

// Whether this Python has the package. -P: nothing is imported from the current folder.
bool has_package(const std::string& python) {
  std::vector<std::string> words = {
      python,
      "-P",
      "-c",
      "import importlib.util as u, sys; "
      "sys.exit(u.find_spec('headrace._cell_stores.__main__') is None)"};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return false;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, python.c_str(), &actions, nullptr, pointers(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Folders of the path that programs are looked for in, but not in the current one.
std::vector<fs::path> path_folders() {
  std::vector<fs::path> folders;
  const char* const set = std::getenv("PATH");
  const std::string path = set == nullptr ? "" : set;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const fs::path folder = path.substr(at, end - at);
    if (folder.is_absolute()) folders.push_back(folder);
    at = end + 1;
  }
  return folders;
}

// The one that was named; that of the folder the command was called from, through no link; that of
// the program; those of the path.
std::vector<fs::path> candidates(const std::string& called) {
  const char* const named = std::getenv("HEADRACE_PYTHON");
  if (named != nullptr && *named != '\0') return {named};
  std::vector<fs::path> folders;
  if (called.find('/') != std::string::npos) {
    folders.push_back(fs::path(called).parent_path());
  } else {
    for (const fs::path& folder : path_folders()) {
      if (!can_run(folder / called)) continue;
      folders.push_back(folder);
      break;
    }
  }
  const fs::path program = own_program();
  if (!program.empty()) folders.push_back(program.parent_path());
  const std::vector<fs::path> path = path_folders();
  folders.insert(folders.end(), path.begin(), path.end());
  std::vector<fs::path> found;
  for (const fs::path& folder : folders) {
    for (const char* name : {"python3", "python"}) {
      const fs::path python = folder / name;
      if (can_run(python) && std::ranges::find(found, python) == found.end())
        found.push_back(python);
    }
  }
  return found;
}

std::string python_of(const std::string& called) {
  for (const fs::path& python : candidates(called))
    if (has_package(python)) return python;
  throw Error(ErrorCode::unsupported,
              "cells: it runs in Python, and none that has the package headrace is beside the "
              "command or on the path (pip install headrace); HEADRACE_PYTHON=/path/to/python "
              "names one");
}

std::vector<std::string> words_of(const Options& options) {
  std::vector<std::string> words = {"convert",
                                    "--join=" + options.join,
                                    fmt::format("--seed={}", options.seed),
                                    fmt::format("--chunk-rows={}", options.chunk_rows),
                                    fmt::format("--processes={}", options.processes)};
  for (const std::string& matrix : options.matrices) words.push_back("--matrix=" + matrix);
  for (const std::string& column : options.columns) words.push_back("--obs=" + column);
  if (!options.shard_size.empty()) words.push_back("--shard-size=" + options.shard_size);
  if (!options.max_memory.empty()) words.push_back("--max-memory=" + options.max_memory);
  if (options.no_shuffle) words.emplace_back("--no-shuffle");
  if (options.overwrite) words.emplace_back("--overwrite");
  if (options.json) words.emplace_back("--json");
  words.emplace_back("--");
  words.insert(words.end(), options.stores.begin(), options.stores.end());
  return words;
}

void become_python(const Options& options, const std::string& called) {
  if (options.stores.size() < 2) throw_usage("cells convert: expected stores, and the result");
  const std::string python = python_of(called);
  std::vector<std::string> words = {python, "-P", "-m", "headrace._cell_stores"};
  for (std::string& word : words_of(options)) words.push_back(std::move(word));
  execv(python.c_str(), pointers(words).data());
  throw Error(ErrorCode::io, "cells: " + python + ": " + std::generic_category().message(errno));
}

}  // namespace

void add_cells(CLI::App& app, const std::string& called) {
  CLI::App* command =
      app.add_subcommand("cells", "Write AnnData stores and files as one store, shuffled, sharded");
  const auto options = std::make_shared<Options>();
  command->add_option("action", options->action, "convert")
      ->required()
      ->check(CLI::IsMember({"convert"}));
  command
      ->add_option("stores",
                   options->stores,
                   "AnnData in Zarr, by path or URL, and files .h5ad; the last is the folder made")
      ->required();
  command
      ->add_option("--matrix",
                   options->matrices,
                   "As X, layers/counts, obsm/X_pca; repeat; without it those that all have")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--obs", options->columns, "A column; repeat; without it those that all stores have")
      ->allow_extra_args(false);
  command->add_option("--join", options->join, "Of variables by name: those of all, or of any")
      ->check(CLI::IsMember({"inner", "outer"}));
  command->add_option("--seed", options->seed, "Of the order of cells")->check(at_least(0));
  command->add_flag("--no-shuffle", options->no_shuffle, "Keep the order");
  command->add_option("--chunk-rows", options->chunk_rows, "Cells of a chunk in the mean; 64")
      ->check(at_least(1));
  command->add_option("--shard-size", options->shard_size, "Decoded bytes at most, as in 1GB");
  command->add_option("--max-memory", options->max_memory, "Of rows in memory, as in 4GiB");
  command->add_option("--processes", options->processes, "That read and compress; 1")
      ->check(at_least(1));
  command->add_flag("--overwrite", options->overwrite, "Remove what is at the destination");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->footer(
      "Examples:\n"
      "  headrace cells convert donor1.h5ad donor2.h5ad atlas.zarr\n"
      "  headrace cells convert \"donors/*.zarr\" atlas.zarr --matrix layers/counts --seed 1\n"
      "A conversion that was stopped goes on when the same command is given again.");
  command->callback([options, called] { become_python(*options, called); });
}

}  // namespace headrace::cli
