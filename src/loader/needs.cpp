#include "loader/needs.h"

namespace headrace::loader {
namespace {

class NeedFinder {
 public:
  explicit NeedFinder(const Plan& plan) : plan_(plan) {}

  void add_sample(std::size_t in_batch, std::int64_t sample) {
    const SamplePlace place = plan_.place_of(sample);
    const PlannedSource& source = plan_.sources[place.source];
    const auto patch_begin = plan_.patch_begin(place.patch);
    for (std::size_t i = 0; i < source.variables; ++i) {
      const std::size_t v = source.first_variable + i;
      const PlannedVariable& variable = plan_.variables[v];
      std::vector<Cuts> own(variable.axes.size());
      std::vector<const Cuts*> cuts;
      for (std::size_t d = 0; d < variable.axes.size(); ++d) {
        const PlannedAxis& axis = variable.axes[d];
        if (d == variable.sample_axis) {
          own[d] = step_cuts(axis.chunks, place.start);
        } else if (axis.patch) {
          own[d] = patch_cuts(plan_.patches[*axis.patch], axis.chunks, patch_begin[*axis.patch]);
        } else {
          cuts.push_back(&axis.cuts);
          continue;
        }
        cuts.push_back(&own[d]);
      }
      const auto slot =
          static_cast<std::int64_t>(in_batch * plan_.tensors[variable.tensor].sample_nbytes) +
          variable.slot_offset;
      add_product(v, cuts, slot, in_batch);
    }
  }

  std::vector<Need> take() { return std::move(needs_); }

 private:
  // The steps of a sample; neighbours in one chunk together.
  Cuts step_cuts(const ChunkAxis& chunks, std::int64_t start) const {
    Cuts cuts;
    for (std::size_t i = 0; i < plan_.offsets.size();) {
      std::size_t end = i + 1;
      while (end < plan_.offsets.size() && plan_.offsets[end] == plan_.offsets[end - 1] + 1) ++end;
      cut_by_chunks(chunks,
                    start + plan_.offsets[i],
                    static_cast<std::int64_t>(end - i),
                    static_cast<std::int64_t>(i),
                    cuts);
      i = end;
    }
    return cuts;
  }

  // One part for each combination of cuts.
  void add_product(std::size_t v,
                   const std::vector<const Cuts*>& cuts,
                   std::int64_t slot,
                   std::size_t in_batch) {
    for (const Cuts* axis : cuts)
      if (axis->empty()) return;
    std::vector<std::size_t> at(cuts.size());
    for (;;) {
      add_part(v, cuts, at, slot, in_batch);
      std::size_t d = cuts.size();
      for (;;) {
        if (d-- == 0) return;
        if (++at[d] < cuts[d]->size()) break;
        at[d] = 0;
      }
    }
  }

  void add_part(std::size_t v,
                const std::vector<const Cuts*>& cuts,
                const std::vector<std::size_t>& at,
                std::int64_t slot,
                std::size_t in_batch) {
    const PlannedVariable& variable = plan_.variables[v];
    ChunkPart part{{}, 0, slot, in_batch};
    part.box.mean = variable.mean.front();
    part.box.std = variable.std.front();
    ChunkKey key{v, 0};
    auto stride = static_cast<std::int64_t>(variable.dtype.itemsize());
    std::int64_t number_stride = 1;
    for (std::size_t d = cuts.size(); d-- > 0;) {
      const Cut& cut = (*cuts[d])[at[d]];
      const PlannedAxis& axis = variable.axes[d];
      key.chunk += cut.chunk * number_stride;
      number_stride *= axis.chunks.count();
      part.source_offset += cut.in_chunk * stride;
      part.target_offset += cut.target * axis.target_stride;
      part.box.count[d] = cut.count;
      part.box.from[d] = stride;
      part.box.to[d] = axis.target_stride;
      stride *= axis.chunks.end(cut.chunk) - axis.chunks.begin(cut.chunk);
      if (variable.statistics_axis == d) {
        part.box.mean = variable.mean[static_cast<std::size_t>(cut.target)];
        part.box.std = variable.std[static_cast<std::size_t>(cut.target)];
      }
    }
    const auto [known, is_new] = numbers_.try_emplace(key, needs_.size());
    if (is_new) needs_.push_back({key, {}});
    needs_[known->second].parts.push_back(part);
  }

  const Plan& plan_;
  std::vector<Need> needs_;
  std::unordered_map<ChunkKey, std::size_t, ChunkKeyHash> numbers_;
};

}  // namespace

std::vector<Need> find_needs(const Plan& plan, std::span<const std::int64_t> samples) {
  NeedFinder finder(plan);
  for (std::size_t i = 0; i < samples.size(); ++i) finder.add_sample(i, samples[i]);
  return finder.take();
}

}  // namespace headrace::loader
