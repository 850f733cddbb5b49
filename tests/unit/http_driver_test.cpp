#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "base/crc32c.h"
#include "conformance/error_code.h"
#include "headrace/cached_store.h"
#include "headrace/error.h"
#include "store/http/checksums.h"
#include "store/http/driver.h"
#include "store/http/open.h"
#include "store/http/plain.h"
#include "support/http_server.h"
#include "support/toy_protocol.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::ObjectServer;
using test::quick;
using test::ServerAnswer;
using test::ServerRequest;
using Clock = std::chrono::steady_clock;

std::string pattern(std::size_t nbytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(nbytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The object as text, "(none)" when there is none.
std::string get_text(StoreDriver& store, std::string_view key) {
  Buffer buffer;
  return store.get(key, buffer) ? std::string(text_of(buffer)) : "(none)";
}

std::shared_ptr<HttpDriver> toy(ObjectServer& objects, ProtocolAbilities abilities = {}) {
  return make_http_driver(test::make_toy_protocol(objects.url(), abilities),
                          make_http_client(quick()),
                          HttpAccess::read_write);
}

WaitedRead& wanted(WaitedRead& read, std::string key, Extent extent) {
  read.key = std::move(key);
  read.extent = extent;
  return read;
}

ErrorCode fault_of(const WaitedRead& read, std::string* message = nullptr) {
  return code_of(
      [&] {
        if (read.error) std::rethrow_exception(read.error);
      },
      message);
}

TEST(HttpDriver, ReadsWhatIsWanted) {
  ObjectServer objects;
  const std::string bytes = pattern(100'000, 1);
  objects.put("d/k", bytes);
  objects.put("empty", "");
  for (const bool suffix_ranges : {true, false}) {
    const auto store = toy(objects, {.suffix_ranges = suffix_ranges});
    std::string place(5000, '\0');
    std::vector<WaitedRead> reads(8);
    wanted(reads[0], "d/k", Extent::whole());
    wanted(reads[1], "d/k", Extent::range(70'000, 5000)).into =
        std::as_writable_bytes(std::span(place));
    wanted(reads[2], "d/k", Extent::range(99'999, 1));
    wanted(reads[3], "d/k", Extent::suffix(1000));
    wanted(reads[4], "d/k", Extent::suffix(1'000'000));
    wanted(reads[5], "nothing", Extent::suffix(10));
    wanted(reads[6], "empty", Extent::suffix(10));
    wanted(reads[7], "d/k", Extent::range(100'000, 0));
    read_and_wait(*store, reads);
    for (const WaitedRead& read : reads) {
      EXPECT_FALSE(read.error);
      EXPECT_EQ(read.found, read.key != "nothing");
      if (read.key == "d/k") {
        EXPECT_EQ(read.version, ObjectServer::etag(bytes));
        EXPECT_EQ(read.object_nbytes, bytes.size());
      }
    }
    EXPECT_TRUE(text_of(reads[0].bytes) == bytes);
    EXPECT_TRUE(place == bytes.substr(70'000, 5000));
    EXPECT_TRUE(text_of(reads[2].bytes) == bytes.substr(99'999));
    EXPECT_TRUE(text_of(reads[3].bytes) == bytes.substr(99'000));
    EXPECT_TRUE(text_of(reads[4].bytes) == bytes);
    EXPECT_TRUE(reads[6].bytes.empty());
  }
}

TEST(HttpDriver, WhatEndsAfterTheObjectIsCorrupt) {
  ObjectServer objects;
  objects.put("k", "0123456789");
  const auto store = toy(objects);
  for (const auto& [offset, nbytes] : {std::pair{5, 6}, {10, 1}, {11, 5}, {0, 11}}) {
    WaitedRead read;
    wanted(read,
           "k",
           Extent::range(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(nbytes)));
    read_and_wait(*store, {&read, 1});
    EXPECT_EQ(fault_of(read), ErrorCode::corrupt) << offset;
  }
  WaitedRead read;
  wanted(read, "k", Extent::whole()).max_nbytes = 9;
  read_and_wait(*store, {&read, 1});
  EXPECT_EQ(fault_of(read), ErrorCode::corrupt);
}

TEST(HttpDriver, AnotherVersionIsSaidToBeOne) {
  ObjectServer objects;
  objects.put("k", "before");
  const auto store = toy(objects);
  const auto reader = store->open("k");
  objects.put("k", "after!");
  std::string place(6, '\0');
  try {
    reader->read(0, std::as_writable_bytes(std::span(place)));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(is_changed(error)) << error.what();
  }
  // Of a server that knows no conditions, too.
  objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    if (answer.status != 412) return;
    answer = {.headers = {{"ETag", ObjectServer::etag("after!")}}, .body = "after!"};
    if (!request.header("Range").empty()) {
      answer.status = 206;
      answer.headers.emplace_back("Content-Range", "bytes 0-5/6");
    }
  });
  EXPECT_EQ(code_of([&] { reader->read(0, std::as_writable_bytes(std::span(place))); }),
            ErrorCode::io);
  objects.erase("k");
  objects.set_fault(nullptr);
  EXPECT_EQ(code_of([&] { reader->read(0, std::as_writable_bytes(std::span(place))); }),
            ErrorCode::not_found);
}

// Where one was told before, an answer without a version may be of anything.
TEST(HttpDriver, AVersionThatIsNotToldAgainIsAnotherOne) {
  ObjectServer objects;
  objects.put("k", "before");
  const auto store = toy(objects);
  const auto reader = store->open("k");
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    const std::string bytes = *objects.get("k");
    answer.status = 206;
    answer.headers = {{"Content-Range", "bytes 0-5/" + std::to_string(bytes.size())}};
    answer.body = bytes.substr(0, 6);
  });
  objects.put("k", "after!");
  const auto is_changed_now = [&](const ObjectReader& of) {
    std::string place(6, '\0');
    try {
      of.read(0, std::as_writable_bytes(std::span(place)));
    } catch (const Error& error) {
      EXPECT_TRUE(is_changed(error)) << error.what();
      return true;
    }
    EXPECT_EQ(place, "after!");
    return false;
  };
  EXPECT_TRUE(is_changed_now(*reader));
  // Of a server that never tells one the size is all there is.
  objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    std::erase_if(answer.headers, [](const auto& header) { return header.first == "ETag"; });
    const std::string bytes = *objects.get("k");
    if (request.method == "HEAD") return;
    answer = {.status = 206,
              .headers = {{"Content-Range", "bytes 0-5/" + std::to_string(bytes.size())}},
              .body = bytes.substr(0, 6)};
  });
  const auto unversioned = store->open("k");
  EXPECT_EQ(unversioned->version(), 0u);
  EXPECT_FALSE(is_changed_now(*unversioned));
  objects.put("k", "after! and longer");
  EXPECT_TRUE(is_changed_now(*unversioned));
}

TEST(HttpDriver, RangesOfAServerThatHasNone) {
  ObjectServer objects;
  const std::string bytes = pattern(3'000'000, 1);
  objects.put("k", bytes);
  objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    if (answer.status != 206 && answer.status != 416) return;
    answer = {.headers = {{"ETag", ObjectServer::etag(bytes)}}, .body = bytes};
    answer.chunked = request.header("Range") == "bytes=-7";
  });
  const auto store = toy(objects);
  std::vector<WaitedRead> reads(4);
  wanted(reads[0], "k", Extent::range(2'000'000, 1000));
  wanted(reads[1], "k", Extent::suffix(1000));
  wanted(reads[2], "k", Extent::suffix(7));
  wanted(reads[3], "k", Extent::range(2'999'999, 2));
  read_and_wait(*store, reads);
  EXPECT_TRUE(text_of(reads[0].bytes) == bytes.substr(2'000'000, 1000));
  EXPECT_TRUE(text_of(reads[1].bytes) == bytes.substr(2'999'000));
  EXPECT_TRUE(text_of(reads[2].bytes) == bytes.substr(2'999'993));
  EXPECT_EQ(fault_of(reads[3]), ErrorCode::corrupt);
}

// Longer than what is given a place before its server has said that it is there.
TEST(HttpDriver, LongRanges) {
  constexpr std::size_t kNbytes = std::size_t{257} << 20;
  ObjectServer objects;
  std::string bytes(kNbytes + 1, 'x');
  for (std::size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<char>(i >> 12);
  objects.put("k", bytes);
  bool ignores_ranges = false;
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    if (ignores_ranges) answer = {.headers = {{"ETag", ObjectServer::etag(bytes)}}, .body = bytes};
  });
  const auto store = toy(objects);
  WaitedRead read;
  wanted(read, "k", Extent::range(1, kNbytes));
  read_and_wait(*store, read);
  EXPECT_TRUE(text_of(read.bytes) == std::string_view(bytes).substr(1));
  std::string whole(kNbytes, '\0');
  const Store cached = cached_store(Store(store));
  cached.driver().open("k")->read(1, std::as_writable_bytes(std::span(whole)));
  EXPECT_TRUE(whole == std::string_view(bytes).substr(1));
  bytes.pop_back();
  ignores_ranges = true;
  for (const std::uint64_t offset : {0, 1}) {
    WaitedRead again;
    wanted(again, "k", Extent::range(offset, kNbytes));
    read_and_wait(*store, {&again, 1});
    if (offset == 0) {
      EXPECT_TRUE(text_of(again.bytes) == bytes);
    } else {
      EXPECT_EQ(fault_of(again), ErrorCode::unsupported);
    }
  }
}

TEST(HttpDriver, OtherBytesThanAskedForAreCorrupt) {
  ObjectServer objects;
  const std::string bytes = pattern(1000, 1);
  objects.put("k", bytes);
  std::string range;
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    for (auto& [name, value] : answer.headers) {
      if (name == "Content-Range") value = range;
    }
  });
  const auto store = toy(objects);
  for (const char* wrong : {"bytes 0-99/1000",
                            "bytes 101-200/1000",
                            "bytes 100-198/1000",
                            "bytes",
                            "bytes */1000",
                            "",
                            "bytes 100-199/150"}) {
    range = wrong;
    WaitedRead read;
    wanted(read, "k", Extent::range(100, 100));
    read_and_wait(*store, {&read, 1});
    EXPECT_EQ(fault_of(read), ErrorCode::corrupt) << wrong;
    WaitedRead suffix;
    wanted(suffix, "k", Extent::suffix(100));
    read_and_wait(*store, {&suffix, 1});
    EXPECT_EQ(fault_of(suffix), ErrorCode::corrupt) << wrong;
  }
}

TEST(HttpDriver, ABodyWithoutAnEndIsNotTrusted) {
  ObjectServer objects;
  objects.put("k", "bytes");
  objects.set_fault(
      [](const ServerRequest&, ServerAnswer& answer) { answer.says_no_length = true; });
  EXPECT_EQ(code_of([&] { get_text(*toy(objects), "k"); }), ErrorCode::unsupported);
}

TEST(HttpDriver, ChecksumsAreCompared) {
  ObjectServer objects;
  const std::string bytes = pattern(1000, 1);
  objects.put("k", bytes);
  std::uint32_t crc = crc32c(bytes_of(bytes));
  std::string stored;
  for (int shift = 24; shift >= 0; shift -= 8) stored += static_cast<char>(crc >> shift);
  const std::string good = base64(bytes_of(stored));
  const std::string md5_of_nothing = "1B2M2Y8AsgTpgAmY7PhCfg==";
  EXPECT_EQ(from_base64(good), stored);
  EXPECT_EQ(from_base64("not base64"), "");

  std::string name;
  std::string value;
  std::atomic<int> wrong{0};
  objects.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    answer.headers.emplace_back(name, value);
    if (wrong > 0) {
      --wrong;
      answer.body[500] ^= 1;
    }
  });
  const auto store = toy(objects);
  const auto read = [&](std::string header, std::string text) {
    name = std::move(header);
    value = std::move(text);
    return get_text(*store, "k");
  };
  EXPECT_TRUE(read("x-amz-checksum-crc32c", good) == bytes);
  EXPECT_TRUE(read("x-goog-hash", "crc32c=" + good + ",md5=" + md5_of_nothing) == bytes);
  EXPECT_TRUE(read("x-amz-checksum-crc32c", "AAAAAA==-3") == bytes);  // of an object in parts
  for (const auto& [header, text] :
       {std::pair<std::string, std::string>{"x-amz-checksum-crc32c", "AAAAAA=="},
        {"x-goog-hash", "md5=x,crc32c=AAAAAA=="},
        {"Content-MD5", md5_of_nothing}}) {
    std::string message;
    EXPECT_EQ(code_of([&] { read(header, text); }, &message), ErrorCode::corrupt);
    EXPECT_NE(message.find(header), std::string::npos) << message;
  }
  wrong = 1;  // on its way: once more helps
  EXPECT_TRUE(read("x-amz-checksum-crc32c", good) == bytes);
  EXPECT_EQ(wrong, 0);
}

TEST(HttpDriver, LargeObjectsAreWrittenInParts) {
  ObjectServer objects;
  const ProtocolAbilities abilities{.max_put_nbytes = 10'000, .part_nbytes = 4000};
  const auto store = toy(objects, abilities);
  const std::string bytes = pattern(50'001, 3);
  const auto view = std::as_bytes(std::span(bytes));
  const ConstBytes parts[] = {view.first(1), {}, view.subspan(1, 30'000), view.subspan(30'001)};
  const int before = objects.server().requests();
  store->set_parts("k", parts);
  EXPECT_EQ(objects.server().requests() - before, 1 + 13 + 1);
  EXPECT_TRUE(objects.get("k") == bytes);
  EXPECT_EQ(objects.uploads(), 0u);
  EXPECT_TRUE(get_text(*store, "k") == bytes);

  // A part that cannot be written, the end that cannot: nothing is left, what was there stays.
  for (const std::string method : {"PUT", "POST"}) {
    objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
      const bool is_last_part = request.parameter("part") == "7";
      if (request.method != method || (method == "PUT" && !is_last_part)) return;
      if (method == "POST" && request.parameter("upload").empty()) return;
      answer = {.status = 403};
    });
    objects.put("k", "what was there");
    if (method == "PUT") {
      EXPECT_EQ(code_of([&] { store->set_parts("k", parts); }), ErrorCode::permission_denied);
      EXPECT_EQ(objects.get("k"), "what was there");
    } else {
      EXPECT_EQ(code_of([&] { store->set_parts("k", parts); }), ErrorCode::permission_denied);
    }
    EXPECT_EQ(objects.uploads(), 0u);
  }
  // What cannot be aborted is said.
  objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
    if (request.method == "DELETE" || request.parameter("part") == "7") answer = {.status = 403};
  });
  std::string message;
  EXPECT_EQ(code_of([&] { store->set_parts("k", parts); }, &message), ErrorCode::permission_denied);
  EXPECT_NE(message.find("left in the store"), std::string::npos) << message;
}

