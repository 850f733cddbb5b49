#include "loader/plan.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/checked.h"
#include "loader/conversions.h"
#include "loader/plan_order.h"
#include "loader/tensor_layout.h"

namespace headrace::loader {
namespace {

std::string text(const Dimension& dimension) {
  if (const auto* number = std::get_if<std::int64_t>(&dimension)) return std::to_string(*number);
  return "\"" + std::get<std::string>(dimension) + "\"";
}

// Which axis of the array it is; nothing when the array has no such dimension.
std::optional<std::size_t> find_axis(const Array& array, const Dimension& dimension) {
  const auto ndim = static_cast<std::int64_t>(array.shape().size());
  if (const auto* number = std::get_if<std::int64_t>(&dimension)) {
    const std::int64_t axis = *number < 0 ? *number + ndim : *number;
    if (axis < 0 || axis >= ndim) return std::nullopt;
    return static_cast<std::size_t>(axis);
  }
  const auto names = array.dimension_names();
  const auto found = std::find(names.begin(), names.end(), std::get<std::string>(dimension));
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

void check_options(const Options& options) {
  check_least(options.batch_size, 1, "batch_size");
  check_least(options.window, 1, "window");
  check_least(options.stride, 1, "stride");
  for (const std::int64_t lead : options.lead_time) check_least(lead, 0, "lead_time");
  check_least(options.block_chunks, 1, "block_chunks");
  check_least(options.lanes, 1, "lanes");
  check_least(options.epoch, 0, "epoch");
  if (options.epoch >= kEpochEnd)
    refuse("epoch: there is none behind " + std::to_string(options.epoch));
  check_least(options.prefetch, 0, "prefetch");
  check_least(options.world_size, 1, "world_size");
  if (options.rank < 0 || options.rank >= options.world_size)
    refuse("rank: expected 0 to " + std::to_string(options.world_size - 1) + ", got " +
           std::to_string(options.rank));
  checked_mul(options.batch_size, options.world_size, "samples of a global batch");
}

void check_reach(std::int64_t offset, std::int64_t steps) {
  if (offset >= steps)
    refuse("a sample reaches over " +
           std::to_string(checked_add<std::int64_t>(offset, 1, "window")) + " steps of " +
           std::to_string(steps));
}

std::vector<std::int64_t> step_offsets(const Options& options, std::int64_t steps) {
  const std::int64_t last = checked_mul(options.window - 1, options.stride, "window");
  check_reach(last, steps);  // before there is one for each step
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < options.window; ++i) offsets.push_back(i * options.stride);
  for (const std::int64_t lead : options.lead_time) {
    offsets.push_back(checked_add(last, lead, "lead_time"));
    check_reach(offsets.back(), steps);
  }
  return offsets;
}

std::string text(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "(" : ", ") + std::to_string(extent);
  return text + ")";
}

bool is_gathered_to(Number number) { return number >= Number::float16; }

// How elements are converted, nothing when they are copied.
std::optional<GatherFormat> format_of(const Variable& variable) {
  const DType from = variable.array.dtype(), to = variable.dtype.value_or(from);
  const bool computes = !variable.mean.empty() || !variable.std.empty() || variable.fill_nan;
  if (from.variable_length())
    refuse(variable.name + ": elements of " + from.to_string() + " have no fixed size",
           ErrorCode::unsupported);
  if (from == to && !computes) return std::nullopt;
  const auto source = number_of(from), target = number_of(to);
  if (!source || !target || !is_gathered_to(*target))
    refuse(variable.name + ": from " + from.to_string() + " to " + to.to_string() +
               "; numbers are converted, and normalised, to float16, bfloat16, float32 and float64",
           ErrorCode::unsupported);
  return GatherFormat{*source, *target, variable.fill_nan};
}

// The dimensions of the variables that the options name.
class AxisFinder {
 public:
  explicit AxisFinder(const std::vector<Variable>& variables) : variables_(variables) {}

  std::optional<std::size_t> find(const Variable& variable, const Dimension& dimension) const {
    return find_axis(variable.array, dimension);
  }
  // Its extent in all variables that have it.
  std::int64_t extent(const Dimension& dimension, const char* what) const {
    std::optional<std::int64_t> extent;
    for (const Variable& variable : variables_) {
      const auto axis = find(variable, dimension);
      if (!axis) continue;
      const std::int64_t found = variable.array.shape()[*axis];
      if (extent.value_or(found) != found)
        refuse(std::string(what) + " " + text(dimension) + ": " + variable.name + " has " +
               std::to_string(found) + ", another variable " + std::to_string(*extent));
      extent = found;
    }
    if (!extent) refuse(std::string(what) + " " + text(dimension) + ": no variable has it");
    return *extent;
  }

