// Servers that spoil what they answer, by chance. Each schedule is a seed; HEADRACE_FAULT_SCHEDULES
// says how many (tests/python/long_runs.py network). What was counted is in the report of the run.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "conformance/config_guard.h"
#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "headrace/array.h"
#include "headrace/error.h"
#include "headrace/trace.h"
#include "store/http/driver.h"
#include "support/fork.h"
#include "support/http_server.h"
#include "support/sanitizer.h"
#include "support/toy_protocol.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::ObjectServer;
using test::ServerAnswer;
using test::ServerRequest;
using Clock = std::chrono::steady_clock;

constexpr char kSecret[] = "MARKED-SECRET";

std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

unsigned schedules(unsigned few) {
  const char* const asked = std::getenv("HEADRACE_FAULT_SCHEDULES");
  return asked == nullptr ? few : static_cast<unsigned>(std::atoi(asked));
}

HttpOptions quick() {
  HttpOptions options;
  options.backoff = 1ms;
  options.max_backoff = 5ms;
  options.idle_timeout = 150ms;
  options.timeout = 5s;
  options.max_attempts = 6;
  return options;
}

// Kilobytes of this process at most since the last call with `again`; 0: the system does not say.
std::size_t peak_kib(bool again = false) {
  if (again) std::ofstream("/proc/self/clear_refs") << "5";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// What a server may do to one request. Some say the secret that they were told.
void spoil(std::mt19937& random, ServerAnswer& answer, bool may_lie) {
  switch (random() % (may_lie ? 10 : 8)) {
    case 0:
      answer.delay = std::chrono::milliseconds(random() % 10);
      break;
    case 1:
      answer.cut_at = random() % (answer.body.size() + 1);
      break;
    case 2:
      answer.cut_at = random() % (answer.body.size() + 1);
      answer.reset = true;
      break;
    case 3:
      answer.reset = true;
      break;
    case 4:
      answer = {.status = random() % 2 == 0 ? 503 : 429};
      if (random() % 3 == 0) answer.headers.emplace_back("Retry-After", "0");
      break;
    case 5:
      answer = {.status = 500, .body = std::string("<Error>") + kSecret + "</Error>"};
      if (random() % 4 == 0) {
        answer.says_length = std::uint64_t{1} << 40;
        answer.endless = 0ms;
      }
      break;
    case 6:
      answer.delay = 400ms;  // longer than anybody waits
      break;
    case 7:
      answer.chunked = true;
      answer.cut_at = random() % (answer.body.size() + 1);
      break;
    case 8:
      answer.says_length = answer.body.size() + 1 + random() % 100;
      break;
    default:
      answer.raw = std::string(random() % 100 + 1, static_cast<char>(random()));
      if (random() % 2 == 0) answer.raw += kSecret;
  }
}

class NetworkFaults : public testing::Test {
 protected:
  void TearDown() override {
    RecordProperty("schedules", std::to_string(count_));
    RecordProperty("right", std::to_string(right_));
    RecordProperty("raised", std::to_string(raised_));
    RecordProperty("spoiled", std::to_string(spoiled_));
    RecordProperty("longest_ms", std::to_string(longest_.count()));
    RecordProperty("peak_kib", std::to_string(peak_kib_));
  }

  void spoil_some(ObjectServer& objects, unsigned seed, unsigned badness, bool may_lie) {
    faults_.seed(seed);
    objects.set_fault([this, badness, may_lie](const ServerRequest& request, ServerAnswer& answer) {
      const std::lock_guard lock(mutex_);
      // What is to be cleaned away is, or nobody could say whether it was tried.
      if (request.method == "DELETE" || faults_() % badness != 0) return;
      ++spoiled_;
      spoil(faults_, answer, may_lie);
    });
  }

  void note_error(const std::exception_ptr& error) {
    ++raised_;
    std::string message;
    code_of([&] { std::rethrow_exception(error); }, &message);
    EXPECT_EQ(message.find(kSecret), std::string::npos) << message;
  }
  void note_time(Clock::time_point begin) {
    longest_ = std::max(
        longest_, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin));
  }

  unsigned count_ = 0;
  std::size_t right_ = 0;
  std::size_t raised_ = 0;
  std::atomic<std::size_t> spoiled_{0};
  std::chrono::milliseconds longest_{0};
  std::size_t peak_kib_ = 0;
  std::mutex mutex_;
  std::mt19937 faults_;
};

