// The loader: what headrace.loader is made of. Options come as Python has worked them out.

#include <headrace/loader.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common.h"
#include "device_array.h"
#include "dtype.h"
#include "errors.h"
#include "handles.h"
#include "tensor.h"

namespace headrace::python {

namespace {

using loader::Loader;
using loader::Options;

// headrace._core.Loader
class PyLoader {
 public:
  PyLoader(std::vector<loader::Source> sources, const Options& options)
      : loader_(new Loader(std::move(sources), options)) {
    for (std::size_t i = 0; i < loader_->names().size(); ++i)
      dtypes_.push_back(numpy_dtype(loader_->batch_dtype(i)));
  }
  // The loader's thread may be in Python: reading a store, say.
  ~PyLoader() {
    nb::gil_scoped_release release;
    loader_.reset();
  }
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  Loader& loader() { return *loader_; }
  const std::vector<nb::object>& dtypes() const { return dtypes_; }

 private:
  std::unique_ptr<Loader> loader_;
  std::vector<nb::object> dtypes_;  // of the tensors
};

template <typename T>
T choice(nb::handle options, const char* key, std::initializer_list<std::pair<const char*, T>> of) {
  const nb::object value = options[key];
  const auto name =
      value.is_none() ? std::string("none") : argument<std::string>(value, key, "a name");
  std::string known;
  for (const auto& [text, result] : of) {
    if (name == text) return result;
    known += (known.empty() ? "\"" : ", \"") + std::string(text) + "\"";
  }
  raise(PyExc_ValueError,
        std::string(key) + ": expected one of " + known + ", got \"" + name + "\"");
}

template <typename T>
constexpr const char* wanted() {
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_integral_v<T>) return "an integer";
  if constexpr (std::is_same_v<T, std::string>) return "a name";
  if constexpr (std::is_same_v<T, loader::Dimension>) return "the name or number of a dimension";
  if constexpr (std::is_same_v<T, std::optional<double>>) return "a number or None";
  if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) return "integers";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "names";
  return "numbers";
}

template <typename T>
T get(nb::handle options, const char* key) {
  return argument<T>(nb::object(options[key]), key, wanted<T>());
}

Options options_from(nb::handle from) {
  Options options;
  options.sample_dim = get<loader::Dimension>(from, "sample_dim");
  options.batch_size = get<std::int64_t>(from, "batch_size");
  options.window = get<std::int64_t>(from, "window");
  options.stride = get<std::int64_t>(from, "stride");
  options.lead_time = get<std::vector<std::int64_t>>(from, "lead_time");
  for (nb::handle item : from["patches"]) {
    loader::Patch patch;
    patch.dimension = get<loader::Dimension>(item, "dimension");
    patch.size = get<std::int64_t>(item, "size");
    patch.halo = get<std::int64_t>(item, "halo");
    patch.padding = choice<loader::Padding>(
        item, "padding", {{"zero", loader::Padding::zero}, {"wrap", loader::Padding::wrap}});
    options.patches.push_back(std::move(patch));
  }
  for (nb::handle item : from["select"])
    options.select.push_back({get<loader::Dimension>(item, "dimension"),
                              get<std::vector<std::int64_t>>(item, "indices")});
  for (nb::handle item : from["stack"])
    options.stack.push_back(
        {get<std::string>(item, "name"), get<std::vector<std::string>>(item, "variables")});
  options.layout = choice<loader::Layout>(from,
                                          "layout",
                                          {{"none", loader::Layout::as_stored},
                                           {"NCHW", loader::Layout::nchw},
                                           {"NHWC", loader::Layout::nhwc}});
  options.shuffle = choice<loader::Shuffle>(from,
                                            "shuffle",
                                            {{"none", loader::Shuffle::none},
                                             {"block", loader::Shuffle::block},
                                             {"global", loader::Shuffle::global}});
  options.block_chunks = get<std::int64_t>(from, "block_chunks");
  options.lanes = get<std::int64_t>(from, "lanes");
  options.seed = get<std::uint64_t>(from, "seed");
  options.epoch = get<std::int64_t>(from, "epoch");
  options.weights = get<std::vector<double>>(from, "weights");
  if (nb::isinstance<nb::str>(from["samples_per_epoch"]))
    options.samples_per_epoch =
        choice<loader::EpochEnd>(from,
                                 "samples_per_epoch",
                                 {{"first_exhausted", loader::EpochEnd::first_exhausted},
                                  {"all_exhausted", loader::EpochEnd::all_exhausted}});
  else
    options.samples_per_epoch = get<std::int64_t>(from, "samples_per_epoch");
  options.rank = get<std::int64_t>(from, "rank");
  options.world_size = get<std::int64_t>(from, "world_size");
  options.drop_last = get<bool>(from, "drop_last");
  options.device = device_from_python(from["device"]);
  options.prefetch = get<std::int64_t>(from, "prefetch");
  options.memory_budget = get<std::size_t>(from, "memory_budget");
  options.on_bad_chunk = choice<loader::BadChunk>(from,
                                                  "on_bad_chunk",
                                                  {{"raise", loader::BadChunk::raise},
                                                   {"skip", loader::BadChunk::skip},
                                                   {"fill", loader::BadChunk::fill}});
  return options;
}

