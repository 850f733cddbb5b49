#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/command.h"
#include "cli/parser.h"

namespace headrace::cli {
namespace {

// A line of roff: what begins with a dot or a quote would be a request, a dash alone a hyphen.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  if (result.starts_with('.') || result.starts_with('\'')) result.insert(0, "\\&");
  return result;
}

std::string option_text(const OptionFacts& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  if (!option.positional && option.takes_value) {
    names +=
        option.choices.empty()
            ? " \\fIVALUE\\fR"
            : fmt::format(" \\fI{}\\fR", roff(fmt::format("{}", fmt::join(option.choices, "|"))));
  }
  return fmt::format(".TP\n{}\n{}\n", names, roff(option.what));
}

std::string synopsis(const CommandFacts& command) {
  std::string text = fmt::format("\\fBheadrace {}\\fR [\\fIOPTIONS\\fR]", command.name);
  for (const OptionFacts& option : command.options) {
    if (!option.positional) continue;
    const std::string name = fmt::format("\\fI{}\\fR", roff(option.names[0]));
    text += option.required ? ' ' + name : " [" + name + ']';
  }
  return text;
}

std::string command_text(const CommandFacts& command) {
  std::string text =
      fmt::format(".SS {}\n{}\n.PP\n{}.\n", command.name, synopsis(command), roff(command.what));
  for (const OptionFacts& option : command.options) text += option_text(option);
  if (!command.examples.empty()) {
    text += ".PP\n.nf\n";
    std::size_t at = 0;
    while (at < command.examples.size()) {
      const std::size_t end = std::min(command.examples.find('\n', at), command.examples.size());
      text += roff(command.examples.substr(at, end - at)) + '\n';
      at = end + 1;
    }
    text += ".fi\n";
  }
  return text;
}

std::string page(const CLI::App& app) {
  std::string text = fmt::format(
      ".\\\" Made by the command from its own options: headrace manual\n"
      ".TH HEADRACE 1 \"\" \"headrace {}\" \"User Commands\"\n"
      ".SH NAME\nheadrace \\- looks at, reads and checks Zarr arrays\n"
      ".SH SYNOPSIS\n\\fBheadrace\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n"
      ".SH COMMANDS\n",
      version());
  for (const CLI::App* command : commands_of(app)) text += command_text(facts_of(*command));
  text +=
      ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nIt failed, or what was looked at is bad.\n"
      ".TP\n2\nIt was called in a way that it cannot be.\n";
  return text;
}

}  // namespace

void add_manual(CLI::App& app) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page, in roff");
  command->group("");
  command->callback([&app] { print_text(page(app)); });
}

}  // namespace headrace::cli
