// Elements of variable length on a device: their bytes are decoded there and kept, a kernel finds
// where in them each element lies, and that, 16 bytes an element, is placed as elements of one
// length are. Then others pack what is wanted into offsets and values.

#include "engine/device/ragged.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/checked.h"
#include "device/backend.h"
#include "engine/device/drain.h"
#include "engine/device/stages.h"
#include "engine/device/to_device.h"
#include "engine/fetch/chunk_level.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"

namespace headrace {
namespace {

static_assert(sizeof(RaggedElement) == sizeof(VlenElement));
static_assert(offsetof(RaggedElement, nbytes) == offsetof(VlenElement, nbytes));

// One has less than 2^32 bytes: together they are less than 2^63.
constexpr std::size_t kMostElements = std::size_t{1} << 31;

RaggedTensor pack(const Tensor& elements, Backend& devices, Queue& queue) {
  const DType& dtype = elements.dtype();
  const Device device = elements.device();
  const DType item = dtype.kind() == DType::Kind::array ? dtype.item() : DType::uint8;
  const auto count = static_cast<std::int64_t>(elements.view().size());
  const auto make = [&](std::int64_t n, const DType& type) {
    const std::size_t nbytes = checked_nbytes(Shape{n}, type.itemsize(), "size of a ragged result");
    return Tensor(devices.allocate(queue, nbytes), {n}, type, device);
  };
  RaggedTensor result{elements.shape(), dtype, make(count + 1, DType::int64), {}};
  const RaggedBatch batch{static_cast<const RaggedElement*>(elements.data()),
                          static_cast<std::uint64_t>(count),
                          static_cast<std::uint32_t>(item.itemsize()),
                          static_cast<std::int64_t*>(result.offsets.data())};
  devices.kernels().ragged_offsets(queue, batch);
  std::int64_t end = 0;
  queue.download(&end, batch.offsets + count, sizeof end);
  queue.synchronize();
  result.values = make(end, item);
  devices.kernels().ragged_values(
      queue, batch, static_cast<std::uint8_t*>(result.values.data()), result.values.nbytes());
  queue.synchronize();
  return result;
}

}  // namespace

std::optional<RaggedTensor> read_ragged_on_device(const ArrayState& state,
                                                  std::shared_ptr<const ArrayLayout> layout,
                                                  const ResolvedSelection& selection,
                                                  const ReadOptions& options) {
  const Device device = state.choice().device;
  const bool is_forced = layout->devices.is_forced();
  const auto read = [&](int attempt) -> std::optional<RaggedTensor> {
    Request request(options, nullptr, attempt);
    if (selection.size() > kMostElements) {
      throw Error(ErrorCode::unsupported,
                  "[read] " + state.path() + ": " + std::to_string(selection.size()) +
                      " elements of variable length, of which a device packs at most " +
                      std::to_string(kMostElements));
    }
    const StoredArray array(state, layout);
    const DType& dtype = layout->metadata->dtype;
    const std::size_t nbytes =
        checked_nbytes(selection.result_shape, dtype.itemsize(), "size of the result");
    Backend& devices = backend(device.type);
    const auto queue = devices.make_queue(device.index);
    KeptMemory kept;
    const Tensor elements(devices.allocate(*queue, nbytes), selection.result_shape, dtype, device);
    const Drain drain(*queue);
    if (selection.size() > 0 &&
        !read_elements_on_queue(request, array, selection, elements.view(), devices, *queue, kept))
      return std::nullopt;
    request.check_array_is_there();
    return pack(elements, devices, *queue);
  };
  try {
    return again_when_changed(read);
  } catch (const Error& error) {
    // The host keeps what it decodes in its own memory.
    const bool is_hosts =
        error.code() == ErrorCode::unsupported || error.code() == ErrorCode::out_of_memory;
    if (!is_hosts || is_forced) throw;
    return std::nullopt;
  }
}

}  // namespace headrace
