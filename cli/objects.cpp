// Commands for the objects of a store, whatever they hold: ls, du, cp and sync.

#include <fmt/format.h>

#include <map>
#include <optional>

#include "cli/command.h"
#include "cli/progress.h"

namespace headrace::cli {
namespace {

struct PlaceOptions {
  std::string place;
  std::vector<std::string> storage_options;
  bool json = false;

  // A folder is its files, and a repository by its own scheme what it describes.
  Store open() const {
    StorageOptions options = parse_storage_options("--storage-option", storage_options);
    if (place.find("://") == std::string::npos || place.starts_with("file://"))
      options.try_emplace("icechunk", "false");
    return open_store(place, StoreMode::read, options);
  }
};

void add_place_options(CLI::App& command, PlaceOptions& options, const char* name) {
  add_place(command, name, options.place, "Path or URL of a folder of objects")->required();
  command.add_option(
      "--storage-option", options.storage_options, "NAME=VALUE for the store, as in anon=true");
  command.add_flag("--json", options.json, "Print one JSON document");
}

// Nobody takes what is shown or copied for all that there is.
void tell(const LeftOut& left_out, std::string_view why) {
  if (left_out.objects == 0) return;
  say(fmt::format("left out: {} {} (first: {})\n",
                  counted(static_cast<std::int64_t>(left_out.objects), "object"),
                  why,
                  printable(left_out.first)));
}

void tell(const LeftOut& left_out) {
  tell(left_out, left_out.objects == 1 ? "whose key is no path" : "whose keys are no paths");
}

struct ListOptions : PlaceOptions {
  bool all = false;
  bool sizes = false;
};

void list(const ListOptions& options) {
  const Store store = options.open();
  LeftOut left_out;
  if (options.all || options.sizes) {
    Json objects = Json::array();
    std::string text;
    for (const ObjectSize& object : store.list_sizes("", left_out)) {
      objects.push_back({{"key", object.key}, {"nbytes", object.nbytes}});
      if (options.sizes) text += fmt::format("{:>14}  ", object.nbytes);
      text += printable(object.key) + '\n';
    }
    options.json ? print_json(objects) : print_text(text);
    tell(left_out);
    return;
  }
  Json names = Json::array();
  std::string text;
  for (const std::string& name : store.list_dir("", left_out)) {
    names.push_back(name);
    text += printable(name) + '\n';
  }
  options.json ? print_json(names) : print_text(text);
  tell(left_out);
}

struct Usage {
  std::uint64_t objects = 0, nbytes = 0;

