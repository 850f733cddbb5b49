#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"

namespace headrace::cli {
namespace {

struct Options : CommonOptions {
  bool storage = false;
};

Json codecs_json(const std::vector<CodecSpec>& codecs) {
  Json result = Json::array();
  for (const CodecSpec& codec : codecs) {
    Json row = {{"name", codec.name}};
    if (!codec.configuration.empty()) row["configuration"] = parse_json(codec.configuration);
    result.push_back(std::move(row));
  }
  return result;
}

// One extent a dimension, or the edges of a rectilinear grid, as in the metadata.
Json chunks_json(const Array& array, const Json& metadata) {
  if (array.is_rectilinear() && !array.is_sharded())
    return metadata.at("chunk_grid").at("configuration").at("chunk_shapes");
  return array.chunks();
}

Json shards_json(const Array& array, const Json& metadata) {
  if (!array.is_sharded()) return nullptr;
  if (array.is_rectilinear())
    return metadata.at("chunk_grid").at("configuration").at("chunk_shapes");
  return *array.shards();
}

Json array_facts(const Array& array, bool storage) {
  const Json metadata = parse_json(array.metadata_json());
  Json names = Json::array();
  for (const auto& name : array.dimension_names())
    names.push_back(name ? Json(*name) : Json(nullptr));
  const double nbytes = nbytes_of(array);
  const bool fixed = !array.dtype().variable_length();  // else only the elements know
  Json facts = {
      {"type", "array"},
      {"store", array.store().url()},
      {"path", array.path()},
      {"zarr_format", array.zarr_format()},
      {"shape", array.shape()},
      {"dtype", array.dtype().to_string()},
      {"chunks", chunks_json(array, metadata)},
      {"shards", shards_json(array, metadata)},
      {"codecs", codecs_json(array.codecs())},
      {"fill_value", metadata.value("fill_value", Json(nullptr))},
      {"dimension_names", std::move(names)},
      {"attributes", parse_json(array.attributes_json())},
      {"nbytes", fixed ? Json(static_cast<std::int64_t>(nbytes)) : Json(nullptr)},
      {"nchunks", array.nchunks()},
  };
  if (storage) {
    const std::int64_t stored = array.nbytes_stored();
    facts["nchunks_initialized"] = array.nchunks_initialized();
    facts["nbytes_stored"] = stored;
    facts["ratio"] =
        stored > 0 && fixed ? Json(nbytes / static_cast<double>(stored)) : Json(nullptr);
  }
  return facts;
}

Json group_facts(const Group& group) {
  Json members = Json::array();
  for (const Node& node : group.members()) {
    members.push_back({{"name", node.name}, {"type", node.is_group ? "group" : "array"}});
  }
  return {{"type", "group"},
          {"store", group.store().url()},
          {"path", group.path()},
          {"zarr_format", group.zarr_format()},
          {"consolidated", group.consolidated()},
          {"attributes", parse_json(group.attributes_json())},
          {"members", std::move(members)},
          {"left_out", group.links_back()}};
}

std::string line(const char* name, const std::string& value) {
  return fmt::format("{:<12} {}\n", name, printable(value));
}

std::string list_text(const Json& shape) {
  if (shape.is_null()) return "none";
  const bool edges = std::ranges::any_of(shape, [](const Json& item) { return item.is_array(); });
  return edges ? json_text(shape) : shape_text(shape.get<Shape>());
}

std::string codecs_text(const Json& codecs) {
  std::string text;
  for (const Json& codec : codecs) {
    text += (text.empty() ? "" : ", ") + codec.at("name").get<std::string>();
    if (codec.contains("configuration")) text += ' ' + json_text(codec.at("configuration"));
  }
  return text;
}

std::string array_text(const Json& facts) {
  std::string text = line("shape", list_text(facts.at("shape")));
  text += line("dtype", facts.at("dtype").get<std::string>());
  text += line("chunks", list_text(facts.at("chunks")));
  text += line("shards", list_text(facts.at("shards")));
  text += line("codecs", codecs_text(facts.at("codecs")));
  text += line("fill value", json_text(facts.at("fill_value")));
  if (!facts.at("dimension_names").empty())
    text += line("dimensions", json_text(facts.at("dimension_names")));
  if (const Json& nbytes = facts.at("nbytes"); !nbytes.is_null())
    text += line("size", human_nbytes(nbytes.get<double>()));
  text += line("chunk count", facts.at("nchunks").dump());
  if (facts.contains("nbytes_stored")) {
    const Json& ratio = facts.at("ratio");
    text += line(
        "stored",
        fmt::format("{} chunks, {}{}",
                    facts.at("nchunks_initialized").dump(),
                    human_nbytes(facts.at("nbytes_stored").get<double>()),
                    ratio.is_null() ? "" : fmt::format(", ratio {:.2f}", ratio.get<double>())));
  }
  return text;
}

std::string group_text(const Json& facts) {
  std::string text = line("consolidated", facts.at("consolidated").get<bool>() ? "yes" : "no");
  for (const Json& member : facts.at("members")) {
    text +=
        line(member.at("type").get<std::string>().c_str(), member.at("name").get<std::string>());
  }
  for (const Json& link : facts.at("left_out"))
    text += line("left out", link.get<std::string>() + ": " + kLeadsBack);
  return text;
}

std::string facts_text(const Json& facts) {
  const std::string path = facts.at("path").get<std::string>();
  std::string text = line("store", facts.at("store").get<std::string>());
  text += line("path", path.empty() ? "/" : path);
  text += line(
      "type",
      fmt::format(
          "{}, Zarr v{}", facts.at("type").get<std::string>(), facts.at("zarr_format").dump()));
  text += line("attributes", std::to_string(facts.at("attributes").size()));
  return text + (facts.at("type") == "array" ? array_text(facts) : group_text(facts));
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Print what metadata say of an array or group");
  const auto options = std::make_shared<Options>();
  add_common_options(*command, *options);
  command->add_flag("--storage", options->storage, "Count what is stored, too: lists the store");
  command->callback([options] {
    const Target target = open_target(*options);
    const Json facts = target.is_group ? group_facts(target.group())
                                       : array_facts(target.array(), options->storage);
    if (options->json) {
      print_json(facts);
    } else {
      print_text(facts_text(facts));
    }
  });
}

}  // namespace headrace::cli