TEST(HttpDriver, WritesOnConditionMayConflict) {
  ObjectServer objects;
  for (const std::uint64_t max_put : {std::uint64_t{1} << 20, std::uint64_t{2}}) {
    const auto store = toy(objects, {.max_put_nbytes = max_put, .part_nbytes = 2});
    const ConstBytes one = bytes_of("one");
    const ConstBytes two = bytes_of("two");
    const WriteCondition missing{.kind = WriteCondition::Kind::missing};
    objects.erase("k");
    store->set_if("k", {&one, 1}, missing);
    EXPECT_EQ(code_of([&] { store->set_if("k", {&two, 1}, missing); }), ErrorCode::conflict);
    EXPECT_EQ(objects.get("k"), "one");
    WriteCondition same{.kind = WriteCondition::Kind::version,
                        .version = ObjectServer::etag("one")};
    store->set_if("k", {&two, 1}, same);
    EXPECT_EQ(code_of([&] { store->set_if("k", {&one, 1}, same); }), ErrorCode::conflict);
    EXPECT_EQ(objects.get("k"), "two");
    EXPECT_EQ(objects.uploads(), 0u);
  }
  const ConstBytes one = bytes_of("one");
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (request.method == "PUT" && answer.status == 412) answer = {.status = 404};
  });
  objects.erase("k");
  EXPECT_EQ(
      code_of([&] {
        toy(objects)->set_if("k", {&one, 1}, WriteCondition::if_version(ObjectServer::etag("one")));
      }),
      ErrorCode::conflict);
  objects.set_fault(nullptr);
  const auto store = toy(objects, {.conditional_writes = false});
  EXPECT_EQ(code_of([&] {
              store->set_if("k", {&one, 1}, {.kind = WriteCondition::Kind::missing});
            }),
            ErrorCode::unsupported);
}

