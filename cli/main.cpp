#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "cli/command.h"

namespace headrace::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

void complain(const char* message) { fmt::print(stderr, "headrace: {}\n", message); }

int run(int argc, char** argv) {
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
  add_bench(app);
  add_doctor(app);
  add_version(app);
  try {
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
