#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cli/by_dimension.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/suggest.h"

namespace headrace::cli {
namespace {

struct Options : CommonOptions {
  std::string destination;
  std::string chunks;
  std::string shards;
  std::vector<std::string> codecs;
  std::string max_memory = "1GiB";
  bool overwrite = false;
  bool verify = false;
  bool plan_only = false;
};

// "1,721,-1"
Shape extents_by_position(const char* option, std::string_view text) {
  Shape extents;
  for (;;) {
    const std::size_t comma = text.find(',');
    extents.push_back(parse_integer(option, text.substr(0, comma)));
    if (comma == std::string_view::npos) return extents;
    text.remove_prefix(comma + 1);
  }
}

// "time=1,lon=-1": the other dimensions keep what they have.
Shape extents_by_dimension(const std::string& option, const std::string& text, const Array& array) {
  Shape extents =
      option == "--shards" && array.is_sharded() ? array.shards().value() : array.chunks();
  for (const DimensionValue& value : by_dimension(option.c_str(), text, array))
    extents[value.axis] = parse_integer(option.c_str(), value.text);
  return extents;
}

// Of a group there is no array.
Shape extents_of(const char* option, const std::string& text, const Array* array) {
  const bool named = is_by_dimension(text);
  if (named && array == nullptr)
    throw_usage(std::string(option) +
                ": extents by dimension are for an array; a group takes them by position");
  Shape extents =
      named ? extents_by_dimension(option, text, *array) : extents_by_position(option, text);
  if (std::ranges::any_of(extents, [](std::int64_t extent) { return extent < 1 && extent != -1; }))
    throw_usage(fmt::format("{}: expected extents of at least 1, or -1 for all", option));
  return extents;
}

// "512MiB", "1GiB", "100000"
std::size_t parse_nbytes(const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"KiB", 0x1p10},
                                                       {"MiB", 0x1p20},
                                                       {"GiB", 0x1p30},
                                                       {"TiB", 0x1p40},
                                                       {"", 1},
                                                       {"kB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12},
                                                       {"B", 1}};
  char* end = nullptr;  // libc++ has no std::from_chars of double before 20
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view unit(end);
  for (const auto& [name, nbytes] : kUnits) {
    if (end != text.c_str() && unit == name && value * nbytes >= 1 && value * nbytes < 0x1p62)
      return static_cast<std::size_t>(value * nbytes);
  }
  throw_usage("--max-memory: expected a size as 512MiB, got \"" + text + '"');
}

// "zstd:3", "blosc", "none"
std::vector<CodecSpec> parse_codecs(const std::vector<std::string>& texts) {
  std::vector<CodecSpec> codecs;
  for (const std::string& text : texts) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    if (name == "none") {
      if (texts.size() > 1) throw_usage("--codec: none is without others");
      continue;
    }
    const auto level = [&](int otherwise) {
      if (colon == std::string::npos) return otherwise;
      return static_cast<int>(parse_integer("--codec", std::string_view(text).substr(colon + 1)));
    };
    if (name == "zstd") {
      codecs.push_back(codec::zstd(level(3)));
    } else if (name == "gzip") {
      codecs.push_back(codec::gzip(level(5)));
    } else if (name == "lz4") {
      codecs.push_back(codec::lz4(level(1)));
    } else if (name == "blosc") {
      codecs.push_back(codec::blosc("lz4", level(5)));
    } else if (name == "crc32c") {
      codecs.push_back(codec::crc32c());
    } else {
      throw_usage(
          "--codec: there is no \"" + name + '"' +
          did_you_mean(name, {"zstd", "gzip", "lz4", "blosc", "crc32c", "none"}, "there are"));
    }
  }
  return codecs;
}

RechunkOptions rechunk_options(const Array* array, const Options& options, bool choose_shards) {
  RechunkOptions result;
  if (!options.chunks.empty()) result.chunks = extents_of("--chunks", options.chunks, array);
  if (!options.shards.empty()) {
    result.shards = extents_of("--shards", options.shards, array);
  } else if (choose_shards) {
    result.shards = Shape();
  }
  if (!options.codecs.empty()) result.codecs = parse_codecs(options.codecs);
  result.max_memory = parse_nbytes(options.max_memory);
  result.overwrite = options.overwrite;
  result.verify = options.verify;
  return result;
}

// A folder or URL, made when missing, or a new archive.
Json plan_json(const RechunkPlan& plan) {
  Json passes = Json::array();
  for (const RechunkPass& pass : plan.passes) {
    Shape block;
    for (const Shape& sizes : pass.block_sizes)
      block.push_back(sizes.empty() ? 0 : std::ranges::max(sizes));
    passes.push_back({{"block", block},
                      {"blocks", pass.nblocks},
                      {"block_nbytes", pass.block_nbytes},
                      {"chunks_read", pass.chunks_read},
                      {"nbytes_read", pass.nbytes_read},
                      {"nbytes_written", pass.nbytes_written}});
  }
  return {{"path", plan.path},
          {"chunks", plan.chunks},
          {"shards", plan.shards ? Json(*plan.shards) : Json(nullptr)},
          {"passes", std::move(passes)},
          {"nbytes_read", plan.nbytes_read()},
          {"nbytes_written", plan.nbytes_written()},
          {"amplification", plan.amplification()}};
}