TEST(HttpDriver, CancelledUploadsAreAborted) {
  ObjectServer objects;
  const auto store = toy(objects, {.max_put_nbytes = 10, .part_nbytes = 10});
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.parameter("part").empty()) answer.delay = 10s;
  });
  struct Put final : AsyncWrite {
    void done() noexcept override { is_done = true; }
    std::atomic<bool> is_done{false};
  } put;
  const std::string bytes = pattern(1000, 5);
  put.key = "k";
  put.parts = {bytes_of(bytes)};
  const auto begin = Clock::now();
  AsyncWrite* const asked = &put;
  store->submit({&asked, 1});
  while (objects.uploads() == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  store->cancel(put);
  while (!put.is_done) std::this_thread::sleep_for(1ms);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(code_of([&] {
              if (put.error) std::rethrow_exception(put.error);
            }),
            ErrorCode::cancelled);
  EXPECT_EQ(objects.uploads(), 0u);
  EXPECT_EQ(objects.get("k"), std::nullopt);
}

TEST(HttpDriver, ListsTellWhatNoKeyNames) {
  ObjectServer objects;
  objects.set_page(2);
  for (const char* key : {"a", "x//b", "x/y", "x/", "../q", "c\\d"}) objects.put(key, "text");
  const Store store(toy(objects));
  LeftOut left_out;
  EXPECT_EQ(store.list_sizes("", left_out).size(), 2u);
  EXPECT_EQ(left_out.objects, 4u);
  EXPECT_EQ(left_out.first, "../q");
  left_out = {};
  EXPECT_EQ(store.list_dir("", left_out), (std::vector<std::string>{"a", "x"}));
  EXPECT_EQ(left_out.objects, 2u);  // "x/" and "x//b" are below "x"
  EXPECT_EQ(store.list_sizes("").size(), 2u);
  EXPECT_EQ(left_out.objects, 2u);
}

