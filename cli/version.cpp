#include "cli/command.h"

namespace headrace::cli {

void add_version(CLI::App& app) {
  CLI::App* command = app.add_subcommand("version", "Print the version");
  const auto options = std::make_shared<CommonOptions>();
  command->footer("Examples:\n  headrace version --json");
  add_json_option(*command, *options);
  command->callback([options] {
    if (options->json) {
      print_json({{"version", version()}});
    } else {
      print_text("headrace " + version() + '\n');
    }
  });
}

}  // namespace headrace::cli
