#include "engine/request/object_locks.h"

namespace headrace {
namespace {

std::string identity_of(const ArrayState& array) {
  ArrayShared& shared = *array.shared();
  // The first chunk would make the folder, and with it another identity. Who finds the flag set
  // must find the folder, too.
  if (!shared.has_document && !shared.has_folder.load()) {
    static_cast<void>(array.driver().try_lock(array.path(), MissingFolder::make));
    shared.has_folder.store(true);
  }
  return array.driver().identity(array.path());
}

}  // namespace

ObjectLocks::ObjectLocks(const ArrayState& array)
    : prefix_nbytes_(array.path().empty() ? 0 : array.path().size() + 1),
      identity_(identity_of(array)) {}

KeyLocks::Lock ObjectLocks::lock(std::string_view key) const {
  static auto* locks = new KeyLocks;  // never destroyed: threads may outlive statics
  const std::string_view chunk = key.substr(prefix_nbytes_);
  std::string name;
  name.reserve(identity_.size() + chunk.size() + 1);
  name.append(identity_);
  name += '/';
  name.append(chunk);
  return locks->lock(name);
}

}  // namespace headrace