std::vector<loader::Variable> variables_from(nb::handle from) {
  std::vector<loader::Variable> variables;
  for (nb::handle item : from) {
    loader::Variable variable{
        get<std::string>(item, "name"),
        argument<PyArray&>(nb::object(item["array"]), "arrays", "headrace arrays").array};
    const nb::object dtype = item["dtype"];
    if (!dtype.is_none()) variable.dtype = dtype_from_python(dtype);
    variable.mean = get<std::vector<double>>(item, "mean");
    variable.std = get<std::vector<double>>(item, "std");
    variable.fill_nan = get<std::optional<double>>(item, "fill_nan");
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::vector<loader::Source> sources_from(nb::handle from) {
  std::vector<loader::Source> sources;
  for (nb::handle item : from)
    sources.push_back({variables_from(item["variables"]),
                       get<std::vector<std::pair<std::int64_t, std::int64_t>>>(item, "exclude")});
  return sources;
}

// A dict of arrays, or None at the end of the epoch.
nb::object next_batch(PyLoader& self) {
  std::optional<loader::Batch> batch;
  {
    nb::gil_scoped_release release;
    batch = self.loader().next(check_signals);
  }
  if (!batch) return nb::none();
  const std::vector<std::string> names = self.loader().names();
  nb::dict result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Tensor& tensor = batch->tensors[i];
    const nb::object& dtype = self.dtypes()[i];
    result[names[i].c_str()] = tensor.device().is_cpu()
                                   ? to_ndarray(std::move(tensor), dtype)
                                   : nb::cast(device_array(std::move(tensor), dtype));
  }
  return result;
}

nb::dict stats(PyLoader& self) {
  const loader::Stats stats = self.loader().stats();
  nb::dict result;
  result["batches"] = stats.batches;
  result["samples"] = stats.samples;
  result["stall_s"] = stats.stall_s;
  result["plan_s"] = stats.plan_s;
  result["read_s"] = stats.read_s;
  result["gather_s"] = stats.gather_s;
  result["queue_depth"] = stats.queue_depth;
  result["chunks_decoded"] = stats.chunks_decoded;
  result["cache_hits"] = stats.cache_hits;
  result["decoded_bytes"] = stats.decoded_nbytes;
  result["compressed_bytes"] = stats.compressed_nbytes;
  result["needed_bytes"] = stats.needed_nbytes;
  result["read_amplification"] = stats.read_amplification;
  result["peak_cache_bytes"] = stats.peak_cache_nbytes;
  result["replaced_samples"] = stats.replaced_samples;
  result["bad_chunks"] = stats.bad_chunks;
  result["failed_ahead"] = stats.failed_ahead;
  return result;
}

// Of each sample: its source, its first step, and where its patch begins.
std::vector<std::vector<std::int64_t>> origins(PyLoader& self,
                                               std::int64_t epoch,
                                               std::int64_t begin,
                                               std::int64_t end) {
  std::vector<std::vector<std::int64_t>> rows;
  nb::gil_scoped_release release;
  for (std::int64_t at = begin; at < end; ++at) {
    const loader::SampleOrigin origin = self.loader().sample(epoch, at);
    std::vector<std::int64_t>& row = rows.emplace_back(std::vector{origin.source, origin.step});
    row.insert(row.end(), origin.patch.begin(), origin.patch.end());
  }
  return rows;
}

}  // namespace

void bind_loader(nb::module_& m) {
  nb::class_<PyLoader>(m, "Loader")
      .def(
          "__init__",
          [](PyLoader* self, nb::handle sources, nb::handle options) {
            new (self) PyLoader(sources_from(sources), options_from(options));
          },
          nb::arg("sources"),
          nb::arg("options"))
      .def("next", next_batch, nb::sig("def next(self) -> dict[str, typing.Any] | None"))
      .def_prop_ro("names", [](PyLoader& self) { return self.loader().names(); })
      .def_prop_ro("batches", [](PyLoader& self) { return self.loader().batches(); })
      .def_prop_ro("samples", [](PyLoader& self) { return self.loader().samples(); })
      .def_prop_ro("position",
                   [](PyLoader& self) {
                     const loader::Position position = self.loader().position();
                     return std::pair(position.epoch, position.samples);
                   })
      .def_prop_ro("order_id", [](PyLoader& self) { return self.loader().order_id(); })
      .def(
          "seek",
          [](PyLoader& self, std::int64_t epoch, std::int64_t samples) {
            self.loader().seek({epoch, samples});
          },
          nb::arg("epoch"),
          nb::arg("samples"),
          nb::call_guard<nb::gil_scoped_release>())
      .def("origins", origins, nb::arg("epoch"), nb::arg("begin"), nb::arg("end"))
      .def(
          "shuffle_quality",
          [](PyLoader& self, std::int64_t epoch) {
            const loader::ShuffleQuality quality = self.loader().shuffle_quality(epoch);
            return std::pair(quality.successive, quality.nearest);
          },
          nb::arg("epoch"),
          nb::call_guard<nb::gil_scoped_release>())
      .def("stats", stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def(
          "close",
          [](PyLoader& self) { self.loader().close(); },
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace headrace::python
