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

std::string findings_text(const Json& report) {
  std::string text = printable(report.at("url").get<std::string>()) + '\n';
  for (const Json& row : report.at("findings")) {
    text += fmt::format("{:<8} {:<11} {}\n",
                        row.at("state").get<std::string>(),
                        row.at("check").get<std::string>(),
                        row.at("says").get<std::string>());
  }
  return text;
}

void look_at_place(const CommonOptions& options, int& status) {
  const Json report = Json::parse(doctor_json(
      options.target, parse_storage_options("--storage-option", options.storage_options)));
  options.json ? print_json(report) : print_text(findings_text(report));
  if (!report.at("good").get<bool>()) status = 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Print what this build and machine offer, and why not; of a path or URL what is wrong with "
      "it, and how it is mended (exit status 1 where something is)");
  const auto options = std::make_shared<CommonOptions>();
  command->add_option("place", options->target, "Path or URL of an array or group");
  command->add_option("--storage-option",
                      options->storage_options,
                      "NAME=VALUE for the place's store, as in anon=true");
  add_json_option(*command, *options);
  command->callback([options, command, &status] {
    if (command->count("place") > 0) return look_at_place(*options, status);
    if (!options->storage_options.empty()) throw_usage("--storage-option goes with a place");
    const Json report = Json::parse(doctor_json());
    if (options->json) {
      print_json(report);
    } else {
      print_text(report_text(report));
    }
  });
}

}  // namespace headrace::cli
