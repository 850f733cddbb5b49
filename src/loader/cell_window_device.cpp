// Windows whose runs lie on a device. The host finds out where each row of a batch is, by positions
// that it has checked, and gives a list of rows to the kernels (kernels/place/rows.cpp), which
// check columns. What they find wrong is known when the work is done, and said as the host says it.

#include <array>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "device/backend.h"
#include "headrace/error.h"
#include "loader/cell_rows.h"

namespace headrace::cells {
namespace {

constexpr std::uint32_t kNoRow = std::numeric_limits<std::uint32_t>::max();

std::size_t map_nbytes(const Matrix& matrix) {
  return matrix.column_map.size() * sizeof(std::int32_t);
}

}  // namespace

// One call of a kernel, of which nothing is left when it ends.
class Window::OnDevice::Call {
 public:
  Call(const OnDevice& window, std::span<const Row> rows)
      : window_(window), rows_(rows), backend_(backend(window.device_.type)) {
    if (rows.size() >= kNoRow / 2) refuse(std::to_string(rows.size()) + " rows of a batch");
    queue_ = backend_.make_queue(window.device_.index);
    constexpr RowFaults kNone{kNoRow, kNoRow, 0};
    faults_ = Scratch<RowFaults>::of(*queue_, &kNone, 1);
    described_ = window.described_;
    in_batch_.reserve(rows.size());
    for (const Row& row : rows) {
      BatchRow& own = in_batch_.emplace_back();
      own.data = row.data;
      own.indices = row.indices;
      own.count = static_cast<std::uint64_t>(row.count);
      own.matrix = static_cast<std::uint32_t>(row.at);
    }
    batch_.faults = faults_.data();
    batch_.columns = static_cast<std::uint64_t>(window.columns_);
  }

  void transform(const Transform& transform, bool sums) {
    const std::vector<Way> ways = ways_of(window_.matrices_, transform, sums);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      described_[i].compute = ways[i].compute;
      described_[i].to = ways[i].to;
      described_[i].loads = ways[i].loads;
    }
    batch_.scale = {transform.total || transform.log1p,
                    transform.total.has_value(),
                    transform.log1p,
                    transform.total.value_or(1)};
  }

  BatchRow& row(std::size_t i) { return in_batch_[i]; }
  RowBatch& batch() {
    batch_.matrices = described_;
    batch_.rows = in_batch_;
    return batch_;
  }
  const Kernels& kernels() const { return backend_.kernels(); }
  Queue& queue() { return *queue_; }

  // Waits, and throws what is wrong with a row.
  RowFaults finish() {
    RowFaults found{};
    queue_->download(&found, faults_.data(), sizeof(found));
    queue_->synchronize();
    if (found.corrupt < rows_.size()) rows_[found.corrupt].column_outside();
    if (found.unequal < rows_.size()) refuse("offsets that count() did not give");
    return found;
  }

 private:
  const OnDevice& window_;
  const std::span<const Row> rows_;
  Backend& backend_;
  std::unique_ptr<Queue> queue_;
  Scratch<RowFaults> faults_;
  std::vector<RowMatrix> described_;
  std::vector<BatchRow> in_batch_;
  RowBatch batch_;
};

Window::OnDevice::OnDevice(const Window& window)
    : device_(window.device_), columns_(window.columns_) {
  std::vector<bool> used(window.matrices_.size());
  for (const Run& run : window.runs_) used[run.matrix] = true;
  std::size_t nbytes = 0;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) nbytes += map_nbytes(window.matrices_[i]);
  Backend& devices = backend(device_.type);
  std::unique_ptr<Queue> queue;
  if (nbytes > 0) {
    queue = devices.make_queue(device_.index);
    maps_ = devices.allocate(*queue, nbytes);
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Matrix& matrix = window.matrices_[i];
    const Layout& layout = (*window.layouts_)[i];
    RowMatrix& described = described_.emplace_back();
    described.data = layout.data;
    described.indices = layout.indices;
    described.sparse = matrix.indices.has_value();
    described.sorts = layout.sorts;
    described.joins = layout.joins;
    described.columns = static_cast<std::uint64_t>(matrix.columns);
    matrices_.push_back({matrix.name, matrix.columns, matrix.data, matrix.indices, {}});
    if (!used[i] || matrix.column_map.empty()) continue;
    auto* const map = reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(maps_.get()) + at);
    queue->upload(map, matrix.column_map.data(), map_nbytes(matrix));
    described.map = map;
    at += map_nbytes(matrix);
  }
  if (queue) queue->synchronize();
}

std::vector<std::uint64_t> Window::OnDevice::count(std::span<const Row> rows) const {
  std::vector<std::uint64_t> counts(rows.size());
  if (rows.empty()) return counts;
  Call call(*this, rows);
  const Scratch<std::uint64_t> counted(call.queue(), rows.size());
  call.kernels().count_rows(call.queue(), call.batch(), counted.data());
  call.queue().download(counts.data(), counted.data(), counts.size() * sizeof(std::uint64_t));
  call.finish();
  return counts;
}

void Window::OnDevice::gather_csr(std::span<const Row> rows,
                                  std::span<const std::int64_t> offsets,
                                  const Transform& transform,
                                  void* data,
                                  std::int32_t* indices) const {
  Call call(*this, rows);
  call.transform(transform, false);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t wanted = offsets[i + 1] - offsets[i];
    if (rows[i].is_whole() ? wanted != rows[i].count : wanted > rows[i].count)
      refuse("offsets that count() did not give");
    call.row(i).first = static_cast<std::uint64_t>(offsets[i]);
    call.row(i).wanted = static_cast<std::uint64_t>(wanted);
  }
  if (rows.empty()) return;
  call.batch().data = static_cast<std::uint8_t*>(data);
  call.batch().indices = indices;
  call.kernels().gather_rows(call.queue(), call.batch());
  call.finish();
}

void Window::OnDevice::gather_dense(std::span<const Row> rows,
                                    const Transform& transform,
                                    void* data) const {
  Call call(*this, rows);
  call.transform(transform, true);
  for (std::size_t i = 0; i < rows.size(); ++i)
    call.row(i).first = checked_mul(
        static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(columns_), "size of a batch");
  if (rows.empty()) return;
  call.batch().data = static_cast<std::uint8_t*>(data);
  const Scratch<std::uint32_t> again(call.queue(), rows.size());
  call.kernels().gather_rows_dense(call.queue(), call.batch(), again.data());
  const RowFaults found = call.finish();
  if (found.again == 0) return;
  call.kernels().sum_rows_dense(call.queue(), call.batch(), again.data(), found.again);
  call.finish();
}

}  // namespace headrace::cells
