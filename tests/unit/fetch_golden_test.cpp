// What reads ask a store for, request by request: unit/fetch_requests.txt has a line for each kind
// of array, store, reader and selection. Whoever changes what is asked for together changes that
// file too, and sees what for whom: with HEADRACE_WRITE_GOLDEN=1 the test writes it anew.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>

#include "conformance/config_guard.h"
#include "conformance/inject.h"
#include "headrace/array.h"
#include "headrace/cached_store.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

const char* const kPath = HEADRACE_SOURCE_DIR "/tests/unit/fetch_requests.txt";

using test::Layout;
using test::StoreManners;

// Encoded to known sizes, whatever the libraries' versions: the requests are the same everywhere.
const CodecSpec little = codec::bytes();
const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all_of_them = {
      {"plain", {60, 60}, {8, 8}, {}, {little}},
      {"encoded", {60, 60}, {8, 8}, {}, {little, shuffle}},
      {"plain-shards", {60, 60}, {8, 8}, {16, 32}, {little}},
      {"encoded-shards", {60, 60}, {8, 8}, {16, 32}, {little, shuffle}},
      {"nested-shards",
       {60, 60},
       {16, 32},
       {32, 64},
       {codec::sharding({8, 8}, {little, shuffle}, {little, codec::crc32c()})}},
      // Runs end in the middle of a shard, of whatever length they are.
      {"long-shards", {512, 2048}, {64, 128}, {512, 2048}, {little, shuffle}},
      {"large", {1024, 1024}, {512, 1024}, {}, {little, shuffle}},
  };
  return all_of_them;
}

const std::vector<std::pair<const char*, Selection>>& selections() {
  static const std::vector<std::pair<const char*, Selection>> all_of_them = {
      {"whole", {}},
      {"part", {slice(3, 30), slice(5, 50)}},
      {"row", {3}},
      {"sparse", Selection::orthogonal({IndexArray{{1, 9, 44}, {3}}, slice(0, 60, 20)})},
      {"points",
       Selection::coordinate({IndexArray{{1, 1, 50, 9}, {4}}, IndexArray{{2, 40, 3, 9}, {4}}})},
  };
  return all_of_them;
}

struct StoreCase {
  const char* name;
  StoreManners manners;
  bool is_cached = false;
};

const std::vector<StoreCase>& stores() {
  static const std::vector<StoreCase> all_of_them = {
      {"local", {}},
      {"local-batches", {true, 7}},
      {"network", {false, 1}},
      {"network-batches", {false, 7}},
      {"network-near", {false, 7, Coalescing{1000, 3000}}},
      {"cached-local", {true, 7}, true},
      {"cached-network", {false, 7}, true},
  };
  return all_of_them;
}

// Who decodes, for whose memory.
struct ReaderCase {
  const char* name;
  Device device;
  std::size_t device_min_decode_nbytes;
};

const std::vector<ReaderCase>& readers() {
  static const std::vector<ReaderCase> all_of_them = {
      {"host", Device::cpu(), 0},
      {"device", Device::simt(), 0},
      {"host-for-device", Device::simt(), std::size_t{1} << 40},
  };
  return all_of_them;
}

std::uint64_t hash_of(const std::vector<std::string>& requests) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const std::string& request : requests) {
    for (const char c : request + "\n")
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash;
}

// How many there are of each kind, and the hash of all.
std::string summary(const std::vector<std::string>& requests) {
  std::map<std::string, int> counts;
  for (const std::string& request : requests) ++counts[request.substr(0, request.find(' '))];
  std::string text;
  for (const auto& [kind, n] : counts) text += std::to_string(n) + " " + kind + ", ";
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_of(requests)));
  return text + hash;
}

using Lines = std::map<std::string, std::string>;

