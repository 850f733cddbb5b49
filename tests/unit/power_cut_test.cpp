// What stores leave when the power is cut: states that the disk may be in after each system call,
// by the model of conformance/power_cut.h. HEADRACE_POWER_CUTS=20 makes more of them at each.

#include "conformance/power_cut.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "conformance/config_guard.h"
#include "conformance/temp_folder.h"
#include "headrace/array.h"
#include "headrace/error.h"
#include "headrace/rechunk.h"
#include "headrace/store.h"
#include "store/store.h"
#include "unit/fault_scenarios.h"

namespace headrace::test {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::int32_t>;

unsigned states_a_call() {
  const char* text = std::getenv("HEADRACE_POWER_CUTS");
  return text == nullptr ? 2 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

std::optional<std::string> text_at(const Store& store, const std::string& key) {
  Buffer bytes;
  if (!store.driver().get(key, bytes)) return std::nullopt;
  return std::string(text_of(bytes));
}

// After which call an object had which bytes for certain; nothing: it was erased.
struct Promise {
  std::size_t at;
  std::string key;
  std::optional<std::string> text;
};

class PowerCutTest : public testing::Test {
 protected:
  PowerCutTest() { fs::create_directory(root_); }

  template <typename Check>
  void for_states(const PowerCut& disk, Check&& check) {
    const std::string left = folder_ / "left";
    for (std::size_t at = 0; at <= disk.calls(); ++at) {
      for (unsigned state = 0; state < states_a_call(); ++state) {
        fs::remove_all(left);
        disk.leave(at, static_cast<unsigned>(at) * 1000 + state, left);
        check(at, left);
        ++states_;
        ASSERT_FALSE(HasFailure()) << "after call " << at << ", state " << state;
      }
    }
  }

  // Sets and erases objects, some in folders that only chunks were put in before; then looks
  // whether what was promised is there, and nothing else than what was ever set.
  void check_promises(const std::string& fsync, bool chunks_too) {
    std::vector<Promise> promises;
    {
      PowerCut disk(root_);
      const Store store = open_store(root_ + "/s.zarr", StoreMode::append, {{"fsync", fsync}});
      const auto set = [&](const std::string& key, std::string text) {
        store.driver().set(key, bytes_of(text));
        promises.push_back({disk.now(), key, std::move(text)});
      };
      const auto erase = [&](const std::string& key) {
        store.driver().erase(key);
        promises.push_back({disk.now(), key, std::nullopt});
      };
      set("zarr.json", "{\"root\": 1}");
      for (int time = 0; time < 3; ++time) {
        const std::string number = std::to_string(time);
        set("g/a/c/0/" + number, "chunk " + number);
        set("g/a/zarr.json", "{\"array\": " + number + "}");
        set("g/v2/.zarray", "{\"v2\": " + number + "}");
        set("g/v2/0." + number, "chunk " + number);
        set("g/v2/.zattrs", "{\"attributes\": " + number + "}");
      }
      erase("g/v2/.zattrs");
      erase("g/a/zarr.json");
      store.erase_prefix("g/a/");
      set("g/a/zarr.json", "{\"again\": 0}");
      for_states(disk, [&](std::size_t at, const std::string& left) {
        check_state(promises, at, left, chunks_too);
      });
    }
  }

  static void check_state(const std::vector<Promise>& promises,
                          std::size_t at,
                          const std::string& left,
                          bool chunks_too) {
    if (!fs::exists(left + "/s.zarr")) {
      EXPECT_TRUE(promises.empty() || at < promises.front().at);
      return;
    }
    const Store store = open_store(left + "/s.zarr");
    for (std::size_t i = 0; i < promises.size(); ++i) {
      const std::string& key = promises[i].key;
      if (!names_metadata(key) && !chunks_too) continue;
      if (key.starts_with("g/a/c/"))
        continue;  // erased with their folder, which need not be synced
      // What may be there: what was promised last, and all that was begun since.
      std::vector<std::optional<std::string>> possible = {std::nullopt};
      for (const Promise& promise : promises) {
        if (promise.key != key) continue;
        if (promise.at <= at) possible.clear();
        possible.push_back(promise.text);
      }
      const auto found = text_at(store, key);
      EXPECT_TRUE(std::find(possible.begin(), possible.end(), found) != possible.end())
          << key << " is " << found.value_or("(none)");
    }
    // Chunks that were erased do not come back under the metadata that came after them.
    if (at >= promises.back().at) {
      EXPECT_EQ(store.list("g/a/"), (std::vector<std::string>{"g/a/zarr.json"}));
    }
  }

  // For long_runs.py.
  void TearDown() override { RecordProperty("states_after_a_cut", std::to_string(states_)); }

  TempFolder folder_{fast_directory_path()};
  const std::string root_ = folder_ / "root";
  const ConfigGuard guard_;
  long states_ = 0;
};

TEST_F(PowerCutTest, MetadataAreWholeAndLast) { check_promises("metadata", false); }

TEST_F(PowerCutTest, EverythingIsWholeAndLast) { check_promises("all", true); }

// The model must be able to tell: nothing is promised then, and it shows.
TEST_F(PowerCutTest, WithoutSyncsTheModelTearsDocuments) {
  PowerCut disk(root_);
  const Store store = open_store(root_ + "/s.zarr", StoreMode::append, {{"fsync", "none"}});
  const std::string text = "{\"root\": 1}";
  store.driver().set("zarr.json", bytes_of(text));
  bool torn = false;
  bool missing = false;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const std::string left = folder_ / ("left" + std::to_string(seed));
    disk.leave(disk.calls(), seed, left);
    if (!fs::exists(left + "/s.zarr/zarr.json")) {
      missing = true;
    } else {
      torn = torn || text_at(open_store(left + "/s.zarr"), "zarr.json") != text;
    }
  }
  EXPECT_TRUE(torn);
  EXPECT_TRUE(missing);
}

Values counting(std::size_t n) {
  Values values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int32_t>(i + 1);
  return values;
}

Array counting_array(const Store& store) {
  CreateOptions options;
  options.shape = {6, 4};
  options.chunks = {1, 4};
  options.dtype = DType::int32;
  Array array = create_array(store, "", options);
  Values values = counting(24);
  array.write({}, TensorView{values.data(), {6, 4}, {}, DType::int32, Device::cpu()});
  return array;
}

Values elements(const Array& array) {
  const Tensor tensor = array.read();
  Values result(tensor.view().size());
  std::memcpy(result.data(), tensor.data(), tensor.nbytes());
  return result;
}

class PowerCutRechunk : public PowerCutTest,
                        public testing::WithParamInterface<std::tuple<const char*, std::size_t>> {};

// Each of its blocks is noted, as if half a second had passed. What goes on from there after a cut
// is right, or says that a document of a node is torn where nobody asked for those to be synced.
TEST_P(PowerCutRechunk, GoesOnFromWhatIsOnTheDisk) {
  set_threads(1);
  const Array source = counting_array(memory_store());
  const auto& [durability, max_memory] = GetParam();
  const bool syncs_nodes = durability != std::string("none");
  const StorageOptions storage = {{"fsync", durability}};
  RechunkOptions options;
  options.chunks = {6, 1};
  options.max_memory = max_memory;
  options.overwrite = true;  // goes on all the same
  PowerCut disk(root_);
  for (int round = 0; round < 2; ++round) {  // into nothing, and over what is there
    // A progress that fails makes a note, and the next call goes on: after each block once.
    std::int64_t furthest = 0;
    options.progress = [&](std::int64_t done, std::int64_t) {
      if (done <= furthest) return;
      furthest = done;
      throw Error(ErrorCode::cancelled, "enough");
    };
    for (;;) {
      try {
        rechunk(source, open_store(root_ + "/d.zarr", StoreMode::append, storage), "", options);
        break;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::cancelled) << error.what();
      }
    }
    options.progress = nullptr;
    ASSERT_EQ(elements(open_array(open_store(root_ + "/d.zarr"))), counting(24));
  }
  for_states(disk, [&](std::size_t, const std::string& left) {
    const Store store = open_store(left + "/d.zarr", StoreMode::append);
    const bool goes_on = rechunk_is_unfinished(store, "");
    options.overwrite = !goes_on;
    try {
      rechunk(source, store, "", options);
    } catch (const Error& error) {
      EXPECT_TRUE(goes_on && !syncs_nodes && error.code() == ErrorCode::corrupt) << error.what();
      return;
    }
    EXPECT_EQ(elements(open_array(store)), counting(24));
    EXPECT_FALSE(rechunk_is_unfinished(store, ""));
    EXPECT_TRUE(store.list(".rechunk/").empty());
  });
}