std::string plan_text(const Json& plan) {
  const auto nbytes = [](const Json& n) { return human_nbytes(n.get<double>()); };
  std::string text = fmt::format(
      "{}: chunks {}{}, amplification {:.3g}\n",
      plan.at("path").get<std::string>().empty() ? "array"
                                                 : printable(plan.at("path").get<std::string>()),
      shape_text(plan.at("chunks").get<Shape>()),
      plan.at("shards").is_null() ? "" : " in shards " + shape_text(plan.at("shards").get<Shape>()),
      plan.at("amplification").get<double>());
  for (const Json& pass : plan.at("passes")) {
    text += fmt::format("  {} of {} ({}): reads {}, writes {}\n",
                        counted(pass.at("blocks").get<std::int64_t>(), "block"),
                        shape_text(pass.at("block").get<Shape>()),
                        nbytes(pass.at("block_nbytes")),
                        nbytes(pass.at("nbytes_read")),
                        nbytes(pass.at("nbytes_written")));
  }
  return text;
}

template <typename Node>
void run(const Node& source, const Array* array, const Options& options, bool choose_shards) {
  RechunkOptions chosen = rechunk_options(array, options, choose_shards);
  Json arrays = Json::array();
  std::vector<NodeLeftOut> left_out;
  chosen.left_out = [&](const NodeLeftOut& node) { left_out.push_back(node); };
  for (const RechunkPlan& plan : plan_rechunk(source, chosen)) arrays.push_back(plan_json(plan));
  chosen.left_out = nullptr;  // said once
  std::string plans = left_out_text(left_out);
  for (const Json& plan : arrays) plans += plan_text(plan);
  if (!options.plan_only) {
    // Beside the work, which goes on whoever reads of it, or stops to.
    if (!options.json) say(plans);
    Store store = open_store(options.destination,
                             mode_of_destination(options.destination, options.overwrite));
    Progress progress("rechunk", 1, Progress::Unit::bytes);
    progress.begin();
    chosen.progress = [&](std::int64_t done, std::int64_t total) { progress.set(done, total); };
    try {
      rechunk(source, store, "", chosen);
    } catch (...) {
      store.discard();
      throw;
    }
    store.close();
  }
  if (options.json) {
    print_json({{"destination", options.destination},
                {"done", !options.plan_only},
                {"verified", options.verify && !options.plan_only},
                {"left_out", names_of(left_out)},
                {"arrays", std::move(arrays)}});
  } else if (options.plan_only) {
    print_text(plans);
  }
}

void add_command(CLI::App& app, const char* name, const char* what, bool convert) {
  CLI::App* command = app.add_subcommand(name, what);
  const auto options = std::make_shared<Options>();
  add_common_options(*command, *options);
  add_place(*command, "destination", options->destination, "Path or URL; made when missing")
      ->required();
  CLI::Option* chunks = command->add_option(
      "--chunks",
      options->chunks,
      "Extents, 1,721,1440, or of an array by dimension, time=1,lon=-1: the others keep theirs; -1 "
      "for a whole dimension");
  if (!convert) chunks->required();
  command->footer(convert ? "Examples:\n"
                            "  headrace convert old.zarr new.zarr\n"
                            "  headrace convert old.zarr new.zip --codec blosc:5 --verify"
                          : "Examples:\n"
                            "  headrace rechunk era5.zarr/t2m series.zarr --chunks=-1,10,10\n"
                            "  headrace rechunk era5.zarr/t2m days.zarr --chunks time=24\n"
                            "  headrace rechunk a.zarr b.zarr --chunks 24,721,1440 --plan");
  command->add_option("--shards", options->shards, "The same, multiples of the chunks");
  command->add_option(
      "--codec", options->codecs, "zstd:LEVEL, gzip:LEVEL, blosc:LEVEL, lz4, crc32c, none; repeat");
  command->add_option("--max-memory", options->max_memory, "Of decoded elements, as in 512MiB");
  command->add_flag(
      "--overwrite",
      options->overwrite,
      "Remove what is at the destination; what the same command left halfway goes on");
  command->add_flag("--verify", options->verify, "Compare both at the end");
  command->add_flag("--plan", options->plan_only, "Say how it would go, and stop");
  command->callback([options, convert] {
    const Target target = open_target(*options);
    if (target.is_group) {
      run(target.group(), nullptr, *options, convert);
    } else {
      const Array array = target.array();
      run(array, &array, *options, convert);
    }
  });
}

}  // namespace

void add_rechunk(CLI::App& app) {
  add_command(app, "rechunk", "Copy an array or a group into other chunks, within memory", false);
}

void add_convert(CLI::App& app) {
  add_command(app, "convert", "Copy an array or a group to sharded Zarr v3", true);
}

}  // namespace headrace::cli
