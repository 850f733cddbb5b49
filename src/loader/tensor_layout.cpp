#include "loader/tensor_layout.h"

#include <span>

#include "base/checked.h"

namespace headrace::loader {
namespace {

// The axes of a variable as a batch has them: the steps, then the others.
std::vector<std::size_t> batch_axes(const PlannedVariable& variable) {
  std::vector<std::size_t> axes{variable.sample_axis};
  for (std::size_t d = 0; d < variable.axes.size(); ++d)
    if (d != variable.sample_axis) axes.push_back(d);
  return axes;
}

// Gives the axes strides as of C order, the last `stride`; returns the first's times its extent.
std::int64_t stride_axes(PlannedVariable& variable,
                         std::span<const std::size_t> axes,
                         std::int64_t stride) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    PlannedAxis& axis = variable.axes[axes[i]];
    axis.target_stride = stride;
    stride = checked_mul(stride, axis.extent, "size of a sample");
  }
  return stride;
}

// (steps, *rest), as (batch, steps, *rest) has it.
void lay_out_as_stored(Plan& plan, PlannedTensor& tensor, std::span<const std::size_t> members) {
  if (members.size() > 1) refuse("stack: needs the layout NCHW or NHWC");
  PlannedVariable& variable = plan.variables[members.front()];
  const auto axes = batch_axes(variable);
  for (const std::size_t axis : axes) tensor.sample_shape.push_back(variable.axes[axis].extent);
  stride_axes(variable, axes, static_cast<std::int64_t>(tensor.dtype.itemsize()));
}

// The axes of a variable as channels and the two of an image.
struct ImageAxes {
  std::vector<std::size_t> channels, image;
  Shape image_shape;
  std::int64_t channel_count = 1;

  explicit ImageAxes(const PlannedVariable& variable) {
    const auto axes = batch_axes(variable);
    if (axes.size() < 3)
      refuse(variable.name + ": NCHW and NHWC need two dimensions beside the sample dimension");
    channels.assign(axes.begin(), axes.end() - 2);
    image.assign(axes.end() - 2, axes.end());
    for (const std::size_t axis : image) image_shape.push_back(variable.axes[axis].extent);
    for (const std::size_t axis : channels)
      channel_count = checked_mul(channel_count, variable.axes[axis].extent, "channels");
  }
};

void lay_out_images(Plan& plan, PlannedTensor& tensor, std::span<const std::size_t> members) {
  const bool channels_last = plan.options.layout == Layout::nhwc;
  std::int64_t channels = 0;
  Shape image;
  for (const std::size_t m : members) {
    const ImageAxes axes(plan.variables[m]);
    if (m != members.front() && axes.image_shape != image)
      refuse("stack " + tensor.name + ": " + plan.variables[m].name + " has other images");
    image = axes.image_shape;
    channels = checked_add(channels, axes.channel_count, "channels");
  }
  tensor.sample_shape =
      channels_last ? Shape{image[0], image[1], channels} : Shape{channels, image[0], image[1]};
  const auto itemsize = static_cast<std::int64_t>(tensor.dtype.itemsize());
  const auto image_nbytes = checked_cast<std::int64_t>(
      checked_nbytes(image, tensor.dtype.itemsize(), "size of an image"), "size of an image");
  std::int64_t offset = 0;
  for (const std::size_t m : members) {
    PlannedVariable& variable = plan.variables[m];
    const ImageAxes axes(variable);
    const std::int64_t pixel =
        channels_last ? checked_mul(channels, itemsize, "size of a sample") : itemsize;
    stride_axes(variable, axes.image, pixel);
    variable.slot_offset = offset;
    offset += stride_axes(variable, axes.channels, channels_last ? itemsize : image_nbytes);
  }
}

std::size_t member_number(const Plan& plan, const std::string& name, const Stack& stack) {
  for (std::size_t v = 0; v < plan.variables.size(); ++v)
    if (plan.variables[v].name == name) return v;
  refuse("stack " + stack.name + ": no variable " + name);
}

}  // namespace

void lay_out_tensors(Plan& plan, const std::vector<Variable>& variables) {
  std::vector<std::vector<std::size_t>> members;
  std::vector<bool> stacked(variables.size());
  for (const Stack& stack : plan.options.stack) {
    if (stack.variables.empty()) refuse("stack " + stack.name + ": no variables");
    plan.tensors.push_back({stack.name, {}, {}});
    members.emplace_back();
    for (const std::string& name : stack.variables) {
      const std::size_t v = member_number(plan, name, stack);
      if (stacked[v]) refuse("stack " + stack.name + ": " + name + " is stacked twice");
      stacked[v] = true;
      members.back().push_back(v);
    }
  }
  for (std::size_t v = 0; v < variables.size(); ++v) {
    if (stacked[v]) continue;
    plan.tensors.push_back({variables[v].name, {}, {}});
    members.push_back({v});
  }
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    PlannedTensor& tensor = plan.tensors[t];
    for (std::size_t other = 0; other < t; ++other)
      if (plan.tensors[other].name == tensor.name) refuse("two tensors named " + tensor.name);
    for (const std::size_t m : members[t]) {
      plan.variables[m].tensor = t;
      const DType dtype = variables[m].dtype.value_or(variables[m].array.dtype());
      if (m != members[t].front() && dtype != tensor.dtype)
        refuse("stack " + tensor.name + ": " + tensor.dtype.to_string() + " and " +
               dtype.to_string());
      tensor.dtype = dtype;
    }
    const auto lay_out =
        plan.options.layout == Layout::as_stored ? lay_out_as_stored : lay_out_images;
    lay_out(plan, tensor, members[t]);
    tensor.sample_nbytes =
        checked_nbytes(tensor.sample_shape, tensor.dtype.itemsize(), "size of a sample");
  }
}

}  // namespace headrace::loader
