#include <headrace/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "handles.h"

namespace headrace::python {

namespace {

OpenOptions open_options(nb::handle device,
                         nb::handle zarr_format,
                         bool read_only,
                         nb::handle implementations) {
  OpenOptions options;
  options.device = device_from_python(device);
  if (!zarr_format.is_none()) options.zarr_format = nb::cast<int>(zarr_format);
  options.read_only = read_only;
  options.implementations = implementations_from_python(implementations);
  return options;
}

ShardOrder shard_order_from_python(const std::string& name) {
  for (std::size_t i = 0; i < kShardOrders.size(); ++i)
    if (name == kShardOrders[i]) return static_cast<ShardOrder>(i);
  throw Error(ErrorCode::invalid_argument,
              "shard_order: expected \"lexicographic\", \"colexicographic\" or \"morton\", got \"" +
                  name + "\"");
}

PyArray open_array_node(PyStore& store,
                        const std::string& path,
                        nb::handle device,
                        nb::handle zarr_format,
                        bool read_only,
                        nb::handle implementations,
                        std::string metadata_json,
                        bool write_empty_chunks,
                        const std::string& shard_order,
                        std::string attributes_json,
                        bool as_opened) {
  OpenOptions options = open_options(device, zarr_format, read_only, implementations);
  options.metadata_json = std::move(metadata_json);
  options.write_empty_chunks = write_empty_chunks;
  options.shard_order = shard_order_from_python(shard_order);
  options.attributes_json = std::move(attributes_json);
  options.as_opened = as_opened;
  Array array = [&] {
    nb::gil_scoped_release release;
    return open_array(store.store, path, options);
  }();
  return PyArray(std::move(array), store.origin, options.implementations);
}

PyGroup open_group_node(PyStore& store,
                        const std::string& path,
                        nb::handle zarr_format,
                        bool read_only,
                        bool use_consolidated) {
  OpenOptions options = open_options(nb::str("cpu"), zarr_format, read_only, nb::none());
  options.use_consolidated = use_consolidated;
  nb::gil_scoped_release release;
  return {open_group(store.store, path, options), store.origin};
}

PyArray member_array(PyGroup& self,
                     nb::handle member,
                     nb::handle device,
                     bool read_only,
                     nb::handle implementations) {
  const OpenOptions options = open_options(device, nb::none(), read_only, implementations);
  const std::string name = name_from_python(member);
  Array array = [&] {
    nb::gil_scoped_release release;
    return self.group.array(name, options);
  }();
  return PyArray(std::move(array), self.origin, options.implementations);
}

nb::list members(PyGroup& self) {
  const auto nodes = [&] {
    nb::gil_scoped_release release;
    return self.group.members();
  }();
  nb::list result;
  for (const Node& node : nodes)
    result.append(nb::make_tuple(name_to_python(node.name), node.is_group));
  return result;
}

nb::tuple members_and_left_out(PyGroup& self) {
  std::vector<NodeLeftOut> left_out;
  const auto nodes = [&] {
    nb::gil_scoped_release release;
    return self.group.members(left_out);
  }();
  nb::list found;
  for (const Node& node : nodes)
    found.append(nb::make_tuple(name_to_python(node.name), node.is_group));
  nb::list others;
  for (const NodeLeftOut& node : left_out)
    others.append(nb::make_tuple(name_to_python(node.name), node.why));
  return nb::make_tuple(found, others);
}

PyGroup as_stored(PyGroup& self) {
  nb::gil_scoped_release release;
  return {self.group.as_stored(), self.origin};
}

nb::list links_back(PyGroup& self) {
  const auto names = [&] {
    nb::gil_scoped_release release;
    return self.group.links_back();
  }();
  nb::list result;
  for (const std::string& name : names) result.append(name_to_python(name));
  return result;
}

}  // namespace

void bind_group(nb::module_& m) {
  // headrace.Group wraps it: mappings, trees and creation are Python's part.
  nb::class_<PyGroup>(m, "GroupHandle")
      .def("members", members, nb::sig("def members(self) -> list[tuple[str, bool]]"))
      .def("members_and_left_out",
           members_and_left_out,
           nb::sig("def members_and_left_out(self) -> "
                   "tuple[list[tuple[str, bool]], list[tuple[str, str]]]"))
      .def("as_stored", as_stored, nb::sig("def as_stored(self) -> GroupHandle"))
      .def("links_back", links_back, nb::sig("def links_back(self) -> list[str]"))
      .def(
          "is_group",
          [](PyGroup& self, nb::handle member) {
            const std::string name = name_from_python(member);
            nb::gil_scoped_release release;
            return self.group.is_group(name);
          },
          nb::arg("name"),
          nb::sig("def is_group(self, name: str) -> bool | None"))
      .def(
          "remove",
          [](PyGroup& self, nb::handle member) {
            const std::string name = name_from_python(member);
            nb::gil_scoped_release release;
            self.group.remove(name, check_signals);
          },
          nb::arg("name"),
          nb::sig("def remove(self, name: str) -> None"))
      .def("array",
           member_array,
           nb::arg("name"),
           nb::arg("device") = nb::none(),
           nb::arg("read_only") = false,
           nb::arg("implementations") = nb::none(),
           nb::sig("def array(self, name: str, device: str | None = None, "
                   "read_only: bool = False, implementations: dict[str, str] | None = None) -> "
                   "Array"))
      .def(
          "group",
          [](PyGroup& self, nb::handle member) {
            const std::string name = name_from_python(member);
            nb::gil_scoped_release release;
            return PyGroup{self.group.group(name), self.origin};
          },
          nb::arg("name"),
          nb::sig("def group(self, name: str) -> GroupHandle"))
      .def("_attributes_json", [](PyGroup& self) { return self.group.attributes_json(); })
      .def(
          "_set_attributes_json",
          [](PyGroup& self, const std::string& json) {
            WriteOptions options;
            options.poll = check_signals;
            nb::gil_scoped_release release;
            self.group.set_attributes_json(json, options);
          },
          nb::arg("json"))
      .def(
          "_update_attributes",
          [](PyGroup& self, std::string set, std::vector<std::string> remove, bool keep_present) {
            const AttributeChanges changes{std::move(set), std::move(remove), keep_present};
            WriteOptions options;
            options.poll = check_signals;
            nb::gil_scoped_release release;
            return self.group.update_attributes(changes, options);
          },
          nb::arg("set"),
          nb::arg("remove"),
          nb::arg("keep_present"),
          nb::sig("def _update_attributes(self, set: str, remove: list[str], keep_present: bool) "
                  "-> str"))
      .def_prop_ro("metadata_json", [](PyGroup& self) { return self.group.metadata_json(); })
      .def_prop_ro("consolidated", [](PyGroup& self) { return self.group.consolidated(); })
      .def_prop_ro("zarr_format", [](PyGroup& self) { return self.group.zarr_format(); })
      .def_prop_ro("read_only", [](PyGroup& self) { return self.group.read_only(); })
      .def_prop_ro(
          "path",
          [](PyGroup& self) { return name_to_python(self.group.path()); },
          nb::sig("def path(self) -> str"))
      .def_prop_ro("store", [](PyGroup& self) {
        return PyStore{self.group.store(), self.origin};
      });

  m.def(
      "printable",
      [](nb::handle text) { return printable(name_from_python(text)); },
      nb::arg("text"),
      nb::sig("def printable(text: str) -> str"),
      "Text from a store as a terminal may show it: control characters, marks of direction and "
      "bytes that are no UTF-8 are escaped.");
  m.def("open_array",
        open_array_node,
        nb::arg("store"),
        nb::arg("path"),
        nb::arg("device") = nb::none(),
        nb::arg("zarr_format") = nb::none(),
        nb::arg("read_only") = false,
        nb::arg("implementations") = nb::none(),
        nb::arg("metadata_json") = "",
        nb::arg("write_empty_chunks") = false,
        nb::arg("shard_order") = "lexicographic",
        nb::arg("attributes_json") = "",
        nb::arg("as_opened") = false,
        nb::sig("def open_array(store: Store, path: str, device: str | None = None, "
                "zarr_format: int | None = None, read_only: bool = False, "
                "implementations: dict[str, str] | None = None, metadata_json: str = '', "
                "write_empty_chunks: bool = False, shard_order: str = 'lexicographic', "
                "attributes_json: str = '', as_opened: bool = False) -> Array"));
  m.def("open_group",
        open_group_node,
        nb::arg("store"),
        nb::arg("path"),
        nb::arg("zarr_format") = nb::none(),
        nb::arg("read_only") = false,
        nb::arg("use_consolidated") = true,
        nb::sig("def open_group(store: Store, path: str, zarr_format: int | None = None, "
                "read_only: bool = False, use_consolidated: bool = True) -> GroupHandle"));
  m.def(
      "node_is_group",
      [](PyStore& store, const std::string& path, std::optional<int> zarr_format) {
        nb::gil_scoped_release release;
        return node_is_group(store.store, path, zarr_format);
      },
      nb::arg("store"),
      nb::arg("path"),
      nb::arg("zarr_format") = nb::none());
  m.def(
      "what_is_there",
      [](PyStore& store, const std::string& path) {
        nb::gil_scoped_release release;
        return what_is_there(store.store, path);
      },
      nb::arg("store"),
      nb::arg("path"));
  m.def(
      "consolidated_names_beside",
      [](PyStore& store, const std::string& path) {
        nb::gil_scoped_release release;
        return consolidated_names_beside(store.store, path);
      },
      nb::arg("store"),
      nb::arg("path"));
}

}  // namespace headrace::python
