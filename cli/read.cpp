#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "cli/by_dimension.h"
#include "cli/command.h"
#include "cli/npy.h"
#include "cli/progress.h"
#include "cli/slabs.h"
#include "cli/stats.h"
#include "cli/text.h"

namespace headrace::cli {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

struct Options : CommonOptions {
  std::string selection;
  std::string format;
  std::string output;
};

void write_elements(const Array& array,
                    const std::vector<SelectionItem>& items,
                    const Options& options) {
  if (array.dtype().variable_length() && options.format != "text") {
    throw Error(ErrorCode::unsupported,
                "--format " + options.format + ": elements of " + array.dtype().to_string() +
                    " are of variable length; text shows them");
  }
  const Shape shape = array.result_shape(Selection(items));
  Output out(options.output);
  if (options.format != "text" && out.is_terminal()) {
    throw_usage("--format " + options.format + ": not to a terminal; use --output or a pipe");
  }
  const TensorView whole{nullptr, shape, {}, array.dtype(), Device::cpu()};
  Progress progress("read", static_cast<std::int64_t>(whole.size()));
  TextWriter text(out, shape);
  if (options.format == "npy") out.write(npy_header(array.dtype(), shape));
  for_each_slab(array, items, kSlabBytes, SlabOrder::c, [&](const Tensor& slab) {
    if (options.format == "text") {
      text.put(slab);
    } else {
      out.write(slab.data(), slab.nbytes());
    }
    progress.advance(static_cast<std::int64_t>(slab.view().size()));
  });
  if (options.format == "text" && whole.size() > 0) out.write("\n");
  out.finish();
}

void print_stats(const Array& array,
                 const std::vector<SelectionItem>& items,
                 const Options& options) {
  const Json stats = selection_stats(array, items);
  Output out(options.output);
  if (options.json) {
    out.write(json_text(stats, 2) + '\n');
  } else {
    for (const auto& [name, value] : stats.items()) {
      out.write(fmt::format(
          "{:<10} {}\n", name, value.is_string() ? value.get<std::string>() : json_text(value)));
    }
  }
  out.finish();
}

// By the file's name; whoever gets a file of text that is called .npy finds out much later.
std::string format_of(const std::string& output) {
  constexpr std::pair<std::string_view, const char*> kSuffixes[] = {
      {".npy", "npy"}, {".raw", "raw"}, {".bin", "raw"}, {".txt", "text"}};
  std::string lower = output;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [suffix, format] : kSuffixes) {
    if (lower.ends_with(suffix)) return format;
  }
  throw_usage("--output " + output +
              ": name its --format: npy, raw, text or stats (without one .npy, .raw, .bin and .txt "
              "say it)");
}

void run(Options options) {
  if (options.format.empty()) {
    options.format = !options.output.empty() ? format_of(options.output)
                     : options.json          ? "stats"
                                             : "text";
  }
  if (options.json && options.format != "stats" && options.output.empty()) {
    throw_usage("--json with --format " + options.format +
                " needs --output: elements are not JSON");
  }
  const Array array = open_target_array(options);
  const auto items = selection_of(array, options.selection);
  if (options.format == "stats") {
    print_stats(array, items, options);
    return;
  }
  write_elements(array, items, options);
  if (options.json) {
    const Shape shape = array.result_shape(Selection(items));
    const TensorView whole{nullptr, shape, {}, array.dtype(), Device::cpu()};
    print_json({{"shape", shape},
                {"dtype", array.dtype().to_string()},
                {"nbytes", whole.size() * array.dtype().itemsize()},
                {"format", options.format},
                {"output", options.output}});
  }
}

}  // namespace

void add_read(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("read", "Print an array's elements, or write them to a file");
  const auto options = std::make_shared<Options>();
  add_common_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer(
      "Examples:\n"
      "  headrace read era5.zarr/t2m --selection \"0,100:110,::2\"\n"
      "  headrace read era5.zarr t2m --selection time=-1 --output t2m.npy\n"
      "  headrace read era5.zarr/t2m --format stats");
  command->add_option("--selection",
                      options->selection,
                      "As NumPy has it, \"0:2,:,5\", or by dimension, time=0:2,lon=5; default: "
                      "everything");
  command
      ->add_option("--format",
                   options->format,
                   "npy, raw, text or stats; default: what the suffix of --output says, else text")
      ->check(CLI::IsMember({"npy", "raw", "text", "stats"}));
  add_place(*command,
            "--output,-o",
            options->output,
            "File to write instead of standard output, whole or not");
  command->callback([options] { run(*options); });
}

}  // namespace headrace::cli
