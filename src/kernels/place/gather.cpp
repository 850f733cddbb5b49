// A thread takes kUnits elements of one box, its neighbours in the CTA those next to them along
// the axis with the nearest targets.

#include "kernels/place/gather.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "kernels/common/work.h"
#include "kernels/place/divisor.h"
#include "kernels/place/number_values.h"

namespace headrace::SIMT_SPACE {
namespace {

constexpr unsigned kCtaThreads = 256;
constexpr unsigned kUnits = 4;

struct GatherAxis {
  Divisor count;
  i64 from, to;  // bytes
};

struct GatherPart {
  const u8* source;
  u8* target;
  double mean, std;
  u64 first;
  u32 elements;
  u32 axis_count;
  GatherAxis axes[kMaxAxes];  // the outermost first
};

template <class Compute>
struct GatherElements {
  static constexpr unsigned kThreads = kCtaThreads;
  using Shared = simt::NoShared;
  Work<GatherPart> parts;
  Number from, to;
  Compute nan_fill;

  SIMT_DEVICE void operator()(Shared&) const {
    const GatherPart& part = parts.find(simt::cta_index());
    const u64 begin =
        (simt::cta_index() - part.first) * kCtaThreads * kUnits + simt::thread_index();
    const Compute mean = static_cast<Compute>(part.mean), std = static_cast<Compute>(part.std);
    Compute values[kUnits];
    u8* targets[kUnits];
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i) {
      const u64 element = begin + i * kCtaThreads;
      if (element >= part.elements) continue;
      const u8* source = part.source;
      targets[i] = part.target;
      u32 rest = static_cast<u32>(element);
      for (u32 a = part.axis_count; a-- > 0;) {
        const GatherAxis& axis = part.axes[a];
        const u32 outer = axis.count.quotient(rest), at = rest - outer * axis.count.divisor;
        source += axis.from * at;
        targets[i] += axis.to * at;
        rest = outer;
      }
      values[i] = value_of<Compute>(load_number(source, {from, false}), from);
    }
    SIMT_UNROLL
    for (unsigned i = 0; i < kUnits; ++i) {
      if (begin + i * kCtaThreads >= part.elements) continue;
      const Compute value = (values[i] - mean) / std;
      store_number(targets[i], {to, false}, bits_of(is_nan(value) ? nan_fill : value, to));
    }
  }
};

u64 elements_of(const GatherBox& box, unsigned axes) {
  u64 product = 1;
  for (unsigned i = 0; i < axes; ++i) product *= static_cast<u64>(box.count[i]);
  return product;
}

class PartList {
 public:
  PartList(unsigned axes, u64 most) : axes_(axes), most_(most) {}

  void add(const GatherBox& box) {
    const u64 elements = elements_of(box, axes_);
    if (elements == 0) return;
    if (elements > most_) return add_halves(box);
    GatherPart part{
        box.source, box.target, box.mean, box.std, 0, static_cast<u32>(elements), 0, {}};
    std::vector<unsigned> order;
    for (unsigned i = 0; i < axes_; ++i)
      if (box.count[i] > 1) order.push_back(i);
    std::stable_sort(
        order.begin(), order.end(), [&](unsigned a, unsigned b) { return box.to[a] > box.to[b]; });
    for (const unsigned i : order) {
      const u64 count = static_cast<u64>(box.count[i]);
      GatherAxis* const outer = part.axis_count > 0 ? &part.axes[part.axis_count - 1] : nullptr;
      if (outer && outer->from == box.from[i] * box.count[i] &&
          outer->to == box.to[i] * box.count[i])
        *outer = {make_divisor(outer->count.divisor * count), box.from[i], box.to[i]};
      else
        part.axes[part.axis_count++] = {make_divisor(count), box.from[i], box.to[i]};
    }
    list_.add(part, (elements + kCtaThreads * kUnits - 1) / (kCtaThreads * kUnits));
  }

  const WorkList<GatherPart>& list() const { return list_; }

 private:
  void add_halves(const GatherBox& box) {
    const auto longest = std::max_element(box.count, box.count + axes_) - box.count;
    GatherBox low = box, high = box;
    low.count[longest] /= 2;
    high.count[longest] -= low.count[longest];
    high.source += low.count[longest] * box.from[longest];
    high.target += low.count[longest] * box.to[longest];
    add(low);
    add(high);
  }

  const unsigned axes_;
  const u64 most_;
  WorkList<GatherPart> list_;
};

template <class Compute>
void launch(Queue& queue, const WorkList<GatherPart>& list, const GatherFormat& format) {
  const double nan_fill = format.nan_fill.value_or(std::numeric_limits<double>::quiet_NaN());
  const auto parts = list.upload(queue);
  simt::launch(queue,
               list.items(),
               GatherElements<Compute>{
                   work_of(parts), format.from, format.to, static_cast<Compute>(nan_fill)});
}

}  // namespace

void gather_within(Queue& queue, const GatherBatch& batch, u64 most) {
  if (batch.axes > kMaxAxes)
    throw Error(
        ErrorCode::unsupported,
        "gather: " + std::to_string(batch.axes) + " axes, at most " + std::to_string(kMaxAxes));
  PartList parts(batch.axes, most);
  for (const GatherBox& box : batch.boxes) parts.add(box);
  if (parts.list().items() == 0) return;
  const GatherFormat& format = batch.format;
  if (is_wide(format.from) || format.to == Number::float64)
    launch<double>(queue, parts.list(), format);
  else
    launch<float>(queue, parts.list(), format);
}

}  // namespace headrace::SIMT_SPACE
