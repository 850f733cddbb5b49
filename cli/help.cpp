#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/parser.h"

namespace headrace::cli {

void add_help(CLI::App& app) {
  CLI::App* command = app.add_subcommand("help", "Print what --help does, of a command or of all");
  const auto name = std::make_shared<std::string>();
  command->add_option("command", *name, "The command; default: all of them")
      ->type_name(fmt::format("{{{}}}", fmt::join(command_names(app), ",")));
  command->footer("Examples:\n  headrace help read");
  command->callback([name, &app] {
    const CLI::App& of = name->empty() ? app : command_named(app, *name);
    // App::help() would be that of the command which was called: this one.
    print_text(app.get_formatter()->make_help(
        &of, name->empty() ? app.get_name() : "headrace " + *name, CLI::AppFormatMode::Normal));
  });
}

}  // namespace headrace::cli