 private:
  const std::vector<Variable>& variables_;
};

std::vector<PatchAxis> plan_patches(const AxisFinder& finder, const Options& options) {
  std::vector<PatchAxis> axes;
  for (const Patch& patch : options.patches) {
    const std::int64_t extent = finder.extent(patch.dimension, "patch");
    check_least(patch.size, 1, "patch");
    check_least(patch.halo, 0, "halo");
    if (patch.size > extent || patch.halo > extent)
      refuse("patch " + text(patch.dimension) + ": size " + std::to_string(patch.size) +
             " and halo " + std::to_string(patch.halo) + " in " + std::to_string(extent));
    axes.push_back({patch, extent, (extent + patch.size - 1) / patch.size});
  }
  return axes;
}

Cuts selected_cuts(const ChunkAxis& chunks, const Select& select) {
  Cuts cuts;
  std::int64_t target = 0;
  for (std::size_t i = 0; i < select.indices.size();) {
    std::size_t end = i + 1;
    while (end < select.indices.size() && select.indices[end] == select.indices[end - 1] + 1) ++end;
    const auto count = static_cast<std::int64_t>(end - i);
    const std::int64_t begin = select.indices[i];
    if (begin < 0 || begin + count > chunks.extent())
      throw Error(ErrorCode::out_of_bounds,
                  "[loader] select " + text(select.dimension) + ": index " +
                      std::to_string(begin < 0 ? begin : begin + count - 1) + " of " +
                      std::to_string(chunks.extent()));
    cut_by_chunks(chunks, begin, count, target, cuts);
    target += count;
    i = end;
  }
  return cuts;
}

PlannedAxis plan_axis(const Variable& variable,
                      std::size_t number,
                      const Shape& chunk_sizes,
                      const Plan& plan) {
  PlannedAxis axis{ChunkAxis(chunk_sizes)};
  const auto is_here = [&](const Dimension& dimension) {
    return find_axis(variable.array, dimension) == number;
  };
  for (std::size_t p = 0; p < plan.patches.size(); ++p) {
    const Patch& patch = plan.patches[p].patch;
    if (!is_here(patch.dimension)) continue;
    if (axis.patch) refuse("patch " + text(patch.dimension) + ": named twice");
    axis.patch = p;
    axis.extent = patch.size + 2 * patch.halo;
  }
  bool selected = false;
  for (const Select& select : plan.options.select) {
    if (!is_here(select.dimension)) continue;
    if (axis.patch || selected || select.indices.empty())
      refuse("select " + text(select.dimension) +
             (select.indices.empty() ? ": no indices" : ": is selected, or patched, as well"));
    selected = true;
    axis.cuts = selected_cuts(axis.chunks, select);
    axis.extent = static_cast<std::int64_t>(select.indices.size());
  }
  if (!axis.patch && !selected) {
    axis.extent = axis.chunks.extent();
    cut_by_chunks(axis.chunks, 0, axis.extent, 0, axis.cuts);
  }
  return axis;
}

void plan_statistics(const Variable& variable, PlannedVariable& planned) {
  planned.mean = variable.mean.empty() ? std::vector<double>{0} : variable.mean;
  planned.std = variable.std.empty() ? std::vector<double>{1} : variable.std;
  const std::size_t count = std::max(planned.mean.size(), planned.std.size());
  if (count == 1) return;
  const std::size_t axis = planned.sample_axis == 0 ? 1 : 0;
  if (axis >= planned.axes.size() || planned.axes[axis].patch ||
      static_cast<std::size_t>(planned.axes[axis].extent) != count)
    refuse(variable.name + ": " + std::to_string(count) +
           " means or stds; one, or one for each index of the first dimension beside the sample "
           "dimension, which has no patches");
  planned.mean.resize(count, planned.mean.front());
  planned.std.resize(count, planned.std.front());
  planned.statistics_axis = axis;
  Cuts single;
  for (const Cut& cut : planned.axes[axis].cuts)
    for (std::int64_t i = 0; i < cut.count; ++i)
      single.push_back({cut.chunk, cut.in_chunk + i, 1, cut.target + i});
  planned.axes[axis].cuts = std::move(single);
}

PlannedVariable plan_variable(const Variable& variable, const Plan& plan) {
  const Options& options = plan.options;
  PlannedVariable planned{
      variable.name, 0, variable.array.to(options.device), variable.array.dtype()};
  planned.format = format_of(variable);
  const auto sample_axis = find_axis(variable.array, options.sample_dim);
  if (!sample_axis)
    refuse(variable.name + ": no dimension " + text(options.sample_dim) + " (sample_dim)");
  planned.sample_axis = *sample_axis;
  const std::vector<Shape> chunk_sizes = variable.array.read_chunk_sizes();
  if (chunk_sizes.size() > kMaxAxes)
    refuse(variable.name + ": " + std::to_string(chunk_sizes.size()) + " dimensions, at most " +
               std::to_string(kMaxAxes),
           ErrorCode::unsupported);
  for (std::size_t d = 0; d < chunk_sizes.size(); ++d) {
    PlannedAxis axis = plan_axis(variable, d, chunk_sizes[d], plan);
    if (d == planned.sample_axis) {
      if (axis.patch || axis.extent != axis.chunks.extent())
        refuse("the sample dimension has neither patches nor a selection");
      axis.extent = static_cast<std::int64_t>(plan.offsets.size());
      axis.cuts.clear();
    }
    if (axis.patch) {
      const Patch& patch = plan.patches[*axis.patch].patch;
      planned.has_gaps |= patch.halo > 0 && patch.padding == Padding::zero;
    }
    planned.axes.push_back(std::move(axis));
  }
  plan_statistics(variable, planned);
  return planned;
}

// Of one source, without an order.
Plan plan_source(const Source& source, const Options& options) {
  const std::vector<Variable>& variables = source.variables;
  if (variables.empty()) refuse("no arrays");
  const AxisFinder finder(variables);
  const std::int64_t steps = finder.extent(options.sample_dim, "sample_dim");
  Plan plan{options};
  plan.patches = plan_patches(finder, options);
  std::int64_t patches = 1;
  for (const PatchAxis& axis : plan.patches) patches = checked_mul(patches, axis.count, "patches");
  plan.offsets = step_offsets(options, steps);
  std::vector<std::int64_t> ascending = plan.offsets;
  std::sort(ascending.begin(), ascending.end());
  std::vector<Range> excluded = options.exclude;
  excluded.insert(excluded.end(), source.exclude.begin(), source.exclude.end());
  plan.sources.push_back(
      {SampleSpace(steps, ascending, excluded, patches), 0, 0, 0, variables.size()});
  for (const Variable& variable : variables)
    plan.variables.push_back(plan_variable(variable, plan));
  lay_out_tensors(plan, variables);
  for (const PlannedVariable& variable : plan.variables)
    plan.tensors[variable.tensor].has_gaps |= variable.has_gaps;
  return plan;
}

void add_source(Plan& plan, Plan source) {
  const std::string who = "source " + std::to_string(plan.sources.size());
  const PlannedSource& first = plan.sources.front();
  PlannedSource& added = source.sources.front();
  const auto name = [](const PlannedVariable& variable) -> const std::string& {
    return variable.name;
  };
  if (!std::ranges::equal(plan.variables_of(first), source.variables_of(added), {}, name, name))
    refuse(who + ": its arrays have other names than those of source 0");
  for (std::size_t p = 0; p < plan.patches.size(); ++p)
    if (plan.patches[p].extent != source.patches[p].extent)
      refuse(who + ": patch " + text(plan.patches[p].patch.dimension) + " in " +
             std::to_string(source.patches[p].extent) + ", in source 0 in " +
             std::to_string(plan.patches[p].extent));
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const PlannedTensor &here = plan.tensors[t], &there = source.tensors[t];
    if (here != there)
      refuse(who + ": a sample of " + there.name + " is " + there.dtype.to_string() + " of shape " +
             text(there.sample_shape) + ", that of source 0 " + here.dtype.to_string() + " of " +
             text(here.sample_shape));
  }
  const PlannedSource& last = plan.sources.back();
  added.first_sample = checked_add(last.first_sample, last.space.size(), "samples");
  added.first_step = checked_add(last.first_step, plan.steps_of(last), "steps");
  added.first_variable = plan.variables.size();
  for (PlannedVariable& variable : source.variables) {
    variable.source = plan.sources.size();
    plan.variables.push_back(std::move(variable));
  }
  plan.sources.push_back(std::move(added));
}

}  // namespace

