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

KeyLocks& locks() {
  static auto* const locks = new KeyLocks;  // never destroyed: threads may outlive statics
  return *locks;
}

}  // namespace

ObjectLocks::ObjectLocks(const ArrayState& array)
    : prefix_nbytes_(array.path().empty() ? 0 : array.path().size() + 1),
      identity_(identity_of(array)) {}

std::string ObjectLocks::name_of(std::string_view key) const {
  const std::string_view chunk = key.substr(prefix_nbytes_);
  std::string name;
  name.reserve(identity_.size() + chunk.size() + 1);
  name.append(identity_);
  name += '/';
  name.append(chunk);
  return name;
}

KeyLocks::Lock ObjectLocks::lock(std::string_view key, const std::function<void()>& poll) const {
  return locks().lock(name_of(key), poll);
}

std::optional<KeyLocks::Lock> ObjectLocks::try_lock(std::string_view key) const {
  return locks().try_lock(name_of(key));
}

}  // namespace headrace
