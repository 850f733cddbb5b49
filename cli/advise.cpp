#include <fmt/format.h>

#include <memory>
#include <string_view>

#include "cli/by_dimension.h"
#include "cli/command.h"

namespace headrace::cli {
namespace {

struct Options : CommonOptions {
  std::int64_t window = 1;
  std::vector<std::string> patch;
  std::int64_t batch = 1;
};

// The window along the first dimension, "lat=256" along others, the rest whole.
Shape sample_of(const Array& array, const Options& options) {
  Shape sample(array.shape().size(), -1);
  if (!sample.empty()) sample[0] = options.window;
  if (options.patch.empty()) return sample;
  const std::string patch = fmt::format("{}", fmt::join(options.patch, ","));
  for (const DimensionValue& value : by_dimension("--patch", patch, array))
    sample[value.axis] = parse_integer("--patch", value.text);
  return sample;
}

Json cost_json(const SampleCost& cost) {
  return {{"chunks_per_sample", cost.chunks},
          {"nbytes_per_sample", cost.nbytes},
          {"amplification", cost.amplification}};
}

std::string cost_text(std::string_view layout, const SampleCost& cost) {
  return fmt::format("{:<9} amplification {:.3g}, {} and {} a sample\n",
                     layout,
                     cost.amplification,
                     human_nbytes(cost.nbytes),
                     counted(cost.chunks, "chunk"));
}

Json codecs_json(const std::vector<CodecSpec>& codecs) {
  Json result = Json::array();
  for (const CodecSpec& codec : codecs)
    result.push_back({{"name", codec.name}, {"configuration", parse_json(codec.configuration)}});
  return result;
}

std::string advice_text(const Advice& advice) {
  std::string codecs;
  for (const CodecSpec& codec : advice.codecs)
    codecs += (codecs.empty() ? "" : ", ") + printable(codec.name + ' ' + codec.configuration);
  return cost_text("present", advice.present) + cost_text("proposed", advice.proposed) +
         fmt::format("chunks    {}\nshards    {}\ncodecs    {}\n",
                     shape_text(advice.chunks),
                     advice.shards ? shape_text(*advice.shards) : "none",
                     codecs);
}

}  // namespace

void add_advise(CLI::App& app) {
  CLI::App* command = app.add_subcommand("advise", "Propose chunks for how an array is read");
  const auto options = std::make_shared<Options>();
  add_target_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer(
      "Examples:\n"
      "  headrace advise era5.zarr/t2m --window 24\n"
      "  headrace advise era5.zarr/t2m --patch lat=256,lon=256 --batch 8");
  command->add_option("--window", options->window, "Extent of a sample along the first dimension");
  command->add_option(
      "--patch", options->patch, "Along others, as in lat=256,lon=256 or 1=256; else whole");
  command->add_option("--batch", options->batch, "Samples at once");
  command->callback([options] {
    const Array array = open_target_array(*options);
    const Advice advice = advise(array, {sample_of(array, *options), options->batch});
    if (!options->json) return print_text(advice_text(advice));
    print_json({{"chunks", advice.chunks},
                {"shards", advice.shards ? Json(*advice.shards) : Json(nullptr)},
                {"codecs", codecs_json(advice.codecs)},
                {"present", cost_json(advice.present)},
                {"proposed", cost_json(advice.proposed)}});
  });
}

}  // namespace headrace::cli
