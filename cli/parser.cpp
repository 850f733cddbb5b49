#include "cli/parser.h"

#include <algorithm>

#include "cli/command.h"
#include "cli/suggest.h"

namespace headrace::cli {
namespace {

// CLI11 keeps the values of IsMember in the text of the type: "TEXT:{npy,raw}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {};
  std::vector<std::string> choices;
  std::size_t at = open + 1;
  while (at <= close) {
    const std::size_t end = std::min(type.find(',', at), close);
    if (end > at) choices.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

OptionFacts facts_of(const CLI::Option& option) {
  OptionFacts facts;
  facts.positional = option.get_positional();
  facts.required = option.get_required();
  facts.what = option.get_description();
  facts.takes_value = option.get_items_expected_max() > 0;
  facts.repeated = facts.positional && option.get_items_expected_max() > 1;
  facts.choices = choices_of(option);
  if (facts.positional) {
    facts.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  }
  return facts;
}

}  // namespace

CommandFacts facts_of(const CLI::App& command) {
  CommandFacts facts;
  facts.name = command.get_parent() == nullptr ? "" : command.get_name();
  facts.what = command.get_description();
  facts.examples = command.get_footer();
  for (const CLI::Option* option : command.get_options())
    facts.options.push_back(facts_of(*option));
  return facts;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  // No group: it is of the build and shown to nobody.
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

const CLI::App& command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == name) return *command;
  throw_usage("there is no command \"" + name + '"' +
              did_you_mean(name, command_names(app), "there are"));
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionFacts& option : facts_of(command).options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

}  // namespace headrace::cli
