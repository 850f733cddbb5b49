#include <fmt/format.h>

#include "cli/command.h"

namespace headrace::cli {
namespace {

struct Options : CommonOptions {
  int depth = 0;  // 0: all
};

Json array_node(const std::string& name, const Array& array) {
  return {{"name", name},
          {"type", "array"},
          {"shape", array.shape()},
          {"dtype", array.dtype().to_string()}};
}

Json group_node(const std::string& name, const Group& group, int levels, NodeCount& count);

// What cannot be opened is shown with the reason, and so are its neighbours.
Json member_node(const Node& node, const Group& group, int levels, NodeCount& count) {
  count.add();
  try {
    return node.is_group ? group_node(node.name, group.group(node.name), levels, count)
                         : array_node(node.name, group.array(node.name));
  } catch (const Error& e) {
    return {{"name", node.name}, {"type", node.is_group ? "group" : "array"}, {"error", e.what()}};
  }
}

// `levels` counts those still to be shown below this group; negative means all.
Json group_node(const std::string& name, const Group& group, int levels, NodeCount& count) {
  Json members = Json::array();
  if (levels != 0) {
    for (const Node& node : group.members()) {
      members.push_back(member_node(node, group, levels - 1, count));
    }
    for (const std::string& link : group.links_back()) {
      members.push_back({{"name", link}, {"type", "group"}, {"left_out", kLeadsBack}});
    }
  }
  return {{"name", name}, {"type", "group"}, {"members", std::move(members)}};
}

std::string label(const Json& node) {
  const std::string name = printable(node.at("name").get<std::string>());
  if (node.contains("error")) return name + ": " + printable(node.at("error").get<std::string>());
  if (node.contains("left_out")) return name + ": left out, " + kLeadsBack;
  if (node.at("type") == "group") return name;
  return fmt::format("{} {} {}",
                     name,
                     shape_text(node.at("shape").get<Shape>()),
                     printable(node.at("dtype").get<std::string>()));
}

void append_members(const Json& node, const std::string& indent, std::string& text) {
  if (!node.contains("members")) return;
  const Json& members = node.at("members");
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool last = i + 1 == members.size();
    // Box drawing, in UTF-8: a corner or a tee, and the line that goes on below a tee.
    text +=
        indent +
        (last ? "\xe2\x94\x94\xe2\x94\x80\xe2\x94\x80 " : "\xe2\x94\x9c\xe2\x94\x80\xe2\x94\x80 ") +
        label(members[i]) + '\n';
    append_members(members[i], indent + (last ? "    " : "\xe2\x94\x82   "), text);
  }
}

}  // namespace

void add_tree(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tree", "Print the groups and arrays below a group");
  const auto options = std::make_shared<Options>();
  add_target_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer("Examples:\n  headrace tree era5.zarr\n  headrace tree era5.zarr --depth 1");
  command->add_option("--depth", options->depth, "Levels to show")->check(CLI::Range(1, 1000));
  command->callback([options] {
    const Target target = open_target(*options);
    const std::string name = target.path.empty() ? "/" : target.path;
    NodeCount count;
    const Json root =
        target.is_group
            ? group_node(name, target.group(), options->depth > 0 ? options->depth : -1, count)
            : array_node(name, target.array());
    if (options->json) {
      print_json(root);
      return;
    }
    std::string text = label(root) + '\n';
    append_members(root, "", text);
    print_text(text);
  });
}

}  // namespace headrace::cli
