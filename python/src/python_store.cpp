// A store whose keys a Python object serves: headrace._python_store says what it must have.

#include <headrace/store.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer_bytes.h"
#include "errors.h"
#include "future.h"
#include "handles.h"

namespace headrace::python {

namespace {

StoredBytes stored_bytes(nb::handle object) {
  auto buffer = shared_bytes(object);
  return {buffer->bytes(), buffer};
}

// What a method gave back; a TypeError that names it when it is something else.
template <typename T>
T answer(nb::handle value, const char* method) {
  return argument<T>(value, method, "another answer of the store");
}

std::vector<std::string> names(nb::handle value, const char* method) {
  return answer<std::vector<std::string>>(value, method);
}

// What a store of Python's says to one read of submit(). What is called may use the answer at once,
// without the GIL.
void answer_read(StoreAnswers& answers, std::uint64_t id, nb::handle value, nb::handle error) {
  if (!error.is_none()) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    nb::python_error raised;
    const auto failure = std::make_exception_ptr(ApplicationError(raised));
    const nb::gil_scoped_release release;
    return answers.failed(id, failure);
  }
  if (value.is_none()) {
    const nb::gil_scoped_release release;
    return answers.missing(id);
  }
  StoredBytes bytes;
  try {
    bytes = stored_bytes(value);
  } catch (nb::python_error& raised) {
    const auto failure = std::make_exception_ptr(ApplicationError(raised));
    const nb::gil_scoped_release release;
    return answers.failed(id, failure);
  }
  const nb::gil_scoped_release release;
  answers.found(id, std::move(bytes));
}

class PythonStore : public CustomStore {
 public:
  explicit PythonStore(const nb::object& object)
      : url_(nb::cast<std::string>(object.attr("url"))),
        read_only_(nb::cast<bool>(object.attr("read_only"))),
        batch_size_(nb::cast<std::size_t>(object.attr("batch_size"))),
        depth_(nb::cast<std::size_t>(nb::getattr(object, "depth", nb::int_(0)))),
        local_(nb::cast<bool>(nb::getattr(object, "local", nb::bool_(false)))),
        in_memory_(nb::cast<bool>(nb::getattr(object, "in_memory", nb::bool_(false)))),
        identity_(nb::cast<std::string>(object.attr("identity"))),
        folder_(nb::cast<std::string>(object.attr("folder"))),
        lasting_name_(nb::cast<std::string>(nb::getattr(object, "lasting_name", nb::str("")))),
        object_(keep_alive(object)) {
    using GapAndRun = std::pair<std::uint64_t, std::uint64_t>;
    const auto limits = nb::cast<std::optional<GapAndRun>>(object.attr("coalescing"));
    if (limits) coalescing_ = Coalescing{limits->first, limits->second};
  }

  std::string url() const override { return url_; }
  bool read_only() const override { return read_only_; }
  // A folder is the same whoever reads it.
  std::string identity(const std::string& prefix) const override {
    if (folder_.empty()) return "python:" + identity_ + '/' + prefix;
    std::string place = folder_ + '/' + prefix;
    place.erase(0, std::min(place.find_first_not_of('/'), place.size()));
    while (place.ends_with('/')) place.pop_back();
    return open_store("/", StoreMode::read).identity(place);
  }
  std::string lasting_name() const override { return lasting_name_; }
  std::string folder(const std::string& prefix) const override {
    return folder_.empty() ? "" : folder_ + '/' + prefix;
  }
  std::size_t batch_size() const override { return batch_size_; }
  bool local() const override { return local_; }
  bool in_memory() const override { return in_memory_; }
  std::optional<Coalescing> coalescing() const override { return coalescing_; }

  std::vector<std::optional<StoredBytes>> get(std::span<const std::string> keys) override {
    return call_application([&] {
      nb::list names;
      for (const std::string& key : keys) names.append(key);
      std::vector<std::optional<StoredBytes>> found;
      for (nb::handle value : self().attr("get_many")(names)) {
        found.push_back(value.is_none() ? std::nullopt : std::optional(stored_bytes(value)));
      }
      return found;
    });
  }

  std::optional<std::uint64_t> size(const std::string& key) override {
    return call_application(
        [&] { return answer<std::optional<std::uint64_t>>(self().attr("nbytes")(key), "nbytes"); });
  }

