// Arrays between processes: what headrace.shm is made of. Parts of a message are buffers, of which
// Python makes arrays.

#include <headrace/device.h>
#include <headrace/shm.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer_bytes.h"
#include "common.h"

namespace headrace::python {

namespace {

// A block of shared memory as a buffer; it is held as long as somebody has the buffer.
struct PyBlock {
  shm::Block block;
  bool writable;
};

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  const auto* block = nb::inst_ptr<PyBlock>(self);
  const std::span<std::byte> bytes = block->block.bytes;
  return PyBuffer_FillInfo(buffer,
                           self,
                           bytes.data(),
                           static_cast<Py_ssize_t>(bytes.size()),
                           block->writable ? 0 : 1,
                           flags);
}

PyType_Slot block_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr},
};

// The buffers of a message, held while it is sent.
class PartList {
 public:
  explicit PartList(nb::handle buffers) {
    for (nb::handle buffer : buffers) {
      held_.push_back(std::make_unique<BufferBytes>(buffer));
      parts_.push_back(held_.back()->bytes());
    }
  }
  shm::Parts parts() const { return parts_; }

 private:
  std::vector<std::unique_ptr<BufferBytes>> held_;
  std::vector<std::span<const std::byte>> parts_;
};

shm::Wait wait_for(std::optional<double> timeout) {
  // Longer is for ever: the nanoseconds of a century fit.
  constexpr double kLongest = 3.0e9;
  shm::Wait wait;
  if (timeout && std::isnan(*timeout))
    raise(PyExc_ValueError, "timeout: expected seconds, got nan");
  if (timeout && *timeout < kLongest) {
    const std::chrono::duration<double> seconds(std::max(*timeout, 0.0));
    wait.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(seconds);
  }
  wait.interrupt = check_signals;
  return wait;
}

nb::object block_list(shm::Message&& message) {
  nb::list blocks;
  for (shm::Block& block : message) blocks.append(PyBlock{std::move(block), false});
  return blocks;
}

shm::HugePages huge_pages_from(const std::string& name) {
  if (name == "auto") return shm::HugePages::automatic;
  if (name == "always") return shm::HugePages::always;
  if (name == "never") return shm::HugePages::never;
  raise(PyExc_ValueError,
        "huge_pages: expected \"auto\", \"always\" or \"never\", got \"" + name + "\"");
}

shm::Backing backing_from(const std::string& name) {
  if (name == "auto") return shm::Backing::automatic;
  if (name == "memfd") return shm::Backing::memfd;
  if (name == "posix") return shm::Backing::posix;
  raise(PyExc_ValueError,
        "backing: expected \"auto\", \"memfd\" or \"posix\", got \"" + name + "\"");
}

shm::Arena create_arena(std::size_t nbytes,
                        const std::string& huge_pages,
                        const std::string& backing,
                        bool interleave,
                        std::size_t max_blocks) {
  shm::ArenaOptions options;
  options.huge_pages = huge_pages_from(huge_pages);
  options.backing = backing_from(backing);
  options.interleave = interleave;
  options.max_blocks = max_blocks;
  nb::gil_scoped_release release;
  return shm::Arena::create(nbytes, options);
}

std::optional<PyBlock> allocate(const shm::Arena& arena,
                                std::size_t nbytes,
                                std::optional<double> timeout) {
  const shm::Wait wait = wait_for(timeout);
  nb::gil_scoped_release release;
  auto block = arena.allocate(nbytes, wait);
  if (!block) return std::nullopt;
  return PyBlock{std::move(*block), true};
}

nb::object send(const shm::Arena& arena, nb::handle buffers, std::optional<double> timeout) {
  const PartList parts(buffers);
  const shm::Wait wait = wait_for(timeout);
  std::optional<shm::Descriptor> descriptor;
  {
    nb::gil_scoped_release release;
    descriptor = arena.send(parts.parts(), wait);
  }
  if (!descriptor) return nb::none();
  return nb::bytes(reinterpret_cast<const char*>(descriptor->data()), descriptor->size());
}