TEST(HttpDriver, ListsComeInPages) {
  ObjectServer objects;
  objects.set_page(7);
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) {
    keys.push_back("d/" + std::to_string(i % 10) + "/" + std::to_string(i));
    objects.put(keys.back(), "x");
  }
  objects.put("d/", "");  // a folder as consoles make it
  objects.put("d/3/", "");
  std::sort(keys.begin(), keys.end());
  const auto store = toy(objects);
  EXPECT_EQ(store->list(""), keys);
  const int before = objects.server().requests();
  const std::vector<ObjectSize> sizes = store->list_sizes("d/3");
  EXPECT_EQ(objects.server().requests() - before, 2);  // pages, and no look at each
  ASSERT_EQ(sizes.size(), 10u);
  for (const ObjectSize& each : sizes) EXPECT_EQ(each.nbytes, 1u) << each.key;
  EXPECT_EQ(store->list_dir("d/").size(), 10u);
  EXPECT_EQ(store->list_dir("d/3/").size(), 10u);
  store->erase_prefix("d/3/");
  EXPECT_EQ(store->list("").size(), 90u);
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (request.path.empty()) answer.body = "object a 1\nnext a\n";
  });
  EXPECT_EQ(code_of([&] { store->list(""); }), ErrorCode::corrupt);  // and not for ever
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    const char* next = request.parameter("from") == "a" ? "b" : "a";
    if (request.path.empty()) answer.body = std::string("object x 1\nnext ") + next + "\n";
  });
  EXPECT_EQ(code_of([&] { store->list(""); }), ErrorCode::corrupt);
  // Round and round, to ever new pages.
  for (const bool delimiter : {false, true}) {
    int pages = 0;
    objects.set_fault([&](const ServerRequest& request, ServerAnswer& answer) {
      if (!request.path.empty()) return;
      answer.body.clear();
      const char name = ++pages % 2 == 0 ? 'a' : 'b';
      for (int i = 0; i < 1000; ++i) {
        const std::string key = name + std::to_string(i);
        answer.body += delimiter ? "prefix " + key + "/\n" : "object " + key + " 1\n";
      }
      answer.body += "next " + std::to_string(pages) + "\n";
    });
    EXPECT_EQ(code_of([&] { delimiter ? void(store->list_dir("")) : void(store->list("")); }),
              ErrorCode::corrupt);
    EXPECT_LE(pages, 200);
  }
  // A page that does not end takes no more memory than one may have.
  objects.set_fault([](const ServerRequest& request, ServerAnswer& answer) {
    if (!request.path.empty()) return;
    answer.body.assign(kMaxAnswerNbytes + 1, ' ');
    answer.chunked = true;
  });
  EXPECT_EQ(code_of([&] { store->list(""); }), ErrorCode::corrupt);
}

