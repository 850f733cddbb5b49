#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "cli/command.h"
#include "cli/progress.h"

namespace headrace::cli {
namespace {

struct Finding {
  std::string path;
  std::int64_t chunks = 0;
  Json bad = Json::array();
  std::optional<bool> checksum = std::nullopt;  // nothing of what cannot be opened
};

Json failure(const std::string& key, const Error& error) {
  return {{"key", key}, {"code", error_code_name(error.code())}, {"message", error.what()}};
}

// Its own format, .xz, has one unless told not to; the older .lzma and raw streams have none.
bool lzma_has_check(const Json& configuration) {
  constexpr int kXz = 1;
  constexpr int kNoCheck = 0;
  const Json format = configuration.value("format", Json(kXz));
  const Json check = configuration.value("check", Json(-1));
  return format == kXz && check != kNoCheck;
}

// Whether one of the codecs keeps a checksum of the chunk or of what it encodes. Without one a
// changed byte may decode to changed values, and nobody can tell.
bool has_checksum(const Json& codecs) {
  static const std::set<std::string> kSums = {
      "crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3", "gzip", "zlib", "bz2"};
  constexpr std::string_view kNumcodecs = "numcodecs.";
  for (const Json& codec : codecs) {
    std::string name = (codec.is_string() ? codec : codec.at("name")).get<std::string>();
    if (name.starts_with(kNumcodecs)) name.erase(0, kNumcodecs.size());
    const Json configuration = codec.is_object() && codec.contains("configuration") &&
                                       codec.at("configuration").is_object()
                                   ? codec.at("configuration")
                                   : Json::object();
    if (kSums.contains(name)) return true;
    if (name == "zstd" && configuration.value("checksum", Json(false)) == true) return true;
    if (name == "lzma" && lzma_has_check(configuration)) return true;
    if (name == "sharding_indexed" && has_checksum(configuration.at("codecs"))) return true;
  }
  return false;
}

bool has_checksum(const Array& array) {
  Json codecs = Json::array();
  for (const CodecSpec& codec : array.codecs()) {
    Json row = {{"name", codec.name}};
    if (!codec.configuration.empty()) row["configuration"] = parse_json(codec.configuration);
    codecs.push_back(std::move(row));
  }
  return has_checksum(codecs);
}

// What is left to look at, in stored bytes: chunk by chunk, and only for a terminal, because their
// sum takes a list of the store.
class Watch {
 public:
  explicit Watch(const std::vector<std::function<Array()>>& arrays)
      : bar_("verify", 1, Progress::Unit::bytes) {
    if (!bar_.is_shown()) return;
    bar_.begin();
    for (const auto& open : arrays) {
      try {
        total_ += open().nbytes_stored();
      } catch (const Error&) {
        continue;  // verify itself says what is wrong
      }
    }
  }

  ReadOptions options() {
    ReadOptions options;
    if (!bar_.is_shown()) return options;
    options.encoded_nbytes = &done_;
    options.poll = [this] { bar_.set(static_cast<std::int64_t>(done_.load()), total_); };
    return options;
  }

