#include <fmt/format.h>

#include <functional>

#include "cli/command.h"
#include "cli/progress.h"

namespace headrace::cli {
namespace {

struct Finding {
  std::string path;
  std::int64_t chunks = 0;
  Json bad = Json::array();
};

Json failure(const std::string& key, const Error& error) {
  return {{"key", key}, {"code", error_code_name(error.code())}, {"message", error.what()}};
}

Finding verify_array(const std::string& path, const std::function<Array()>& open) {
  Finding finding;
  finding.path = path;
  try {
    finding.chunks = open().verify([&](const std::string& key, const Error& error) {
      finding.bad.push_back(failure(key, error));
    });
  } catch (const Error& e) {
    finding.bad.push_back(failure("", e));  // metadata, or a codec that this build lacks
  }
  return finding;
}

std::string path_within(const Group& group, const std::string& name) {
  return group.path().empty() ? name : group.path() + '/' + name;
}

// Groups that cannot be opened are findings at once.
void gather_arrays(const Group& group,
                   std::vector<std::pair<std::string, Group>>& arrays,
                   std::vector<Finding>& findings) {
  for (const Node& node : group.members()) {
    if (!node.is_group) {
      arrays.emplace_back(node.name, group);
      continue;
    }
    try {
      gather_arrays(group.group(node.name), arrays, findings);
    } catch (const Error& e) {
      findings.push_back({path_within(group, node.name), 0, Json::array({failure("", e)})});
    }
  }
}

std::vector<Finding> verify_group(const Group& root) {
  std::vector<std::pair<std::string, Group>> arrays;
  std::vector<Finding> findings;
  gather_arrays(root, arrays, findings);
  Progress progress("verify", static_cast<std::int64_t>(arrays.size()));
  for (const auto& [name, group] : arrays) {
    findings.push_back(
        verify_array(path_within(group, name), [&, &n = name, &g = group] { return g.array(n); }));
    progress.advance(1);
  }
  return findings;
}

Json report_json(const std::vector<Finding>& findings) {
  Json arrays = Json::array();
  std::int64_t chunks = 0;
  std::size_t bad = 0;
  for (const Finding& finding : findings) {
    arrays.push_back({{"path", finding.path}, {"chunks", finding.chunks}, {"bad", finding.bad}});
    chunks += finding.chunks;
    bad += finding.bad.size();
  }
  return {{"ok", bad == 0}, {"chunks", chunks}, {"bad", bad}, {"arrays", std::move(arrays)}};
}

std::string report_text(const Json& report) {
  std::string text;
  for (const Json& array : report.at("arrays")) {
    for (const Json& bad : array.at("bad")) {
      const std::string key = bad.at("key").get<std::string>();
      text += fmt::format("bad: {}: {}\n",
                          key.empty() ? array.at("path").get<std::string>() : key,
                          bad.at("message").get<std::string>());
    }
  }
  return text + fmt::format("{} arrays, {} chunks, {} bad\n",
                            report.at("arrays").size(),
                            report.at("chunks").get<std::int64_t>(),
                            report.at("bad").get<std::size_t>());
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "verify", "Decode every chunk, check every checksum, name every bad chunk");
  const auto options = std::make_shared<CommonOptions>();
  add_common_options(*command, *options);
  command->callback([options, &status] {
    const Target target = open_target(*options);
    const auto findings =
        target.is_group
            ? verify_group(target.group())
            : std::vector<Finding>{verify_array(target.path, [&] { return target.array(); })};
    const Json report = report_json(findings);
    if (options->json) {
      print_json(report);
    } else {
      print_text(report_text(report));
    }
    if (!report.at("ok").get<bool>()) status = 1;
  });
}

}  // namespace headrace::cli