TEST(HttpDriver, ManySmallObjects) {
  ObjectServer objects;
  constexpr std::size_t kCount = 1000;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i % 10 != 0) objects.put("c/" + std::to_string(i), pattern(i, static_cast<unsigned>(i)));
  }
  const auto store = toy(objects);
  std::vector<Buffer> buffers(kCount);
  std::vector<GetRequest> requests;
  for (std::size_t i = 0; i < kCount; ++i) {
    requests.push_back({"c/" + std::to_string(i), &buffers[i]});
  }
  store->get_many(requests);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(requests[i].found, i % 10 != 0);
    ASSERT_FALSE(requests[i].error);
    ASSERT_TRUE(!requests[i].found || text_of(buffers[i]) == pattern(i, static_cast<unsigned>(i)));
  }
  EXPECT_EQ(objects.server().requests(), static_cast<int>(kCount));
  EXPECT_LE(objects.server().connections(), 2 * 256);  // kept, by each of the threads
}

TEST(HttpDriver, CancelledReadsEndSoon) {
  ObjectServer objects;
  objects.put("k", "x");
  objects.set_fault([](const ServerRequest&, ServerAnswer& answer) { answer.delay = 20s; });
  HttpOptions options = quick();
  options.idle_timeout = 60s;
  options.max_in_flight = 8;
  const auto store =
      make_http_driver(test::make_toy_protocol(objects.url(), {.suffix_ranges = false}),
                       make_http_client(options),
                       HttpAccess::read_write);
  std::vector<WaitedRead> reads(50);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    wanted(reads[i], "k", i % 2 == 0 ? Extent::whole() : Extent::suffix(1));
  }
  const auto begin = Clock::now();
  std::thread canceller([&] {
    std::this_thread::sleep_for(50ms);
    for (WaitedRead& read : reads) store->cancel(read);
  });
  read_and_wait(*store, reads);
  canceller.join();
  EXPECT_LT(Clock::now() - begin, 5s);
  for (const WaitedRead& read : reads) EXPECT_EQ(fault_of(read), ErrorCode::cancelled);
}