nb::object receive(const shm::Arena& arena, nb::handle buffer) {
  shm::Descriptor descriptor;
  const BufferBytes bytes(buffer);
  if (bytes.bytes().size() != descriptor.size()) {
    raise(PyExc_ValueError,
          "[receive] descriptor: expected 64 bytes, got " + std::to_string(bytes.bytes().size()));
  }
  std::memcpy(descriptor.data(), bytes.bytes().data(), descriptor.size());
  const shm::Wait wait = wait_for(std::nullopt);
  shm::Message message;
  {
    nb::gil_scoped_release release;
    message = arena.receive(descriptor, wait);
  }
  return block_list(std::move(message));
}

nb::object stats(const shm::Arena& arena) {
  const shm::ArenaStats stats = [&] {
    const shm::Wait wait = wait_for(std::nullopt);
    nb::gil_scoped_release release;
    return arena.stats(wait);
  }();
  nb::dict result;
  result["nbytes"] = stats.nbytes;
  result["used_nbytes"] = stats.used_nbytes;
  result["blocks"] = stats.blocks;
  result["in_transit"] = stats.in_transit;
  result["orphans"] = stats.orphans;
  result["processes"] = stats.processes;
  result["huge_pages"] = stats.huge_pages;
  result["backing"] = stats.backing == shm::Backing::posix ? "posix" : "memfd";
  return result;
}

bool put(const shm::Channel& channel, nb::handle buffers, std::optional<double> timeout) {
  const PartList parts(buffers);
  const shm::Wait wait = wait_for(timeout);
  nb::gil_scoped_release release;
  return channel.put(parts.parts(), wait);
}

nb::object get(const shm::Channel& channel, std::optional<double> timeout) {
  const shm::Wait wait = wait_for(timeout);
  std::optional<shm::Message> message;
  {
    nb::gil_scoped_release release;
    message = channel.get(wait);
  }
  return message ? block_list(std::move(*message)) : nb::none();
}

shm::Publication publish(const std::string& name, nb::handle buffers) {
  const PartList parts(buffers);
  nb::gil_scoped_release release;
  return shm::publish(name, parts.parts());
}

nb::object attach_publication(const std::string& name, std::optional<double> timeout) {
  const shm::Wait wait = wait_for(timeout);
  shm::Message message;
  {
    nb::gil_scoped_release release;
    message = shm::attach(name, wait);
  }
  return block_list(std::move(message));
}

// The memory of a buffer, read-only or not, as one that may be written to.
PyBlock writable(nb::handle buffer) {
  const auto held = std::make_shared<BufferBytes>(buffer);
  const std::span<const std::byte> bytes = held->bytes();
  return {{{const_cast<std::byte*>(bytes.data()), bytes.size()}, held}, true};
}

// The pages of an arena, which stay mapped as long as they are locked.
struct PinnedArena {
  shm::Arena arena;
  std::shared_ptr<void> lock;
};

// Locked as long as the capsule lives.
nb::capsule pin(const shm::Arena& arena) {
  auto pinned = [&] {
    nb::gil_scoped_release release;
    const std::span<std::byte> memory = arena.memory();
    return std::make_unique<PinnedArena>(
        PinnedArena{arena, pin_memory(memory.data(), memory.size())});
  }();
  return nb::capsule(pinned.release(),
                     [](void* held) noexcept { delete static_cast<PinnedArena*>(held); });
}

