#pragma once

// NetworkWriter (to_network.h) for who writes from a device, and has some of its objects to be
// encoded by the host.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/query/cut.h"
#include "engine/request/object_locks.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"
#include "engine/write/in_flight.h"

namespace headrace {

class NetworkBoxes {
 public:
  // All outlive it.
  NetworkBoxes(Request& request, const StoredArray& array, const ObjectLocks& locks);
  ~NetworkBoxes();
  NetworkBoxes(const NetworkBoxes&) = delete;
  NetworkBoxes& operator=(const NetworkBoxes&) = delete;

  // As write_object() has it.
  struct Object {
    std::string key;
    Box box;
    Shape valid;
  };
  // Returns when all are stored that next() gives.
  void write(const std::function<std::optional<Object>()>& next);
  // For what is encoded already.
  WritesInFlight& writes();
  // Returns when all is stored but these, which were encoded already and others forestalled.
  std::vector<std::unique_ptr<WritesInFlight::Write>> finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace headrace
