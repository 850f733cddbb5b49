#pragma once

// What the parser knows of its commands and options, for those that describe it: completion, the
// manual page, suggestions.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace headrace::cli {

struct OptionFacts {
  std::vector<std::string> names;  // "--output", "-o"; of a positional its name alone
  std::string what;
  bool positional = false;
  bool required = false;
  bool takes_value = false;
  bool repeated = false;             // a positional of several words
  std::vector<std::string> choices;  // empty where any value goes
};

struct CommandFacts {
  std::string name;
  std::string what;
  std::string examples;  // lines
  std::vector<OptionFacts> options;
};

// Of the app itself the name is empty.
CommandFacts facts_of(const CLI::App& command);
// Those that are shown, in the order of the help.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);
// Also one that is shown to nobody; a usage error when there is none.
const CLI::App& command_named(const CLI::App& app, const std::string& name);
// With their dashes.
std::vector<std::string> option_names(const CLI::App& command);

}  // namespace headrace::cli
