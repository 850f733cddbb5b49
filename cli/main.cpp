#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>

#include "cli/command.h"

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

// How many letters differ, by Levenshtein.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// What CLI11 would say of a command that there is not is in the words of another mistake.
void check_command(const CLI::App& app, const std::string& word) {
  constexpr std::size_t kLikeness = 2;
  std::string nearest;
  std::size_t least = kLikeness + 1;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return;
    const std::size_t d = distance(word, command->get_name());
    if (d < least && d < word.size()) {
      least = d;
      nearest = command->get_name();
    }
  }
  throw_usage("there is no command \"" + word + '"' +
              (nearest.empty() ? "" : ": did you mean " + nearest + '?'));
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
  add_ls(app);
  add_du(app);
  add_cp(app);
  add_sync(app);
  add_bench(app);
  add_doctor(app, status);
  add_version(app);
  try {
    if (argc > 1 && argv[1][0] != '-') check_command(app, argv[1]);
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
