#include <algorithm>
#include <csignal>
#include <exception>
#include <new>

#include "cli/command.h"
#include "cli/parser.h"
#include "cli/suggest.h"

namespace headrace::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Whatever became of standard error: it is no reason to end otherwise.
void complain(const char* message) {
  try {
    say("headrace: " + printable(message) + '\n');
  } catch (const std::bad_alloc&) {
    say("headrace: out of memory\n");
  }
}

// What CLI11 would say of a command that there is not is in the words of another mistake.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::vector<std::string> names = command_names(app);
  const std::string word = argv[1];
  const std::string next = argc > 2 ? argv[2] : "";
  if (std::ranges::find(names, next) != names.end() && nearest(word, names).empty())
    throw_usage("the command comes first: did you mean headrace " + next + ' ' + word + '?');
  command_named(app, word);
}

// Of what no option or argument of the command takes, the first.
std::string extras_text(const CLI::App& app, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::vector<std::string> extras = app.remaining(true);
  const std::string where = chosen.empty() ? "headrace" : "headrace " + command.get_name();
  for (int i = 1; i < argc; ++i) {
    if (std::ranges::find(extras, argv[i]) == extras.end()) continue;
    const std::string word = argv[i];
    if (!word.starts_with('-')) return where + ": unexpected argument \"" + word + '"';
    const std::string name = word.substr(0, word.find('='));
    return where + " has no option " + name + did_you_mean(name, option_names(command));
  }
  return where + ": unexpected arguments";
}

int run(int argc, char** argv) {
  keep_standard_streams();
  // A pipe that was closed shows as EPIPE where the write is, and ends the command quietly.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Looks at, reads and checks Zarr arrays.", "headrace");
  int status = 0;
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "headrace " + version());
  add_info(app);
  add_tree(app);
  add_read(app);
  add_verify(app, status);
  add_advise(app);
  add_rechunk(app);
  add_convert(app);
  add_cells(app, argc > 0 ? argv[0] : "");
  add_ls(app);
  add_du(app);
  add_cp(app);
  add_sync(app);
  add_bench(app);
  add_doctor(app, status);
  add_completion(app);
  add_version(app);
  add_help(app);
  add_manual(app);
  app.footer(
      "Examples:\n"
      "  headrace info era5.zarr\n"
      "  headrace read era5.zarr/t2m --selection \"0:10,:,5\" -o t2m.npy\n"
      "  headrace verify era5.zarr\n"
      "\"headrace COMMAND --help\" has more of each; \"headrace completion bash\" completes them.");
  try {
    check_command(app, argc, argv);
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw_usage("expected a command");
    return status;
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    print_text(chosen.empty() ? app.help() : chosen.front()->help(app.get_name()));
    return 0;
  } catch (const CLI::CallForVersion& e) {
    print_text(std::string(e.what()) + '\n');
    return 0;
  } catch (const CLI::ExtrasError&) {
    complain(extras_text(app, argc, argv).c_str());
    complain("\"headrace --help\" and \"headrace COMMAND --help\" say how it is used");
    return kUsage;
  } catch (const CLI::ParseError& e) {
    complain(e.what());
    complain("\"headrace --help\" and \"headrace COMMAND --help\" say how it is used");
    return kUsage;
  }
}

}  // namespace
}  // namespace headrace::cli

int main(int argc, char** argv) {
  using namespace headrace::cli;
  try {
    return run(argc, argv);
  } catch (const BrokenPipe&) {
    return kFailed;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return kFailed;
}
