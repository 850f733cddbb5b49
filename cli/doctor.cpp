#include <fmt/format.h>

#include <map>

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

bool is_number_of_bytes(const std::string& name) {
  return name.find("nbytes") != std::string::npos || name == "memory_budget" ||
         name == "page_size" || name == "coalesce_gap" || name == "coalesce_run" ||
         name == "locked_memory" || name == "address_space";
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
        const bool nbytes = value.is_number() && is_number_of_bytes(name);
        text += fmt::format(
            "  {:<24} {}\n", name, nbytes ? human_nbytes(value.get<double>()) : value_text(value));
      }
    }
  }
  return text;
}

// The first GPU that works; null where none does.
const Json* first_gpu(const Json& report) {
  for (const Json& row : report.at("devices"))
    if (row.at("device").get<std::string>().starts_with("cuda") && row.at("available").get<bool>())
      return &row;
  return nullptr;
}

std::string why_no_gpu(const Json& report) {
  for (const Json& row : report.at("devices"))
    if (row.at("device").get<std::string>().starts_with("cuda"))
      return row.at("why_not").get<std::string>();
  return "this build has no part for one";
}

// Codecs that nothing on the host decodes.
std::string missing_codecs(const Json& report) {
  std::map<std::string, bool> served;
  for (const Json& row : report.at("codecs")) {
    const bool host = row.at("device") == "cpu" && row.at("available").get<bool>();
    served[row.at("codec").get<std::string>()] |= host;
  }
  std::string text;
  for (const auto& [codec, has] : served)
    if (!has) text += (text.empty() ? "" : ", ") + codec;
  return text;
}

// The verdict, then what there is of what matters, a line each.
std::string short_text(const Json& report) {
  const std::string missing = missing_codecs(report);
  const Json* const gpu = first_gpu(report);
  const Json& cpu = report.at("cpu");
  const Json& ring = report.at("io_uring");
  const Json& configured = report.at("config");
  std::string text = fmt::format("headrace {}: good, arrays are read to {}\n",
                                 report.at("version").get<std::string>(),
                                 gpu == nullptr ? "the CPU" : "the CPU and to GPUs");
  text += fmt::format("cpu       {}: {} of {}, {}, {} of memory\n",
                      value_text(cpu.at("model")),
                      cpu.at("allowed_processors").dump(),
                      counted(cpu.at("processors").get<std::int64_t>(), "processor"),
                      counted(configured.at("threads").get<std::int64_t>(), "thread"),
                      human_nbytes(report.at("memory").at("nbytes").get<double>()));
  text += gpu == nullptr ? fmt::format("gpu       none: {}\n", why_no_gpu(report))
                         : fmt::format("gpu       {}\n", gpu->at("device").get<std::string>());
  text += fmt::format("files     {}\n",
                      ring.at("available").get<bool>()
                          ? "pread; io_uring by the store's option io=uring"
                          : "pread; no io_uring: " + ring.at("why_not").get<std::string>());
  text += missing.empty() ? "codecs    all that this version knows\n"
                          : fmt::format("codecs    all but {}\n", missing);
  return text +
         "--all says more; of a path or URL, headrace doctor PLACE says what is wrong with it\n";
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
  add_place(*command, "place", options->target, "Path or URL of an array or group");
  command->add_option("--storage-option",
                      options->storage_options,
                      "NAME=VALUE for the place's store, as in anon=true");
  const auto all = std::make_shared<bool>(false);
  command->add_flag("--all", *all, "Every codec, limit and setting of this build and machine");
  add_json_option(*command, *options);
  command->footer(
      "Examples:\n"
      "  headrace doctor\n"
      "  headrace doctor --all\n"
      "  headrace doctor s3://bucket/era5.zarr --storage-option anon=true");
  command->callback([options, all, command, &status] {
    if (command->count("place") > 0) return look_at_place(*options, status);
    if (!options->storage_options.empty()) throw_usage("--storage-option goes with a place");
    const Json report = Json::parse(doctor_json());
    if (options->json) {
      print_json(report);
    } else {
      print_text(*all ? report_text(report) : short_text(report));
    }
  });
}

}  // namespace headrace::cli
