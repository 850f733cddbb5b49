#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include "cli/by_dimension.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace headrace::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options : CommonOptions {
  std::string pattern = "whole";
  StoreBenchOptions store{};
  std::string selection;
  int repeat = 5;
  int samples = 200;
  std::uint64_t seed = 1;
};

// One repetition: the calls it makes and the bytes of their results.
using Calls = std::vector<std::function<std::size_t()>>;

std::size_t nbytes_of(const DType& dtype, const Shape& shape) {
  return TensorView{nullptr, shape, {}, dtype, Device::cpu()}.size() * dtype.itemsize();
}

// The same memory for every repetition: fresh pages would be timed otherwise.
Calls whole_calls(const Array& array, const Selection& selection) {
  const Shape shape = array.result_shape(selection);
  const auto out = std::make_shared<Tensor>(Tensor::empty(shape, array.dtype(), array.device()));
  return {[array, selection, out] {
    array.read_into(selection, out->view());
    return out->nbytes();
  }};
}

std::size_t timed_read(const Array& array, const Selection& selection) {
  return array.read(selection).nbytes();
}

std::int64_t pick(std::mt19937_64& random, std::int64_t extent) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent));
}

// Chunks along each dimension.
Shape grid_of(const Array& array) {
  Shape grid = array.shape();
  if (array.is_rectilinear() && !array.is_sharded()) {
    const std::vector<Shape> sizes = array.read_chunk_sizes();
    for (std::size_t d = 0; d < grid.size(); ++d)
      grid[d] = static_cast<std::int64_t>(sizes[d].size());
    return grid;
  }
  const Shape chunks = array.chunks();
  for (std::size_t d = 0; d < grid.size(); ++d) grid[d] = (grid[d] + chunks[d] - 1) / chunks[d];
  return grid;
}

Calls sampled_calls(const Array& array, const Options& options) {
  const Shape shape = array.shape();
  const Shape grid = grid_of(array);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    throw Error(ErrorCode::invalid_argument, "bench: the array has no elements to pick from");
  }
  const bool by_chunk = options.pattern == "chunk";
  std::mt19937_64 random(options.seed);
  Calls calls;
  for (int i = 0; i < options.samples; ++i) {
    std::vector<SelectionItem> items;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      items.emplace_back(pick(random, by_chunk ? grid[d] : shape[d]));
    }
    const Selection selection =
        by_chunk ? Selection::blocks(std::move(items)) : Selection(std::move(items));
    calls.push_back([&array, selection] { return timed_read(array, selection); });
  }
  return calls;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(share * last + 0.5)];
}

// 0 where the store does not list what it has.
double stored_nbytes(const Array& array) {
  try {
    return static_cast<double>(array.nbytes_stored());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported || error.code() == ErrorCode::permission_denied) {
      return 0;
    }
    throw;
  }
}

Json measure(const Array& array, const Options& options) {
  const bool whole = options.pattern == "whole";
  if (!whole && !options.selection.empty()) throw_usage("--selection goes with --pattern whole");
  const Calls calls = whole ? whole_calls(array, Selection(selection_of(array, options.selection)))
                            : sampled_calls(array, options);

  std::vector<double> runs;
  std::vector<double> latencies;
  std::size_t nbytes = 0;
  Progress progress("bench", options.repeat + 1);
  for (int run = -1; run < options.repeat;
       ++run) {  // the first one warms caches and is not counted
    nbytes = 0;
    const auto run_start = Clock::now();
    for (const auto& call : calls) {
      const auto start = Clock::now();
      nbytes += call();
      if (run >= 0) latencies.push_back(seconds_since(start) * 1e6);
    }
    if (run >= 0) runs.push_back(seconds_since(run_start));
    progress.advance(1);
  }

  std::sort(latencies.begin(), latencies.end());
  Json all_runs = runs;
  std::sort(runs.begin(), runs.end());
  const auto decoded = static_cast<double>(nbytes);
  const double stored = stored_nbytes(array);
  const auto plain = static_cast<double>(nbytes_of(array.dtype(), array.shape()));
  return {
      {"target", options.target},
      {"pattern", options.pattern},
      {"selection", options.selection},
      {"device", array.device().to_string()},
      {"threads", config().threads},
      {"calls", calls.size()},
      {"nbytes", nbytes},
      {"seconds", std::move(all_runs)},
      {"gb_per_s",
       {{"median", decoded / quantile(runs, 0.5) / 1e9}, {"best", decoded / runs.front() / 1e9}}},
      {"latency_us",
       {{"min", latencies.front()},
        {"median", quantile(latencies, 0.5)},
        {"p90", quantile(latencies, 0.9)}}},
      {"ratio", stored > 0 ? Json(plain / stored) : Json(nullptr)},
      {"version", version()},
  };
}