// Reads of all kinds at once: every one is right or raises, and within its deadline.
TEST_F(NetworkFaults, Reads) {
  constexpr auto kDeadline = 3s;
  count_ = schedules(30);
  for (unsigned seed = 1; seed <= count_; ++seed) {
    ObjectServer objects;
    std::mt19937 random(seed);
    std::vector<std::string> contents;
    for (unsigned i = 0; i < 8; ++i) {
      contents.push_back(pattern(1 + random() % 200'000, seed * 10 + i));
      objects.put("o/" + std::to_string(i), contents.back());
    }
    spoil_some(objects, seed + 1, random() % 3 + 2, true);
    HttpOptions options = quick();
    options.max_in_flight = 16;
    options.hedge = seed % 2 == 0;
    const auto store = make_http_driver(
        test::make_toy_protocol(objects.url(), {.suffix_ranges = seed % 3 != 0}, kSecret),
        make_http_client(options),
        HttpAccess::read_write);
    constexpr std::size_t kReads = 40;
    std::vector<WaitedRead> reads(kReads);
    std::vector<std::string> places(kReads);
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < kReads; ++i) {
      const std::string& content = contents[i % contents.size()];
      WaitedRead& read = reads[i];
      const std::uint64_t offset = random() % content.size();
      const std::uint64_t nbytes = 1 + random() % (content.size() - offset);
      switch (i % 4) {
        case 0:
          read.extent = Extent::whole();
          break;
        case 1:
          read.extent = Extent::suffix(nbytes);
          break;
        default:
          read.extent = Extent::range(offset, nbytes);
          places[i].assign(nbytes, '\0');
          if (i % 4 == 2) read.into = std::as_writable_bytes(std::span(places[i]));
      }
      read.key = "o/" + std::to_string(i % contents.size());
      read.deadline = begin + kDeadline;
    }
    read_and_wait(*store, reads);
    note_time(begin);
    EXPECT_LT(Clock::now() - begin, kDeadline + 1s) << "schedule " << seed;
    for (std::size_t i = 0; i < kReads; ++i) {
      const WaitedRead& read = reads[i];
      if (read.error) {
        note_error(read.error);
        continue;
      }
      ++right_;
      ASSERT_TRUE(read.found) << seed;
      const std::string& content = contents[i % contents.size()];
      std::string expected = content;
      if (read.extent.kind == Extent::Kind::suffix) {
        expected = content.substr(content.size() - read.extent.nbytes);
      } else if (read.extent.kind == Extent::Kind::range) {
        expected = content.substr(read.extent.offset, read.extent.nbytes);
      }
      const std::string_view came =
          read.into.empty() ? text_of(read.bytes) : std::string_view(places[i]);
      ASSERT_TRUE(came == expected) << "schedule " << seed << ", read " << i;
    }
  }
  peak_kib_ = peak_kib();
  EXPECT_GT(right_, 5 * raised_) << right_ << " right, " << raised_ << " raised";
}

// Writes, whole and in parts, some on condition: whole or absent, and within their deadlines.
TEST_F(NetworkFaults, Writes) {
  constexpr auto kDeadline = 3s;
  count_ = schedules(8);
  for (unsigned seed = 1; seed <= count_; ++seed) {
    ObjectServer objects;
    spoil_some(objects, seed, 4, false);
    const auto store = make_http_driver(
        test::make_toy_protocol(
            objects.url(), {.max_put_nbytes = 30'000, .part_nbytes = 10'000}, kSecret),
        make_http_client(quick()),
        HttpAccess::read_write);
    for (unsigned i = 0; i < 10; ++i) {
      WaitedWrite write;
      write.key = "k" + std::to_string(i);
      const std::string bytes = pattern(i * 9000, seed);
      write.parts = {bytes_of(bytes)};
      if (i % 2 == 1) write.condition = WriteCondition::if_missing();
      const auto begin = Clock::now();
      write.deadline = begin + kDeadline;
      bool failed = false;
      try {
        write_and_wait(*store, write);
      } catch (const Error& error) {
        failed = true;
        note_error(std::current_exception());
      }
      note_time(begin);
      // An upload that fails at its deadline is aborted behind it.
      EXPECT_LT(Clock::now() - begin, kDeadline + 6s) << seed << " " << i;
      right_ += failed ? 0 : 1;
      const auto found = objects.get(write.key);
      EXPECT_TRUE(found ? *found == bytes : failed) << seed << " " << i;
    }
  }
  peak_kib_ = peak_kib();
}

// Arrays by their URL, with secrets in all its parts: right or an error, within the budget, and
// nobody is told a secret, the trace neither.
TEST_F(NetworkFaults, Arrays) {
  const test::ConfigGuard guard;
  const test::TempFolder folder;
  count_ = schedules(10);
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kColumns = 65'536;  // a chunk of 256 KiB each
  constexpr std::size_t kBudget = std::size_t{4} << 20;
  const Store truth = memory_store();
  CreateOptions create;
  create.shape = {kRows, kColumns};
  create.dtype = DType::float32;
  create.chunks = {1, kColumns};
  create.codecs = {codec::bytes(), codec::zstd(1)};
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  std::mt19937 random(1);
  for (float& value : values) value = static_cast<float>(random());
  create_array(truth, "a", create).write({}, {values.data(), create.shape, {}, DType::float32, {}});
  ObjectServer objects;
  for (const std::string& key : truth.list("")) {
    const auto object = truth.open(key);
    std::string bytes(object->size(), '\0');
    object->read(0, std::as_writable_bytes(std::span(bytes)));
    objects.put("data/" + key, std::move(bytes));
  }
  Trace trace(folder / "trace.json");
  std::vector<float> out(values.size(), 1);
  const TensorView place{out.data(), create.shape, {}, DType::float32, {}};
  for (unsigned seed = 1; seed <= count_; ++seed) {
    spoil_some(objects, seed, 6, false);
    std::string url = objects.url() + "/data?sig=" + kSecret;
    url.insert(7, std::string("user:") + kSecret + "@");
    const StorageOptions options{{"headers", std::string("X-Key: ") + kSecret},
                                 {"timeout", "3s"},
                                 {"read_timeout", "150ms"},
                                 {"init_backoff", "1ms"},
                                 {"max_backoff", "5ms"},
                                 {"hedge", seed % 2 == 0 ? "true" : "false"}};
    ReadOptions read;
    read.memory_budget = kBudget;
    std::ranges::fill(out, 0.0F);
    const std::size_t before = peak_kib(true);
    const auto begin = Clock::now();
    try {
      const Store store = open_store(url, StoreMode::read, options);
      EXPECT_EQ(store.url().find(kSecret), std::string::npos);
      open_array(store, "a").read_into({}, place, read);
      ASSERT_TRUE(out == values) << "schedule " << seed;
      ++right_;
    } catch (const Error&) {
      note_error(std::current_exception());
    }
    note_time(begin);
    EXPECT_LT(Clock::now() - begin, 30s) << seed;
    const std::size_t more = std::max(peak_kib(), before) - before;  // the kernel counts roughly
    peak_kib_ = std::max(peak_kib_, more);
    // What the server in this process holds of the same bytes, and what malloc keeps, comes to it.
    // AddressSanitizer keeps what is freed for a while, ThreadSanitizer several times as much of
    // what was done with each byte.
    if (!under_address_sanitizer() && !kUnderThreadSanitizer) {
      EXPECT_LT(more, (6 * kBudget) >> 10) << "schedule " << seed;
    }
  }
  trace.finish();
  std::ifstream file(folder / "trace.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_GT(text.size(), 1000u);
  EXPECT_EQ(text.find(kSecret), std::string::npos);
  EXPECT_GT(right_, raised_) << right_ << " right, " << raised_ << " raised";
}

}  // namespace
}  // namespace headrace