TEST(PlainHttp, OpensByItsUrl) {
  ObjectServer objects;
  objects.put("data/a b.zarr/zarr.json", "{}");
  objects.put("data/a b.zarr/odd %/\xc3\xa9?#", "odd");
  std::string said;
  objects.set_fault([&](const ServerRequest& request, ServerAnswer&) {
    said = request.header("Authorization") + "|" + request.header("X-Key") + "|" + request.query;
  });
  std::string url = objects.url() + "/data/a%20b.zarr/?sig=SECRET";
  url.insert(7, "user:SEC%52ET@");
  const Store store = open_store(url, StoreMode::read, {{"headers", "X-Key: 1\nX-Other: 2"}});
  EXPECT_EQ(store.url(), objects.url() + "/data/a%20b.zarr");
  EXPECT_TRUE(store.read_only());
  EXPECT_EQ(get_text(store.driver(), "zarr.json"), "{}");
  EXPECT_EQ(said, "Basic dXNlcjpTRUNSRVQ=|1|sig=SECRET");
  EXPECT_EQ(get_text(store.driver(), "odd %/\xc3\xa9?#"), "odd");
  EXPECT_TRUE(store.exists("zarr.json"));
  EXPECT_FALSE(store.exists("zarr"));
  EXPECT_EQ(store.open("zarr.json")->size(), 2u);
  EXPECT_EQ(store.identity("a").find("SECRET"), std::string::npos);

  std::string message;
  EXPECT_EQ(code_of([&] { store.list(""); }, &message), ErrorCode::unsupported);
  EXPECT_NE(message.find("consolidated"), std::string::npos);
  EXPECT_EQ(code_of([&] { store.set("k", {}); }), ErrorCode::permission_denied);
  EXPECT_EQ(code_of([&] { store.erase("k"); }), ErrorCode::permission_denied);
  const Store token = open_store(objects.url(), StoreMode::read, {{"bearer_token", "t"}});
  EXPECT_FALSE(token.exists("x"));
  EXPECT_EQ(said, "Bearer t||");

  objects.set_fault([](const ServerRequest&, ServerAnswer& answer) { answer = {.status = 401}; });
  for (const int status : {401, 403}) {
    objects.set_fault(
        [status](const ServerRequest&, ServerAnswer& answer) { answer = {.status = status}; });
    EXPECT_EQ(code_of([&] { get_text(store.driver(), "zarr.json"); }, &message),
              ErrorCode::permission_denied);
    EXPECT_EQ(message.find("SEC"), std::string::npos) << message;
  }
}

