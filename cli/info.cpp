#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/command.h"
#include "cli/progress.h"

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

Json names_json(const Array& array) {
  Json names = Json::array();
  for (const auto& name : array.dimension_names())
    names.push_back(name ? Json(*name) : Json(nullptr));
  return names;
}

Json array_facts(const Array& array, bool storage) {
  const Json metadata = parse_json(array.metadata_json());
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
      {"fill_value", metadata.is_object() ? metadata.value("fill_value", Json()) : Json()},
      {"dimension_names", names_json(array)},
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

Json own_facts(const Group& group, Json members) {
  return {{"type", "group"},
          {"store", group.store().url()},
          {"path", group.path()},
          {"zarr_format", group.zarr_format()},
          {"consolidated", group.consolidated()},
          {"attributes", parse_json(group.attributes_json())},
          {"members", std::move(members)},
          {"left_out", group.links_back()}};
}

// A member's shape, type, dimensions and units; of what cannot be opened, why.
Json member_facts(const Group& group, const Node& node) {
  Json facts = {{"name", node.name}, {"type", node.is_group ? "group" : "array"}};
  if (node.is_group) return facts;
  try {
    const Array array = group.array(node.name);
    facts["shape"] = array.shape();
    facts["dtype"] = array.dtype().to_string();
    facts["dimension_names"] = names_json(array);
    const Json attributes = parse_json(array.attributes_json());
    if (attributes.is_object() && attributes.contains("units"))
      facts["units"] = attributes["units"];
  } catch (const Error& e) {
    facts["error"] = e.what();
  }
  return facts;
}

// Of all arrays below a group.
void add_storage(Json& facts, const Group& group) {
  std::int64_t stored = 0;
  std::int64_t chunks = 0;
  double nbytes = 0;
  bool fixed = true;
  const Walk walk(group);
  Progress progress("info", static_cast<std::int64_t>(walk.arrays.size()));
  for (const Walk::ArrayPlace& place : walk.arrays) {
    const Array array = place.group.array(place.name);
    stored += array.nbytes_stored();
    chunks += array.nchunks_initialized();
    nbytes += nbytes_of(array);
    fixed = fixed && !array.dtype().variable_length();
    progress.advance(1);
  }
  facts["narrays"] = walk.arrays.size();
  facts["nbytes"] = fixed ? Json(static_cast<std::int64_t>(nbytes)) : Json(nullptr);
  facts["nchunks_initialized"] = chunks;
  facts["nbytes_stored"] = stored;
  facts["ratio"] = stored > 0 && fixed ? Json(nbytes / static_cast<double>(stored)) : Json(nullptr);
}

Json group_facts(const Group& group, bool storage) {
  Json members = Json::array();
  // Each is a document to read, where none are consolidated: a group may have a million.
  constexpr std::size_t kDescribed = 1000;
  for (const Node& node : group.members()) {
    if (members.size() < kDescribed) {
      members.push_back(member_facts(group, node));
    } else {
      members.push_back({{"name", node.name}, {"type", node.is_group ? "group" : "array"}});
    }
  }
  Json facts = own_facts(group, std::move(members));
  if (storage) add_storage(facts, group);
  return facts;
}

std::string line(const char* name, const std::string& value) {
  if (value.empty()) return std::string(name) + '\n';  // what follows stands below
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

std::string stored_text(const Json& facts) {
  if (!facts.contains("nbytes_stored")) return "";
  const Json& ratio = facts.at("ratio");
  return line(
      "stored",
      fmt::format("{}, {}{}",
                  counted(facts.at("nchunks_initialized").get<std::int64_t>(), "chunk"),
                  human_nbytes(facts.at("nbytes_stored").get<double>()),
                  ratio.is_null() ? "" : fmt::format(", ratio {:.2f}", ratio.get<double>())));
}

// A line each, indented below their number: values may be long.
std::string attributes_text(const Json& attributes) {
  if (!attributes.is_object()) return line("attributes", json_text(attributes));
  constexpr std::size_t kLongest = 200;
  std::string text = line("attributes", attributes.empty() ? "none" : "");
  for (const auto& [name, value] : attributes.items()) {
    std::string shown = value.is_string() ? value.get<std::string>() : json_text(value);
    if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + " ... (--json has all)";
    text += fmt::format("  {:<18} {}\n", printable(name), printable(shown));
  }
  return text;
}

// Beneath each other: name, shape, type, dimensions, units.
std::string members_text(const Json& members) {
  std::vector<std::array<std::string, 4>> rows;
  std::array<std::size_t, 4> widths{};
  for (const Json& member : members) {
    std::array<std::string, 4> row{printable(member.at("name").get<std::string>())};
    if (member.contains("error")) {
      row[1] = printable(member.at("error").get<std::string>());
    } else if (member.at("type") == "group") {
      row[1] = "group";
    } else if (member.contains("shape")) {
      row[1] = shape_text(member.at("shape").get<Shape>());
      row[2] = printable(member.at("dtype").get<std::string>());
      if (const Json& names = member.at("dimension_names"); !names.empty())
        row[3] = printable(json_text(names));
      if (member.contains("units") && member.at("units").is_string())
        row[3] += (row[3].empty() ? "" : " ") + printable(member.at("units").get<std::string>());
    }
    for (std::size_t i = 0; i < row.size(); ++i)
      if (i == 0 || !member.contains("error")) widths[i] = std::max(widths[i], row[i].size());
    rows.push_back(std::move(row));
  }
  std::string text = line("members", rows.empty() ? "none" : "");
  for (const auto& row : rows) {
    std::string shown = "  ";
    for (std::size_t i = 0; i < row.size(); ++i)
      shown += fmt::format("{:<{}}  ", row[i], std::max<std::size_t>(widths[i], 1));
    shown.erase(shown.find_last_not_of(' ') + 1);
    text += shown + '\n';
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
  return text + stored_text(facts);
}

std::string group_text(const Json& facts) {
  std::string text = line("consolidated", facts.at("consolidated").get<bool>() ? "yes" : "no");
  if (const auto n = facts.find("narrays"); n != facts.end())
    text +=
        line("arrays",
             n->dump() + ", of " +
                 (facts.at("nbytes").is_null() ? "no fixed size"
                                               : human_nbytes(facts.at("nbytes").get<double>())));
  text += stored_text(facts) + members_text(facts.at("members"));
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
  return text + (facts.at("type") == "array" ? array_text(facts) : group_text(facts)) +
         attributes_text(facts.at("attributes"));
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Print what metadata say of an array or group");
  const auto options = std::make_shared<Options>();
  add_target_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer(
      "Examples:\n"
      "  headrace info era5.zarr\n"
      "  headrace info era5.zarr t2m --storage\n"
      "  headrace info s3://bucket/era5.zarr --storage-option anon=true --json");
  command->add_flag("--storage",
                    options->storage,
                    "Count what is stored, too, of all arrays below a group: lists the store");
  command->callback([options] {
    const Target target = open_target(*options);
    const Json facts = target.is_group ? group_facts(target.group(), options->storage)
                                       : array_facts(target.array(), options->storage);
    if (options->json) {
      print_json(facts);
    } else {
      print_text(facts_text(facts));
    }
  });
}

}  // namespace headrace::cli
