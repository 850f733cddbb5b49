#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/parser.h"

namespace headrace::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// For what stands between single quotes in bash and zsh.
std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result;
}

std::string first_sentence(const std::string& text) {
  return text.substr(0, std::min(text.find(';'), text.size()));
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  std::string values;
  for (const CLI::App* command : commands_of(app)) {
    cases += fmt::format(
        "    {}) options=\"{}\" ;;\n", command->get_name(), joined(option_names(*command)));
    for (const OptionFacts& option : facts_of(*command).options) {
      if (option.choices.empty()) continue;
      // A positional of few words comes first, before files.
      const auto before = option.positional ? std::vector{command->get_name()} : option.names;
      for (const std::string& name : before)
        values += fmt::format(
            "    {}:{}) words=\"{}\" ;;\n", command->get_name(), name, joined(option.choices));
    }
  }
  return fmt::format(R"(# bash completion for headrace: made by "headrace completion bash".
# Source it, or put it into ~/.local/share/bash-completion/completions/headrace
_headrace() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command="" i
  local options="{}" words=""
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${{COMP_WORDS[i]}} != -* ]]; then command=${{COMP_WORDS[i]}}; break; fi
  done
  if [[ -z $command && $current != -* ]]; then
    COMPREPLY=($(compgen -W "{}" -- "$current"))
    return
  fi
  case $command in
{}  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
    return
  fi
  case $command:$before in
{}  esac
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -F _headrace headrace
)",
                     joined(option_names(app)),
                     joined(command_names(app)),
                     cases,
                     values);
}

// Brackets and colons mean something in the specifications of _arguments.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : quoted(first_sentence(text))) {
    if (c == '[' || c == ']' || c == ':') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_option(const OptionFacts& option) {
  const std::string action = option.choices.empty() ? "_files" : '(' + joined(option.choices) + ')';
  if (option.positional) {
    const char* const count = option.repeated ? "*" : option.required ? "" : ":";
    return fmt::format("        '{}:{}:{}'", count, option.names[0], action);
  }
  std::string text;
  for (const std::string& name : option.names) {
    text += fmt::format("{}        '{}[{}]{}'",
                        text.empty() ? "" : " \\\n",
                        name,
                        zsh_text(option.what),
                        option.takes_value ? ":value:" + action : "");
  }
  return text;
}

std::string zsh_script(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    commands +=
        fmt::format("    '{}:{}'\n", command->get_name(), zsh_text(command->get_description()));
    std::string options;
    for (const OptionFacts& option : facts_of(*command).options)
      options += " \\\n" + zsh_option(option);
    cases += fmt::format("    {})\n      _arguments{} ;;\n", command->get_name(), options);
  }
  return fmt::format(R"(#compdef headrace
# zsh completion for headrace: made by "headrace completion zsh".
# Put it into a folder of $fpath as _headrace
_headrace() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _headrace ]]; then
  _headrace "$@"
else
  compdef _headrace headrace
fi
)",
                     commands,
                     cases);
}

std::string fish_text(const std::string& text) {
  std::string result;
  for (const char c : first_sentence(text)) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string fish_script(const CLI::App& app) {
  std::string text =
      "# fish completion for headrace: made by \"headrace completion fish\".\n"
      "# Put it into ~/.config/fish/completions/headrace.fish\n";
  for (const CLI::App* command : commands_of(app)) {
    const std::string& name = command->get_name();
    text += fmt::format("complete -c headrace -f -n __fish_use_subcommand -a {} -d '{}'\n",
                        name,
                        fish_text(command->get_description()));
    for (const OptionFacts& option : facts_of(*command).options) {
      std::string line =
          fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}'", name);
      if (option.positional) {
        if (option.choices.empty()) continue;
        text += fmt::format(
            "complete -c headrace -f -n '__fish_seen_subcommand_from {0}; and test (count "
            "(commandline -opc)) -eq 2' -a '{1}'\n",
            name,
            joined(option.choices));
        continue;
      }
      for (const std::string& word : option.names)
        line += word.starts_with("--") ? " -l " + word.substr(2) : " -s " + word.substr(1);
      if (option.takes_value) line += option.choices.empty() ? " -r" : " -x";
      if (!option.choices.empty()) line += fmt::format(" -a '{}'", joined(option.choices));
      text += line + fmt::format(" -d '{}'\n", fish_text(option.what));
    }
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes the command in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(headrace completion bash)\n"
      "  headrace completion zsh > ~/.zfunc/_headrace\n"
      "  headrace completion fish > ~/.config/fish/completions/headrace.fish");
  command->callback([shell, &app] {
    print_text(*shell == "bash"  ? bash_script(app)
               : *shell == "zsh" ? zsh_script(app)
                                 : fish_script(app));
  });
}

}  // namespace headrace::cli
