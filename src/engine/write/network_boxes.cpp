#include "engine/write/network_boxes.h"

#include <utility>

#include "engine/write/to_network.h"

namespace headrace {

struct NetworkBoxes::State {
  State(Request& request, const StoredArray& array, const ObjectLocks& locks)
      : encoder(request, array), writer(request, locks, array.driver) {}

  ObjectEncoder<Box> encoder;
  NetworkWriter<Box> writer;
};

NetworkBoxes::NetworkBoxes(Request& request, const StoredArray& array, const ObjectLocks& locks)
    : state_(std::make_unique<State>(request, array, locks)) {}

NetworkBoxes::~NetworkBoxes() = default;

void NetworkBoxes::write(const std::function<std::optional<Object>()>& next) {
  ObjectEncoder<Box>& encoder = state_->encoder;
  state_->writer.write(
      [&]() -> std::optional<ObjectTask<Box>> {
        std::optional<Object> object = next();
        if (!object) return std::nullopt;
        ObjectTask<Box> task;
        task.encoder = &encoder;
        task.key = std::move(object->key);
        task.query = std::move(object->box);
        task.valid = std::move(object->valid);
        return task;
      },
      encoder.objects_at_once());
}

WritesInFlight& NetworkBoxes::writes() { return state_->writer.writes(); }

std::vector<std::unique_ptr<WritesInFlight::Write>> NetworkBoxes::finish() {
  return state_->writer.finish();
}

}  // namespace headrace
