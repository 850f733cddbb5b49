#include <fmt/format.h>

#include "cli/command.h"

namespace headrace::cli {
namespace {

std::string value_text(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return json_text(value);
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " ") + value_text(item);
  return text;
}

std::string availability(const Json& row) {
  if (row.at("available").get<bool>()) return "yes";
  return "no: " + row.at("why_not").get<std::string>();
}

std::string usage(const Json& row) {
  if (!row.at("available").get<bool>()) return "";
  const auto encodes = row.at("used_to_encode").get<std::string>();
  return ": decodes " + row.at("used").get<std::string>() +
         (encodes.empty() ? "" : "; encodes " + encodes);
}

std::string report_text(const Json& report) {
  std::string text;
  for (const auto& [section, content] : report.items()) {
    if (!content.is_structured()) {
      text += fmt::format("{:<10} {}\n", section, value_text(content));
    } else if (section == "codecs") {
      text += "codecs\n";
      for (const Json& row : content) {
        text += fmt::format("  {:<18} {:<18} {:<6} {}\n",
                            row.at("codec").get<std::string>(),
                            row.at("implementation").get<std::string>(),
                            row.at("device").get<std::string>(),
                            availability(row) + usage(row));
      }
    } else if (section == "devices") {
      text += "devices\n";
      for (const Json& row : content) {
        text +=
            fmt::format("  {:<18} {}\n", row.at("device").get<std::string>(), availability(row));
      }
    } else if (content.contains("available")) {
      text += fmt::format("{:<10} {}\n", section, availability(content));
    } else {
      text += section + '\n';
      for (const auto& [name, value] : content.items()) {
        text += fmt::format("  {:<22} {}\n", name, value_text(value));
      }
    }
  }
  return text;
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "Print what this build and machine offer, and why not");
  const auto options = std::make_shared<CommonOptions>();
  add_json_option(*command, *options);
  command->callback([options] {
    const Json report = Json::parse(doctor_json());
    if (options->json) {
      print_json(report);
    } else {
      print_text(report_text(report));
    }
  });
}

}  // namespace headrace::cli