INSTANTIATE_TEST_SUITE_P(Durabilities,
                         PowerCutRechunk,
                         testing::Combine(testing::Values("none", "metadata", "all"),
                                          testing::Values(std::size_t{1} << 20, 64)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) +
                                  (std::get<1>(param.param) == 64 ? "_twice" : "_once");
                         });

// The archive is the old one or the new one, whole, and the new one when close() has returned.
TEST_F(PowerCutTest, ArchivesAreWhole) {
  const std::string path = root_ + "/a.zip";
  const auto write = [&](const char* text) {
    Store archive = open_store(path, StoreMode::overwrite);
    for (const char* key : {"zarr.json", "c/0", "c/1"}) archive.driver().set(key, bytes_of(text));
    archive.close();
  };
  write("old");
  PowerCut disk(root_);
  write("new");
  const std::size_t closed = disk.now();
  write("newer");
  for_states(disk, [&](std::size_t at, const std::string& left) {
    const Store archive = open_store(left + "/a.zip");
    const auto found = text_at(archive, "zarr.json");
    EXPECT_TRUE(found == "newer" || found == "new" || (at < closed && found == "old"))
        << found.value_or("(none)");
    for (const char* key : {"c/0", "c/1"}) EXPECT_EQ(text_at(archive, key), found);
  });
}

// What users do, with all of it synced: as after a kill, and done when the call has returned.
class PowerCutScenario : public PowerCutTest, public testing::WithParamInterface<FaultScenario> {
 protected:
  PowerCutScenario() { use_fsync("all"); }
  ~PowerCutScenario() override { use_fsync("metadata"); }
};

TEST_P(PowerCutScenario, LeavesOldOrNew) {
  set_threads(1);
  GetParam().prepare(root_);
  PowerCut disk(root_);
  GetParam().act(root_);
  const std::size_t returned = disk.now();
  for_states(disk, [&](std::size_t at, const std::string& left) {
    GetParam().check(left, at == returned);
  });
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         PowerCutScenario,
                         testing::ValuesIn(fault_scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace headrace::test