  std::optional<StoredBytes> get_range(const std::string& key, const ByteRange& range) override {
    return call_application([&] {
      const nb::object found = self().attr("get_range")(key, range.offset, range.nbytes);
      return found.is_none() ? std::nullopt : std::optional(stored_bytes(found));
    });
  }

  std::optional<std::vector<StoredBytes>> get_ranges(const std::string& key,
                                                     std::span<const ByteRange> ranges) override {
    return call_application([&]() -> std::optional<std::vector<StoredBytes>> {
      nb::list wanted;
      for (const auto& [offset, nbytes] : ranges) wanted.append(nb::make_tuple(offset, nbytes));
      const nb::object found = self().attr("get_ranges")(key, wanted);
      if (found.is_none()) return std::nullopt;
      std::vector<StoredBytes> all;
      for (nb::handle value : found) all.push_back(stored_bytes(value));
      return all;
    });
  }

  std::size_t depth() const override { return depth_; }

  // A request is a tuple (id, key, first byte or None, bytes or None): all, a range, or a suffix,
  // which has no first byte. answer(id, bytes or None, error or None) may be called on any thread.
  void submit(std::vector<StoreRead> reads, std::shared_ptr<StoreAnswers> answers) override {
    call_application([&] {
      nb::list requests;
      for (const StoreRead& read : reads) {
        const bool is_whole = read.kind == StoreRead::Kind::whole;
        const bool is_range = read.kind == StoreRead::Kind::range;
        requests.append(nb::make_tuple(read.id,
                                       read.key,
                                       is_range ? nb::cast(read.range.offset) : nb::none(),
                                       is_whole ? nb::none() : nb::cast(read.range.nbytes)));
      }
      self().attr("submit")(requests,
                            nb::cpp_function(
                                [answers](std::uint64_t id, nb::object value, nb::object error) {
                                  answer_read(*answers, id, value, error);
                                },
                                nb::arg("id"),
                                nb::arg("value").none(),
                                nb::arg("error").none()));
    });
  }

  void cancel(std::uint64_t id) override {
    call_application([&] { self().attr("cancel")(id); });
  }

  void set(const std::string& key, std::span<const std::byte> bytes) override {
    call_application([&] { self().attr("set")(key, nb::bytes(bytes.data(), bytes.size())); });
  }

  void erase(const std::string& key) override {
    call_application([&] { self().attr("erase")(key); });
  }

  void erase_prefix(const std::string& prefix) override {
    call_application([&] { self().attr("erase_prefix")(prefix); });
  }

  std::vector<std::string> list(const std::string& prefix) override {
    return call_list([&] { return names(self().attr("list")(prefix), "list"); });
  }

  std::vector<std::string> list_dir(const std::string& prefix) override {
    return call_list([&] { return names(self().attr("list_dir")(prefix), "list_dir"); });
  }

 private:
  // Of a store that does not list `unsupported`, by which the library does without.
  template <typename Function>
  static std::vector<std::string> call_list(Function&& list) {
    return call_application([&] {
      try {
        return list();
      } catch (nb::python_error& raised) {
        if (!raised.matches(PyExc_NotImplementedError)) throw;
        throw Error(ErrorCode::unsupported, nb::str(raised.value()).c_str());
      }
    });
  }

  nb::handle self() const { return static_cast<PyObject*>(object_.get()); }

  std::string url_;
  bool read_only_;
  std::size_t batch_size_;
  std::size_t depth_;
  bool local_;
  bool in_memory_;
  std::optional<Coalescing> coalescing_;
  std::string identity_;
  std::string folder_;  // on this machine, absolute; empty: elsewhere
  std::string lasting_name_;
  std::shared_ptr<void> object_;
};

}  // namespace

void bind_python_store(nb::module_& m) {
  m.def(
      "python_store",
      [](nb::object object) {
        Origin origin;
        origin.python_store = keep_alive(object);
        return PyStore{make_store(std::make_shared<PythonStore>(object)),
                       std::make_shared<Origin>(std::move(origin))};
      },
      nb::arg("object"),
      nb::sig("def python_store(object: typing.Any) -> Store"));
}

}  // namespace headrace::python