// Bars of one length for the largest value.
std::string bar(double value, double most) {
  constexpr double kCells = 40;
  return std::string(most > 0 ? static_cast<std::size_t>(value / most * kCells + 0.5) : 0, '#');
}

std::string requests_text(const Json& report) {
  const Json& latency = report.at("latency_ms");
  std::string text = fmt::format("{}, the middle one of {}\n",
                                 counted(report.at("objects").get<std::int64_t>(), "object"),
                                 human_nbytes(report.at("object_nbytes").get<double>()));
  text += fmt::format("latency  {:.1f} ms median, {:.1f} p95, {:.1f} min, of {} of {}\n\n",
                      latency.at("p50").get<double>(),
                      latency.at("p95").get<double>(),
                      latency.at("min").get<double>(),
                      counted(latency.at("samples").get<std::int64_t>(), "range"),
                      human_nbytes(latency.at("range_nbytes").get<double>()));
  text += "at a time      MB/s  chunks/s  p95 ms  small/s\n";
  double most = 0;
  for (const Json& level : report.at("levels")) {
    most = std::max(most, level.at("mb_s").get<double>());
  }
  for (const Json& level : report.at("levels")) {
    const auto figure = [&](const char* name) { return level.at(name).get<double>(); };
    text += fmt::format("{:>9} {:>9.1f} {:>9.1f} {:>7.0f} {:>8.0f}  {}\n",
                        level.at("depth").get<std::size_t>(),
                        figure("mb_s"),
                        figure("chunks_s"),
                        figure("chunk_p95_ms"),
                        figure("small_s"),
                        bar(figure("mb_s"), most));
  }
  const Json& depth = report.at("io_depth");
  text += fmt::format("\nio_depth {} is enough here, {} is configured",
                      depth.at("best").get<std::size_t>(),
                      depth.at("configured").get<std::size_t>());
  if (depth.at("still_rising").get<bool>()) {
    text +=
        "; it was still rising: --max-depth tries more, with --storage-option "
        "max_concurrency=N for more than the store sends at a time";
  }
  return text + '\n';
}

std::string report_text(const Json& report) {
  const Json& rate = report.at("gb_per_s");
  const Json& latency = report.at("latency_us");
  const Json& ratio = report.at("ratio");
  std::string text =
      fmt::format("{} a run, {} decoded, {}\n",
                  counted(report.at("calls").get<std::int64_t>(), "call"),
                  human_nbytes(report.at("nbytes").get<double>()),
                  counted(static_cast<std::int64_t>(report.at("seconds").size()), "run"));
  text += fmt::format("rate     {:.3f} GB/s median, {:.3f} best\n",
                      rate.at("median").get<double>(),
                      rate.at("best").get<double>());
  text += fmt::format("latency  {:.1f} us median, {:.1f} min, {:.1f} p90\n",
                      latency.at("median").get<double>(),
                      latency.at("min").get<double>(),
                      latency.at("p90").get<double>());
  if (!ratio.is_null()) text += fmt::format("ratio    {:.2f}\n", ratio.get<double>());
  return text;
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Time reads of an array: warm, in this process; of one across a network the requests to its "
      "store");
  const auto options = std::make_shared<Options>();
  add_common_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer(
      "Examples:\n"
      "  headrace bench era5.zarr/t2m\n"
      "  headrace bench era5.zarr/t2m --pattern chunk --samples 100 --threads 4\n"
      "  headrace bench s3://bucket/era5.zarr/t2m --storage-option anon=true");
  command
      ->add_option(
          "--pattern",
          options->pattern,
          "whole: one call; chunk: a random chunk a call; point: a random element a call; "
          "requests: to a store across a network, by how many at a time (what counts there "
          "unless another is asked for)")
      ->check(CLI::IsMember({"whole", "chunk", "point", "requests"}))
      ->capture_default_str();
  command->add_option("--seconds", options->store.seconds, "About so long, for requests")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--max-nbytes", options->store.nbytes, "Bytes that are asked for, for requests")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->capture_default_str();
  command
      ->add_option("--max-depth",
                   options->store.max_depth,
                   "Requests at a time, at most; 0: as many as the store sends")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_option(
      "--selection", options->selection, "Part of the array, as read has it, for --pattern whole");
  command->add_option("--repeat,-n", options->repeat, "Runs that count; one more goes before")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--samples", options->samples, "Calls a run, for chunk and point")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the random choice")->capture_default_str();
  command->callback([options, command] {
    const Array array = open_target_array(*options);
    const bool is_remote = array.store().across_network();
    if (options->pattern == "requests" || (is_remote && command->count("--pattern") == 0)) {
      options->store.seed = options->seed;
      const Json report = Json::parse(bench_store_json(array, options->store));
      return options->json ? print_json(report) : print_text(requests_text(report));
    }
    const Json report = measure(array, *options);
    if (options->json) {
      print_json(report);
    } else {
      print_text(report_text(report));
    }
  });
}

}  // namespace headrace::cli