TEST(PlainHttp, IsKnownByWhatIsAskedForAndByWhom) {
  const auto identity = [](const std::string& url, const StorageOptions& options) {
    const Store store = open_store(url, StoreMode::read, options);
    EXPECT_EQ(store.driver().lasting_name(), store.identity(""));
    return store.identity("");
  };
  const std::string url = "https://host/a";
  EXPECT_EQ(identity(url, {}), url);
  const std::string one = identity(url, {{"headers", "X-Tenant: 1\nX-Other: 2"}});
  EXPECT_EQ(one, identity(url, {{"headers", R"({"x-other": "2", "x-tenant": "1"})"}}));
  const std::string others[] = {identity(url, {{"headers", "X-Tenant: 2\nX-Other: 2"}}),
                                identity(url, {{"headers", "X-Tenant: 1"}}),
                                identity(url, {{"bearer_token", "SECRET"}}),
                                identity(url, {{"user", "a"}, {"password", "SECRET"}}),
                                identity(url, {{"user", "b"}, {"password", "SECRET"}}),
                                identity(url + "?SECRET", {})};
  std::set<std::string> all{url, one};
  for (const std::string& each : others) {
    EXPECT_TRUE(all.insert(each).second) << each;
    EXPECT_EQ(each.find("SECRET"), std::string::npos);
  }
  // A password may be changed, and is not to be found by what is written of it.
  EXPECT_EQ(others[3], identity(url, {{"user", "a"}, {"password", "another"}}));
}

