#include "engine/request/array_state.h"

#include "engine/request/config.h"

namespace headrace {
namespace {

// Names the document in what is wrong with its codecs, which is no fault of the call.
std::shared_ptr<const ArrayLayout> make_layout_of_document(
    const ArrayShared& array,
    std::shared_ptr<const ArrayMetadata> metadata,
    const Implementations& implementations) {
  const std::string name = metadata->zarr_format == 3 ? "zarr.json" : ".zarray";
  const std::string key = array.path.empty() ? name : array.path + '/' + name;
  try {
    return std::make_shared<const ArrayLayout>(make_layout(std::move(metadata), implementations));
  } catch (const Error& error) {
    // An implementation that there is not is the caller's.
    const bool is_bad = error.code() == ErrorCode::invalid_argument && implementations.empty();
    throw Error(is_bad ? ErrorCode::corrupt : error.code(),
                "[open] " + array.store.url() + ' ' + key + ": " + error.what(),
                error.os_error());
  }
}

}  // namespace

std::shared_ptr<const ArrayMetadata> ArrayState::metadata() const {
  ForkLock lock(shared_->mutex);
  return shared_->metadata;
}

std::shared_ptr<const ArrayLayout> ArrayState::layout(const Implementations& extra) const {
  return layout_of(metadata(), extra);
}

std::shared_ptr<const ArrayLayout> ArrayState::layout_of(std::shared_ptr<const ArrayMetadata> now,
                                                         const Implementations& extra) const {
  Implementations wanted = merged_implementations(choice_.implementations, extra);
  const auto is_known = [&](const ArrayMetadata* metadata) REQUIRES(mutex_) {
    return layout_ && layout_->metadata.get() == metadata && layout_implementations_ == wanted;
  };
  {
    ForkLock lock(mutex_);
    if (is_known(now.get())) return layout_;
  }
  check_implementations(extra, name().c_str());
  const auto made = make_layout_of_document(*shared_, std::move(now), wanted);
  auto layout = made;  // takes the one before, whose codecs may be the application's, off the lock
  ForkLock lock(mutex_);
  // Another thread was faster: reads of one array find each other by its layout.
  if (is_known(made->metadata.get())) return layout_;
  layout_.swap(layout);
  layout_implementations_.swap(wanted);
  return made;
}

void ArrayState::show_metadata(std::shared_ptr<const ArrayMetadata> metadata) const {
  ForkLock lock(shared_->mutex);
  shared_->metadata.swap(metadata);
}

std::string ArrayState::name() const { return path().empty() ? driver().url() : path(); }

void ArrayState::check_memory(const char* action, const TensorView& view) const {
  if (view.data != nullptr || view.size() == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "[" + std::string(action) + "] " + name() + ": " + std::to_string(view.size()) +
                  " elements of no memory");
}

void ArrayState::check_writable() const {
  if (choice_.read_only || driver().read_only()) {
    throw Error(ErrorCode::permission_denied,
                driver().url() + " array '" + path() + "' is open for reading only");
  }
}

}  // namespace headrace