Lines expected_lines() {
  Lines lines;
  std::ifstream file(kPath);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    lines[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return lines;
}

class FetchRequests : public testing::Test {
 protected:
  void SetUp() override { expected_ = expected_lines(); }
  void TearDown() override {
    if (!std::getenv("HEADRACE_WRITE_GOLDEN")) return;
    for (const auto& [name, line] : found_) expected_[name] = line;
    std::ofstream file(kPath);
    for (const auto& [name, line] : expected_) file << name << ": " << line << '\n';
  }

  static void configure(int threads, std::size_t least_decoded) {
    Config changed = config();
    changed.threads = threads;
    changed.device_min_decode_nbytes = least_decoded;
    changed.device_slab_nbytes = std::size_t{1} << 30;
    set_config(changed);
  }

  // A store of the case before that of the bytes.
  Store store_of(const StoreCase& store, const Store& bytes) const {
    const Store recorded(test::make_recording_store(bytes.shared_driver(), store.manners, record_));
    if (!store.is_cached) return recorded;
    CacheOptions options;
    options.block_nbytes = 512;
    return cached_store(recorded, options);
  }

  // The requests of read(), compared with those of that name. With several threads their order is
  // not one.
  void expect(const std::string& name, bool in_order, const std::function<void()>& read) {
    record_->take();
    read();
    std::vector<std::string> requests = record_->take();
    if (!in_order) std::ranges::sort(requests);
    found_[name] = summary(requests);
    if (std::getenv("HEADRACE_WRITE_GOLDEN")) return;
    EXPECT_EQ(found_[name], expected_[name])
        << name << ":\n"
        << std::accumulate(requests.begin(),
                           requests.end(),
                           std::string(),
                           [](const std::string& a, const std::string& b) { return a + b + '\n'; });
  }

  const std::shared_ptr<test::StoreRecord> record_ = std::make_shared<test::StoreRecord>();

 private:
  const test::ConfigGuard guard_;
  Lines expected_, found_;
};

std::string joined(std::initializer_list<const char*> words) {
  std::string text;
  for (const char* const word : words) text += (text.empty() ? "" : " ") + std::string(word);
  return text;
}

TEST_F(FetchRequests, OfOneThread) {
  for (const Layout& layout : layouts()) {
    const bool is_long = layout.shape[0] > 60;
    const Store bytes = memory_store();
    filled(bytes, layout);
    for (const ReaderCase& reader : readers()) {
      configure(1, reader.device_min_decode_nbytes);
      for (const StoreCase& store : stores()) {
        if (is_long && store.is_cached) continue;
        for (const auto& [name, selection] : selections()) {
          if (is_long && std::string(name) == "part") continue;
          const Array a = open_array(store_of(store, bytes), "a").to(reader.device);
          expect(joined({layout.name, reader.name, store.name, name}), true, [&] {
            a.read(selection);
          });
        }
      }
    }
  }
}

TEST_F(FetchRequests, OfSeveralThreads) {
  for (const Layout& layout : layouts()) {
    const Store bytes = memory_store();
    filled(bytes, layout);
    for (const ReaderCase& reader : readers()) {
      configure(3, reader.device_min_decode_nbytes);
      for (const StoreCase& store : stores()) {
        if (store.is_cached) continue;  // threads that miss one block take turns by chance
        const Array a = open_array(store_of(store, bytes), "a").to(reader.device);
        expect(joined({layout.name, reader.name, store.name, "whole, 3 threads"}), false, [&] {
          a.read();
        });
      }
    }
  }
}

TEST_F(FetchRequests, WithinABudget) {
  for (const Layout& layout : layouts()) {
    const Store bytes = memory_store();
    filled(bytes, layout);
    for (const ReaderCase& reader : readers()) {
      configure(1, reader.device_min_decode_nbytes);
      for (const StoreCase& store : stores()) {
        if (store.is_cached) continue;
        const Array a = open_array(store_of(store, bytes), "a").to(reader.device);
        expect(joined({layout.name, reader.name, store.name, "whole, 3000 bytes"}), true, [&] {
          ReadOptions options;
          options.memory_budget = 3000;
          a.read({}, options);
        });
      }
    }
  }
}

TEST_F(FetchRequests, OfSeveralArrays) {
  for (const ReaderCase& reader : readers()) {
    configure(1, reader.device_min_decode_nbytes);
    for (const StoreCase& store : stores()) {
      std::vector<ReadRequest> requests;
      std::vector<Tensor> results;
      for (const std::size_t i : {0, 1, 3}) {
        const Store bytes = memory_store();
        filled(bytes, layouts()[i]);
        const Array a = open_array(store_of(store, bytes), "a").to(reader.device);
        for (const Selection& selection : {Selection{slice(0, 20)}, Selection{slice(30, 40)}}) {
          results.push_back(Tensor::empty(a.result_shape(selection), a.dtype(), reader.device));
          requests.push_back({a, selection, results.back().view()});
        }
      }
      expect(joined({"several", reader.name, store.name}), true, [&] { read_many(requests); });
    }
  }
}

TEST_F(FetchRequests, OfARectilinearGrid) {
  CreateOptions options;
  options.shape = {60, 60};
  options.dtype = DType::float32;
  options.edges = {Shape{20, 20, 8, 12}, std::int64_t{16}};
  options.codecs = {little, shuffle};
  const Store bytes = memory_store();
  const Array a = create_array(bytes, "a", options);
  Tensor data = Tensor::empty({40, 60}, DType::float32);
  std::memset(data.data(), 1, data.nbytes());
  a.write({slice(0, 40)}, data.view());
  for (const ReaderCase& reader : readers()) {
    configure(1, reader.device_min_decode_nbytes);
    for (const StoreCase& store : stores()) {
      const Array there = open_array(store_of(store, bytes), "a").to(reader.device);
      expect(joined({"rectilinear", reader.name, store.name}), true, [&] { there.read(); });
    }
  }
}

// A few large reads, which threads take in pieces where they go to a device.
TEST_F(FetchRequests, OfLargePieces) {
  const Layout one{"one", {2560, 1024}, {2560, 1024}, {}, {little}};
  const Layout shard{"one-in-shard", {2560, 1024}, {2560, 1024}, {2560, 1024}, {little}};
  for (const Layout& layout : {one, shard}) {
    const Store bytes = memory_store();
    const Array a = create(bytes, layout);
    Tensor data = Tensor::empty(layout.shape, layout.dtype);
    std::memset(data.data(), 1, data.nbytes());
    a.write({}, data.view());
    for (const ReaderCase& reader : readers()) {
      configure(3, reader.device_min_decode_nbytes);
      for (const StoreCase& store : stores()) {
        if (store.is_cached) continue;
        const Array there = open_array(store_of(store, bytes), "a").to(reader.device);
        expect(joined({layout.name, reader.name, store.name}), false, [&] { there.read(); });
      }
    }
  }
}

TEST_F(FetchRequests, OfVerify) {
  for (const Layout& layout : layouts()) {
    const Store bytes = memory_store();
    filled(bytes, layout);
    configure(1, 0);
    for (const StoreCase& store : stores()) {
      const Array a = open_array(store_of(store, bytes), "a");
      expect(joined({layout.name, "verify", store.name}), true, [&] {
        a.verify([](const std::string&, const Error& error) { ADD_FAILURE() << error.what(); });
      });
    }
  }
}

}  // namespace
}  // namespace headrace