TEST(PlainHttp, RefusesWhatItDoesNotKnow) {
  const auto refused =
      [](const std::string& url, StorageOptions options, StoreMode mode = StoreMode::read) {
        std::string message;
        const ErrorCode found = code_of([&] { open_store(url, mode, options); }, &message);
        EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
        return found;
      };
  const std::string url = "https://u:SECRET@host/a?SECRET";
  EXPECT_EQ(refused(url, {{"anon", "true"}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(url, {{"query", "SECRET"}}), ErrorCode::invalid_argument);
  for (const char* headers : {"SECRET",
                              ": SECRET",
                              "a b: SECRET",
                              R"({"a b": "SECRET"})",
                              R"({"a": 1})",
                              R"({"SECRET)",
                              R"( {"a": "SECRET"})"}) {
    EXPECT_EQ(refused("https://host/a", {{"headers", headers}}), ErrorCode::invalid_argument)
        << headers;
  }
  EXPECT_EQ(refused(url, {{"timeout", "soon"}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(url, {{"headers", "SECRET"}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(url, {{"token", "SECRET"}, {"bearer_token", "SECRET"}}),
            ErrorCode::invalid_argument);
  EXPECT_EQ(refused(url, {{"max_concurrency", "0"}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused("https:///a", {}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused(url, {}, StoreMode::append), ErrorCode::unsupported);
  EXPECT_NO_THROW(open_store("https://host/a",
                             StoreMode::read,
                             {{"timeout", "30s"},
                              {"connect_timeout", "250ms"},
                              {"max_retries", "3"},
                              {"max_concurrency", "128"},
                              {"verify", "false"}}));
}

TEST(PlainHttp, TellsVersionsByTheTime) {
  const auto protocol = make_plain_protocol("http://host", {});
  const auto version = [&](std::vector<HttpHeader> headers) {
    HttpResponse response;
    response.headers = std::move(headers);
    return protocol->version_of(response);
  };
  const HttpHeader time{"Last-Modified", "Mon, 23 Nov 2026 07:00:00 GMT"};
  EXPECT_EQ(version({{"ETag", "\"a\""}, time}), "\"a\"");
  const std::string bare = version({time, {"Content-Length", "10"}});
  EXPECT_EQ(bare, version({time, {"Content-Range", "bytes 0-3/10"}, {"Content-Length", "4"}}));
  EXPECT_NE(bare, version({time, {"Content-Length", "11"}}));
  EXPECT_EQ(version({{"Content-Length", "11"}}), "");
  const HttpHeader tag{"ETag", "W/\"a\""};
  const std::string weak = version({tag, time, {"Content-Length", "10"}});
  EXPECT_EQ(weak, version({tag, time, {"Content-Range", "bytes 0-3/10"}}));
  EXPECT_NE(weak, version({{"ETag", "W/\"b\""}, time, {"Content-Length", "10"}}));
  EXPECT_EQ(version({tag, {"Content-Length", "10"}}), "");
  for (const std::string& each : {bare, weak}) {
    const HttpRequest request = protocol->read("k", Extent::whole(), each);
    ASSERT_EQ(request.headers.size(), 2u);
    EXPECT_EQ(request.headers[1].name, "If-Unmodified-Since");
    EXPECT_EQ(request.headers[1].value, time.value);
  }
  // A body that comes in pieces, a range of an object of unknown length.
  HttpResponse unsized;
  unsized.headers = {tag, time, {"Content-Range", "bytes 0-3/*"}};
  EXPECT_TRUE(protocol->is_of_version(unsized, weak));
  EXPECT_FALSE(protocol->is_of_version(unsized, bare));
  EXPECT_FALSE(protocol->is_of_version(unsized, "\"a\""));
}

}  // namespace
}  // namespace headrace
