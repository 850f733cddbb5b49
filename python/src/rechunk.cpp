#include <headrace/rechunk.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <utility>
#include <variant>

#include "codec_specs.h"
#include "errors.h"
#include "handles.h"

namespace headrace::python {

namespace {

// What is copied, and how it was opened.
struct Source {
  std::variant<Array, Group> node;
  std::shared_ptr<const Origin> origin;
};

Source source_of(nb::handle source) {
  if (nb::isinstance<PyGroup>(source)) {
    const auto& group = nb::cast<PyGroup&>(source);
    return {group.group, group.origin};
  }
  const auto& array = argument<PyArray&>(source, "source", "an Array or a Group");
  return {array.array, array.origin};
}

nb::tuple slices_of(const Selection& block) {
  nb::list slices;
  for (const SelectionItem& item : block.items()) {
    const auto& range = std::get<Slice>(item);
    slices.append(steal_or_throw(
        PySlice_New(nb::int_(*range.start).ptr(), nb::int_(*range.stop).ptr(), nullptr)));
  }
  return nb::tuple(slices);
}

// The Python function is called by the thread that called rechunk.
RechunkExecutor executor_of(nb::handle function,
                            std::shared_ptr<const Origin> source_origin,
                            const PyStore& store) {
  return [function, source_origin, &store](const Array& source,
                                           const Array& destination,
                                           const std::vector<Selection>& blocks,
                                           const std::function<void(std::size_t)>& finished) {
    nb::gil_scoped_acquire gil;
    // What lies between two passes is in the destination's store.
    const bool from_there = source.store().shared_driver() == store.store.shared_driver();
    nb::list boxes;
    for (const Selection& block : blocks) boxes.append(slices_of(block));
    function(PyArray(source, from_there ? store.origin : source_origin),
             PyArray(destination, store.origin),
             boxes,
             nb::cpp_function([&](std::size_t block) { finished(block); }));
  };
}

RechunkOptions options_of(nb::handle chunks,
                          nb::handle shards,
                          nb::handle codecs,
                          std::size_t max_memory) {
  RechunkOptions options;
  if (!chunks.is_none()) options.chunks = shape_from_python(chunks, "[rechunk] chunks");
  if (!shards.is_none()) options.shards = shape_from_python(shards, "[rechunk] shards");
  if (!codecs.is_none()) options.codecs = codec_specs_from_python(codecs);
  options.max_memory = max_memory;
  return options;
}

void rechunk_node(nb::handle source,
                  PyStore& store,
                  const std::string& path,
                  nb::handle chunks,
                  nb::handle shards,
                  nb::handle codecs,
                  std::size_t max_memory,
                  bool overwrite,
                  bool verify,
                  nb::handle verifier,
                  nb::handle progress,
                  nb::handle executor,
                  const std::string& source_name,
                  nb::handle left_out) {
  const Source from = source_of(source);
  RechunkOptions options = options_of(chunks, shards, codecs, max_memory);
  options.overwrite = overwrite;
  options.source_name = source_name;
  options.verify = verify;
  options.poll = check_signals;
  if (!progress.is_none()) {
    options.progress = [progress](std::int64_t done, std::int64_t total) {
      nb::gil_scoped_acquire gil;
      progress(done, total);
    };
  }
  if (!left_out.is_none()) {
    options.left_out = [left_out](const NodeLeftOut& node) {
      nb::gil_scoped_acquire gil;
      left_out(name_to_python(node.name), node.why);
    };
  }
  check_caller(from.origin);
  check_caller(store.origin);
  if (!executor.is_none()) options.executor = executor_of(executor, from.origin, store);
  if (!verifier.is_none()) {
    options.verifier = [&](const Array& wanted, const Array& made) {
      nb::gil_scoped_acquire gil;
      verifier(PyArray(wanted, from.origin), PyArray(made, store.origin));
    };
  }
  nb::gil_scoped_release release;
  std::visit([&](const auto& node) { rechunk(node, store.store, path, options); }, from.node);
}

nb::dict pass_dict(const RechunkPass& pass) {
  nb::dict result;
  result["block_sizes"] = shape_tuples(pass.block_sizes);
  result["nblocks"] = pass.nblocks;
  result["block_nbytes"] = pass.block_nbytes;
  result["chunks_read"] = pass.chunks_read;
  result["nbytes_read"] = pass.nbytes_read;
  result["nbytes_written"] = pass.nbytes_written;
  return result;
}

nb::dict plan_dict(const RechunkPlan& plan) {
  nb::dict result;
  nb::list passes;
  for (const RechunkPass& pass : plan.passes) passes.append(pass_dict(pass));
  result["path"] = plan.path;
  result["chunks"] = shape_tuple(plan.chunks);
  result["shards"] = plan.shards ? shape_tuple(*plan.shards) : nb::none();
  result["passes"] = passes;
  result["nbytes_read"] = plan.nbytes_read();
  result["nbytes_written"] = plan.nbytes_written();
  result["amplification"] = plan.amplification();
  return result;
}

nb::list plan_node(nb::handle source,
                   nb::handle chunks,
                   nb::handle shards,
                   std::size_t max_memory) {
  const Source from = source_of(source);
  const RechunkOptions options = options_of(chunks, shards, nb::none(), max_memory);
  const auto plans = [&] {
    nb::gil_scoped_release release;
    return std::visit([&](const auto& node) { return plan_rechunk(node, options); }, from.node);
  }();
  nb::list result;
  for (const RechunkPlan& plan : plans) result.append(plan_dict(plan));
  return result;
}

nb::dict cost_dict(const SampleCost& cost) {
  nb::dict result;
  result["chunks"] = cost.chunks;
  result["nbytes"] = cost.nbytes;
  result["amplification"] = cost.amplification;
  return result;
}

nb::dict advise_array(PyArray& array, nb::handle sample, std::int64_t batch) {
  const AccessPattern pattern{shape_from_python(sample, "[advise] sample"), batch};
  const Advice advice = advise(array.array, pattern);
  nb::list codecs;
  for (const CodecSpec& codec : advice.codecs)
    codecs.append(nb::make_tuple(codec.name, codec.configuration));
  nb::dict result;
  result["chunks"] = shape_tuple(advice.chunks);
  result["shards"] = advice.shards ? shape_tuple(*advice.shards) : nb::none();
  result["codecs"] = codecs;
  result["present"] = cost_dict(advice.present);
  result["proposed"] = cost_dict(advice.proposed);
  return result;
}

}  // namespace

void bind_rechunk(nb::module_& m) {
  m.def("rechunk",
        rechunk_node,
        nb::arg("source"),
        nb::arg("store"),
        nb::arg("path"),
        nb::kw_only(),
        nb::arg("chunks").none(),
        nb::arg("shards").none(),
        nb::arg("codecs").none(),
        nb::arg("max_memory"),
        nb::arg("overwrite"),
        nb::arg("verify"),
        nb::arg("verifier").none(),
        nb::arg("progress").none(),
        nb::arg("executor").none(),
        nb::arg("source_name"),
        nb::arg("left_out").none(),
        nb::sig("def rechunk(source: Array | GroupHandle, store: Store, path: str, *, "
                "chunks: collections.abc.Sequence[int] | None, "
                "shards: collections.abc.Sequence[int] | None, "
                "codecs: list[tuple[str, str]] | None, max_memory: int, overwrite: bool, "
                "verify: bool, verifier: typing.Any, progress: typing.Any, "
                "executor: typing.Any, source_name: str, "
                "left_out: typing.Any) -> None"));
  m.def("plan_rechunk",
        plan_node,
        nb::arg("source"),
        nb::kw_only(),
        nb::arg("chunks").none(),
        nb::arg("shards").none(),
        nb::arg("max_memory"),
        nb::sig("def plan_rechunk(source: Array | GroupHandle, *, "
                "chunks: collections.abc.Sequence[int] | None, "
                "shards: collections.abc.Sequence[int] | None, max_memory: int) -> "
                "list[dict[str, typing.Any]]"));
  m.def(
      "nodes_overlap",
      [](PyStore& store,
         const std::string& path,
         PyStore& other_store,
         const std::string& other_path) {
        nb::gil_scoped_release release;
        return nodes_overlap(store.store, path, other_store.store, other_path);
      },
      nb::arg("store"),
      nb::arg("path"),
      nb::arg("other_store"),
      nb::arg("other_path"));
  m.def(
      "attributes_in_v3",
      [](PyArray& array) { return attributes_in_v3(array.array); },
      nb::arg("array"));
  m.def("advise",
        advise_array,
        nb::arg("array"),
        nb::arg("sample"),
        nb::arg("batch"),
        nb::sig("def advise(array: Array, sample: collections.abc.Sequence[int], batch: int) -> "
                "dict[str, typing.Any]"));
}

}  // namespace headrace::python