void refuse(const std::string& what, ErrorCode code) { throw Error(code, "[loader] " + what); }

void check_least(std::int64_t value, std::int64_t least, const char* what) {
  if (value < least)
    refuse(std::string(what) + ": expected " + std::to_string(least) + " or more, got " +
           std::to_string(value));
}

std::int64_t PlannedVariable::chunk_count() const {
  std::int64_t count = 1;
  for (const PlannedAxis& axis : axes) count = checked_mul(count, axis.chunks.count(), "chunks");
  return count;
}

Shape PlannedVariable::chunk_at(std::int64_t chunk) const {
  Shape at(axes.size());
  for (std::size_t d = axes.size(); d-- > 0;) {
    at[d] = chunk % axes[d].chunks.count();
    chunk /= axes[d].chunks.count();
  }
  return at;
}

std::size_t PlannedVariable::chunk_nbytes(std::int64_t chunk) const {
  const Shape at = chunk_at(chunk);
  std::size_t nbytes = dtype.itemsize();
  for (std::size_t d = 0; d < axes.size(); ++d)
    nbytes *= static_cast<std::size_t>(axes[d].chunks.end(at[d]) - axes[d].chunks.begin(at[d]));
  return nbytes;
}

std::size_t PlannedVariable::largest_chunk_nbytes() const {
  Shape shape;
  for (const PlannedAxis& axis : axes) shape.push_back(axis.chunks.largest());
  return checked_nbytes(shape, dtype.itemsize(), "size of a chunk");
}