  void add(const ObjectSize& object) {
    ++objects;
    nbytes += object.nbytes;
  }
  Json json() const { return {{"objects", objects}, {"nbytes", nbytes}}; }
  std::string text(const std::string& name) const {
    return fmt::format(
        "{:>10}  {:>8}  {}\n", human_nbytes(static_cast<double>(nbytes)), objects, printable(name));
  }
};

void show_usage(const PlaceOptions& options) {
  const Store store = options.open();
  std::map<std::string, Usage> parts;
  Usage total;
  LeftOut left_out;
  for (const ObjectSize& object : store.list_sizes("", left_out)) {
    const std::size_t slash = object.key.find('/');
    parts[slash == std::string::npos ? object.key : object.key.substr(0, slash + 1)].add(object);
    total.add(object);
  }
  Json names = Json::object();
  std::string text;
  for (const auto& [name, usage] : parts) {
    names[name] = usage.json();
    text += usage.text(name);
  }
  if (options.json) {
    print_json({{"names", std::move(names)}, {"total", total.json()}});
  } else {
    // A URL may hold a password, and the store's name has none.
    const bool is_url = options.place.find("://") != std::string::npos;
    print_text(text + total.text(is_url ? store.url() : options.place));
  }
  tell(left_out);
}

struct CopyCommand : PlaceOptions {
  std::string destination;
  std::vector<std::string> destination_options;
  bool verify = false;
  bool resume = false;
  bool checksum = false;
  bool size_only = false;
  bool remove_others = false;
  int at_once = 16;
};

Json progress_json(const CopyProgress& done) {
  return {{"objects", done.objects},
          {"nbytes", done.nbytes},
          {"copied", done.copied},
          {"copied_nbytes", done.copied_nbytes},
          {"removed", done.removed},
          {"left_out", done.left_out.objects},
          {"removed_meanwhile", done.gone.objects}};
}

void copy(const CopyCommand& command, const char* label, CopyOver over) {
  const Store from = command.open();
  std::optional<Store> to;
  const auto open_destination = [&] {
    return to.emplace(
        open_store(command.destination,
                   mode_of_destination(command.destination, false),
                   parse_storage_options("--to-option", command.destination_options)));
  };
  Progress bar(label, 1, Progress::Unit::bytes);
  bar.begin();
  CopyOptions options;
  options.over = over;
  options.verify = command.verify;
  options.remove_others = command.remove_others;
  options.at_once = command.at_once;
  options.progress = [&](const CopyProgress& p) {
    bar.set(static_cast<std::int64_t>(p.done_nbytes), static_cast<std::int64_t>(p.nbytes));
  };
  const CopyProgress done = [&] {
    try {
      return copy_objects(from, "", open_destination, "", options);
    } catch (...) {
      if (to) to->discard();
      throw;
    }
  }();
  to->close();
  bar.clear();
  tell(done.left_out);
  tell(done.gone, "removed meanwhile");
  if (command.json) {
    print_json(progress_json(done));
    return;
  }
  std::string text = fmt::format("copied {} of {}, {}",
                                 done.copied,
                                 counted(static_cast<std::int64_t>(done.objects), "object"),
                                 human_nbytes(static_cast<double>(done.copied_nbytes)));
  const std::uint64_t same = done.done - done.copied - done.gone.objects;
  if (over == CopyOver::other_size && same > 0)
    text += fmt::format("; {} were there in the same size", same);
  if (done.removed > 0) text += fmt::format("; removed {}", done.removed);
  print_text(text + '\n');
}

CLI::App* add_copy(CLI::App& app, const char* name, const char* what, CopyCommand& options) {
  CLI::App* command = app.add_subcommand(name, what);
  add_place_options(*command, options, "source");
  add_place(*command, "destination", options.destination, "Path or URL; made when missing")
      ->required();
  command->add_option("--to-option",
                      options.destination_options,
                      "NAME=VALUE for the destination's store, as in profile=lab");
  command->add_flag("--verify", options.verify, "Read each copied object back and compare");
  command->add_option("--at-once", options.at_once, "Objects on their way at a time")
      ->check(at_least(1));
  return command;
}

}  // namespace

void add_ls(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ls", "List the objects of a store");
  const auto options = std::make_shared<ListOptions>();
  add_place_options(*command, *options, "place");
  command->add_flag("-r,--recursive", options->all, "All objects below, not only the names here");
  command->add_flag("-l,--long", options->sizes, "All objects below, with their sizes in bytes");
  command->footer("Examples:\n  headrace ls era5.zarr\n  headrace ls -l s3://bucket/era5.zarr/t2m");
  command->callback([options] { list(*options); });
}

void add_du(CLI::App& app) {
  CLI::App* command = app.add_subcommand("du", "Say what the objects of a store take");
  const auto options = std::make_shared<PlaceOptions>();
  add_place_options(*command, *options, "place");
  command->footer("Examples:\n  headrace du era5.zarr");
  command->callback([options] { show_usage(*options); });
}

void add_cp(CLI::App& app) {
  const auto options = std::make_shared<CopyCommand>();
  CLI::App* command =
      add_copy(app, "cp", "Copy the objects of a store as they are to another", *options);
  command->add_flag("--resume", options->resume, "Leave out what is there already, as sync does");
  command->footer(
      "Nothing is copied where the destination has chunks of an array, or documents of a node,\n"
      "that the source lacks: \"headrace sync --delete\" removes them.\n\n"
      "Examples:\n"
      "  headrace cp era5.zarr /backup/era5.zarr --resume --verify\n"
      "  headrace cp s3://bucket/era5.zarr era5.zarr --storage-option anon=true");
  command->callback([options] {
    copy(*options, "cp", options->resume ? CopyOver::older : CopyOver::everything);
  });
}

void add_sync(CLI::App& app) {
  const auto options = std::make_shared<CopyCommand>();
  CLI::App* command =
      add_copy(app, "sync", "Copy what another store lacks or has as it was before", *options);
  CLI::Option* checksum =
      command->add_flag("--checksum", options->checksum, "Compare bytes, not sizes and times");
  command->add_flag("--size-only", options->size_only, "Compare sizes, not times")
      ->excludes(checksum);
  command->add_flag(
      "--delete", options->remove_others, "Remove what only the destination has, at the end");
  command->footer(
      "What has the same size and was written after the source's is left as it is: --checksum\n"
      "where clocks differ, or what is read may change meanwhile. Without --delete nothing is\n"
      "copied where the destination has chunks of an array, or documents of a node, that the\n"
      "source lacks.\n\n"
      "Examples:\n  headrace sync era5.zarr s3://bucket/era5.zarr --delete");
  command->callback([options] {
    const CopyOver over = options->checksum    ? CopyOver::other_bytes
                          : options->size_only ? CopyOver::other_size
                                               : CopyOver::older;
    copy(*options, "sync", over);
  });
}

}  // namespace headrace::cli