void bind_arena(nb::module_& m) {
  nb::class_<shm::Arena>(m, "ShmArena")
      .def_static("create",
                  create_arena,
                  nb::arg("nbytes"),
                  nb::kw_only(),
                  nb::arg("huge_pages") = "auto",
                  nb::arg("backing") = "auto",
                  nb::arg("interleave") = false,
                  nb::arg("max_blocks") = 0)
      .def_static(
          "attach", &shm::Arena::attach, nb::arg("fd"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("fd", &shm::Arena::fd)
      .def_prop_ro("id", &shm::Arena::id)
      .def_prop_ro("address",
                   [](const shm::Arena& self) {
                     return reinterpret_cast<std::uintptr_t>(self.memory().data());
                   })
      .def(
          "memory",
          [](const shm::Arena& self) {
            return PyBlock{{self.memory(), std::make_shared<shm::Arena>(self)}, true};
          },
          "All of the arena, whoever has what of it.")
      .def("allocate", allocate, nb::arg("nbytes"), nb::arg("timeout").none() = nb::none())
      .def(
          "channel",
          [](const shm::Arena& self, std::size_t capacity) {
            const shm::Wait wait = wait_for(std::nullopt);
            nb::gil_scoped_release release;
            return self.channel(capacity, wait);
          },
          nb::arg("capacity"))
      .def(
          "open",
          [](const shm::Arena& self, std::uint32_t block, std::uint32_t generation) {
            const shm::Wait wait = wait_for(std::nullopt);
            nb::gil_scoped_release release;
            return self.open({block, generation}, wait);
          },
          nb::arg("block"),
          nb::arg("generation"))
      .def("send",
           send,
           nb::arg("buffers"),
           nb::arg("timeout").none() = nb::none(),
           nb::sig("def send(self, buffers: collections.abc.Iterable[typing.Any], timeout: float | "
                   "None = None) -> bytes | None"))
      .def("receive",
           receive,
           nb::arg("descriptor"),
           nb::sig("def receive(self, descriptor: typing.Any) -> list[ShmBlock]"))
      .def("pin", pin, nb::sig("def pin(self) -> typing.Any"))
      .def("stats", stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def(
          "reclaim",
          [](const shm::Arena& self, bool orphans) {
            const shm::Wait wait = wait_for(std::nullopt);
            nb::gil_scoped_release release;
            return self.reclaim(orphans, wait);
          },
          nb::arg("orphans") = false);
}

void bind_channel(nb::module_& m) {
  nb::class_<shm::Channel>(m, "ShmChannel")
      .def("put",
           put,
           nb::arg("buffers"),
           nb::arg("timeout").none() = nb::none(),
           nb::sig("def put(self, buffers: collections.abc.Iterable[typing.Any], timeout: float | "
                   "None = None) -> bool"))
      .def("get",
           get,
           nb::arg("timeout").none() = nb::none(),
           nb::sig("def get(self, timeout: float | None = None) -> list[ShmBlock] | None"))
      .def_prop_ro("size", &shm::Channel::size)
      .def_prop_ro("capacity", &shm::Channel::capacity)
      .def_prop_ro(
          "handle",
          [](const shm::Channel& self) {
            const shm::ChannelHandle handle = self.handle();
            return nb::make_tuple(handle.block, handle.generation);
          },
          nb::sig("def handle(self) -> tuple[int, int]"));
}

void bind_publication(nb::module_& m) {
  nb::class_<shm::Publication>(m, "ShmPublication")
      .def_prop_ro("name", &shm::Publication::name)
      .def_prop_ro("nbytes", &shm::Publication::nbytes)
      .def("close", &shm::Publication::close, nb::call_guard<nb::gil_scoped_release>());
  m.def("shm_publish",
        publish,
        nb::arg("name"),
        nb::arg("buffers"),
        nb::sig("def shm_publish(name: str, buffers: collections.abc.Iterable[typing.Any]) -> "
                "ShmPublication"));
  m.def("shm_attach",
        attach_publication,
        nb::arg("name"),
        nb::arg("timeout").none() = nb::none(),
        nb::sig("def shm_attach(name: str, timeout: float | None = None) -> list[ShmBlock]"));
}

}  // namespace

void bind_shm(nb::module_& m) {
  nb::class_<PyBlock>(m, "ShmBlock", nb::type_slots(block_slots))
      .def_prop_ro("address", [](const PyBlock& self) {
        return reinterpret_cast<std::uintptr_t>(self.block.bytes.data());
      });
  m.def("shm_writable", writable, nb::arg("buffer"));
  bind_arena(m);
  bind_channel(m);
  bind_publication(m);
}

}  // namespace headrace::python