std::span<const PlannedVariable> Plan::variables_of(const PlannedSource& source) const {
  return std::span(variables).subspan(source.first_variable, source.variables);
}

std::int64_t Plan::steps_of(const PlannedSource& source) const {
  const PlannedVariable& any = variables[source.first_variable];
  return any.axes[any.sample_axis].chunks.extent();
}

SamplePlace Plan::place_of(std::int64_t sample) const {
  const auto after = std::ranges::upper_bound(sources, sample, {}, &PlannedSource::first_sample);
  const PlannedSource& source = after[-1];
  const std::int64_t own = sample - source.first_sample;
  return {static_cast<std::size_t>(after - sources.begin() - 1),
          source.space.start_of(own),
          source.space.patch_of(own)};
}

std::size_t Plan::batch_nbytes() const {
  std::size_t nbytes = 0;
  for (const PlannedTensor& tensor : tensors)
    nbytes = checked_add(
        nbytes,
        checked_mul(
            tensor.sample_nbytes, static_cast<std::size_t>(options.batch_size), "size of a batch"),
        "size of a batch");
  return nbytes;
}

std::int64_t Plan::batches_from(std::int64_t position) const {
  const std::int64_t left = epoch_samples() - position, step = global_batch();
  return options.drop_last ? left / step : (left + step - 1) / step;
}

std::vector<std::int64_t> Plan::patch_begin(std::int64_t patch) const {
  std::vector<std::int64_t> begin(patches.size());
  for (std::size_t p = patches.size(); p-- > 0;) {
    begin[p] = patches[p].begin(patch % patches[p].count);
    patch /= patches[p].count;
  }
  return begin;
}

Range Plan::samples_of(const PlannedVariable& variable, std::int64_t chunk) const {
  const ChunkAxis& axis = variable.axes[variable.sample_axis].chunks;
  const std::int64_t at = variable.chunk_at(chunk)[variable.sample_axis];
  const std::int64_t reach = *std::max_element(offsets.begin(), offsets.end());
  const auto& source = sources[variable.source];
  const auto first_from = [&](std::int64_t step) {
    return source.first_sample + source.space.first_from(step);
  };
  return {first_from(std::max<std::int64_t>(axis.begin(at) - reach, 0)), first_from(axis.end(at))};
}

Plan make_plan(const std::vector<Source>& sources, const Options& options) {
  check_options(options);
  if (sources.empty()) refuse("no arrays");
  Plan plan = plan_source(sources.front(), options);
  for (std::size_t s = 1; s < sources.size(); ++s)
    add_source(plan, plan_source(sources[s], options));
  plan_order(plan);
  return plan;
}

void cut_by_chunks(const ChunkAxis& chunks,
                   std::int64_t begin,
                   std::int64_t count,
                   std::int64_t target,
                   Cuts& cuts) {
  while (count > 0) {
    const std::int64_t chunk = chunks.chunk_of(begin);
    const std::int64_t part = std::min(count, chunks.end(chunk) - begin);
    cuts.push_back({chunk, begin - chunks.begin(chunk), part, target});
    begin += part;
    target += part;
    count -= part;
  }
}

Cuts patch_cuts(const PatchAxis& axis, const ChunkAxis& chunks, std::int64_t begin) {
  const std::int64_t halo = axis.patch.halo, extent = axis.extent;
  const std::int64_t first = begin - halo, last = begin + axis.patch.size + halo;
  const bool wraps = axis.patch.padding == Padding::wrap;
  Cuts cuts;
  if (wraps && first < 0) cut_by_chunks(chunks, first + extent, -first, 0, cuts);
  const std::int64_t inside = std::max<std::int64_t>(first, 0);
  cut_by_chunks(chunks, inside, std::min(last, extent) - inside, inside - first, cuts);
  if (wraps && last > extent) cut_by_chunks(chunks, 0, last - extent, extent - first, cuts);
  return cuts;
}

}  // namespace headrace::loader
