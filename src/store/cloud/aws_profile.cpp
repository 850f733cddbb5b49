#include "store/cloud/aws_profile.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "store/cloud/request.h"

namespace headrace {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A comment begins a line, or stands behind a space.
std::string_view without_comment(std::string_view value) {
  for (std::size_t i = 1; i < value.size(); ++i) {
    if ((value[i] == '#' || value[i] == ';') && is_space(value[i - 1])) return value.substr(0, i);
  }
  return value;
}

// "[ profile  name ]" to "profile name".
std::string section_name(std::string_view line) {
  line.remove_prefix(1);
  line = trim(line.substr(0, line.find(']')));
  const std::size_t space = line.find_first_of(" \t");
  if (space == std::string_view::npos) return std::string(line);
  return std::string(line.substr(0, space)) + " " + std::string(trim(line.substr(space)));
}

ProfileSettings section_of(const Surroundings& around,
                           const char* variable,
                           std::string_view file,
                           const std::string& section) {
  const std::string path = around.variable(variable).value_or(in_home(around, file));
  const std::optional<std::string> text = read_small_file(path);
  return text ? read_section(*text, section) : ProfileSettings();
}

}  // namespace

ProfileSettings read_section(std::string_view file, std::string_view section) {
  ProfileSettings settings;
  bool within = false;
  while (!file.empty()) {
    const std::size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    const std::string_view content = trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[') {
      within = section_name(content) == section;
      continue;
    }
    const std::size_t equals = content.find('=');
    // Indented: of the setting above, which has a section of its own ("s3 =").
    if (!within || is_space(line.front()) || equals == std::string_view::npos) continue;
    settings[lower(trim(content.substr(0, equals)))] =
        std::string(trim(without_comment(content.substr(equals + 1))));
  }
  return settings;
}

std::string profile_name(const std::string& wanted, const Surroundings& around) {
  if (!wanted.empty()) return wanted;
  return around.variable("AWS_PROFILE").value_or("default");
}

ProfileSettings read_profile(const std::string& profile, const Surroundings& around) {
  ProfileSettings settings =
      section_of(around, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", profile);
  ProfileSettings config =
      section_of(around, "AWS_CONFIG_FILE", ".aws/config", "profile " + profile);
  if (config.empty() && profile == "default") {
    config = section_of(around, "AWS_CONFIG_FILE", ".aws/config", profile);
  }
  settings.merge(config);
  return settings;
}

}  // namespace headrace