 private:
  Progress bar_;
  std::int64_t total_ = 0;
  std::atomic<std::uint64_t> done_{0};
};

Finding verify_array(const std::string& path, const std::function<Array()>& open, Watch& watch) {
  Finding finding;
  finding.path = path;
  try {
    const Array array = open();
    finding.checksum = has_checksum(array);
    finding.chunks =
        array.verify([&](const std::string& key,
                         const Error& error) { finding.bad.push_back(failure(key, error)); },
                     watch.options());
  } catch (const Error& e) {
    finding.bad.push_back(failure("", e));  // metadata, or a codec that this build lacks
  }
  return finding;
}

std::vector<Finding> verify_all(const Walk& walk) {
  std::vector<Finding> findings;
  for (const auto& [path, error] : walk.broken)
    findings.push_back({path, 0, Json::array({failure("", error)})});
  std::vector<std::function<Array()>> arrays;
  for (const Walk::ArrayPlace& place : walk.arrays)
    arrays.emplace_back([&place] { return place.group.array(place.name); });
  Watch watch(arrays);
  for (std::size_t i = 0; i < arrays.size(); ++i)
    findings.push_back(verify_array(walk.arrays[i].path, arrays[i], watch));
  return findings;
}

// Of the target and the groups below it: a rechunk writes to a node of its own.
std::vector<std::string> unfinished_in(const Target& target, const std::optional<Walk>& walk) {
  std::vector<std::string> places = walk ? walk->groups : std::vector<std::string>{target.path};
  if (walk) {
    for (const Walk::ArrayPlace& array : walk->arrays) places.push_back(array.path);
  }
  std::erase_if(
      places, [&](const std::string& path) { return !rechunk_is_unfinished(target.store, path); });
  return places;
}

Json report_json(const std::vector<Finding>& findings,
                 const std::vector<NodeLeftOut>& left_out,
                 const std::vector<std::string>& unfinished) {
  Json arrays = Json::array();
  std::int64_t chunks = 0;
  std::size_t bad = 0;
  std::int64_t unchecked = 0;
  for (const Finding& finding : findings) {
    arrays.push_back({{"path", finding.path},
                      {"chunks", finding.chunks},
                      {"checksum", finding.checksum ? Json(*finding.checksum) : Json(nullptr)},
                      {"bad", finding.bad}});
    chunks += finding.chunks;
    bad += finding.bad.size();
    unchecked += finding.checksum == false;
  }
  return {{"ok", bad == 0 && unfinished.empty()},
          {"chunks", chunks},
          {"bad", bad},
          {"without_checksum", unchecked},
          {"left_out", names_of(left_out)},
          {"unfinished", unfinished},
          {"arrays", std::move(arrays)}};
}

std::string report_text(const Json& report) {
  std::string text;
  for (const Json& array : report.at("arrays")) {
    for (const Json& bad : array.at("bad")) {
      const std::string key = bad.at("key").get<std::string>();
      text += fmt::format("bad: {}: {}\n",
                          printable(key.empty() ? array.at("path").get<std::string>() : key),
                          printable(bad.at("message").get<std::string>()));
    }
  }
  for (const Json& path : report.at("unfinished")) {
    const std::string name = path.get<std::string>();
    text += fmt::format(
        "unfinished: {}: a rechunk to here is at work or has stopped halfway: what it has not "
        "written reads as the fill value\n",
        name.empty() ? "/" : printable(name));
  }
  text += fmt::format("{}, {}, {} bad\n",
                      counted(static_cast<std::int64_t>(report.at("arrays").size()), "array"),
                      counted(report.at("chunks").get<std::int64_t>(), "chunk"),
                      report.at("bad").get<std::size_t>());
  if (const auto n = report.at("without_checksum").get<std::int64_t>(); n > 0) {
    text += fmt::format("{} {} no checksum: changed values may go unseen there\n",
                        counted(n, "array"),
                        n == 1 ? "has" : "have");
  }
  return text;
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "verify", "Decode every chunk, check every checksum, name every bad chunk");
  const auto options = std::make_shared<CommonOptions>();
  add_common_options(*command, *options);
  add_path_argument(*command, *options);
  command->footer("Examples:\n  headrace verify era5.zarr\n  headrace verify era5.zarr/t2m --json");
  command->callback([options, &status] {
    const Target target = open_target(*options);
    std::vector<Finding> findings;
    std::optional<Walk> walk;
    if (target.is_group) {
      walk.emplace(target.group().as_stored());
      findings = verify_all(*walk);
    } else {
      const std::function<Array()> open = [&] { return target.array(); };
      Watch watch({open});
      findings.push_back(verify_array(target.path, open, watch));
    }
    const std::vector<NodeLeftOut> left_out = walk ? walk->left_out : std::vector<NodeLeftOut>();
    const Json report = report_json(findings, left_out, unfinished_in(target, walk));
    if (options->json) {
      print_json(report);
    } else {
      print_text(left_out_text(left_out) + report_text(report));
    }
    if (!report.at("ok").get<bool>()) status = 1;
  });
}

}  // namespace headrace::cli
