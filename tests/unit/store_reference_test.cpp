#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/interrupt.h"
#include "headrace/store.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/numbered_key.h"
#include "store/reference/place.h"
#include "store/reference/table.h"
#include "store/reference/targets.h"
#include "store/reference/templates.h"
#include "store/store.h"
#include "support/http_server.h"

namespace headrace::test {
namespace {

std::shared_ptr<const ReferenceTable> parse(const std::string& json) {
  return read_kerchunk_json(source_of(json), "refs.json", {});
}

// "bytes", "url[offset,nbytes]", "url" or "(none)".
std::string shown(const ReferenceTable& table, std::string_view key) {
  const auto found = table.find(key);
  if (!found) return "(none)";
  if (found->is_inline) return std::string(text_of(found->bytes));
  const std::string& url = table.url(found->range.url);
  if (found->range.nbytes == ObjectRange::kWhole) return url;
  return url + "[" + std::to_string(found->range.offset) + "," +
         std::to_string(found->range.nbytes) + "]";
}

ErrorCode json_error(const std::string& json) {
  try {
    parse(json);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error for " << json;
  return ErrorCode::cancelled;
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string get_text(const Store& store, std::string_view key) {
  Buffer bytes;
  return store.driver().get(key, bytes) ? std::string(text_of(bytes)) : "(none)";
}

TEST(NumberedKey, PartsMakeTheKeyAgain) {
  struct Case {
    const char* key;
    const char* stem;
    char separator;
    std::vector<std::uint32_t> numbers;
  };
  const Case cases[] = {
      {"x/0.3.17", "x/", '.', {0, 3, 17}},
      {"x/c/0/3", "x/c/", '/', {0, 3}},
      {"x/c.0.1", "x/c.", '.', {0, 1}},
      {"a/2020/3/0.1", "a/2020/3/", '.', {0, 1}},
      {"x/5", "x/", '\0', {5}},
      {"0.0", "", '.', {0, 0}},
      {"7", "", '\0', {7}},
      {"x/4294967295", "x/", '\0', {4294967295U}},
      {"x/4294967296.1", "x/4294967296.", '\0', {1}},
      {"x/01/2", "x/01/", '\0', {2}},
  };
  for (const Case& c : cases) {
    NumberedKey key;
    ASSERT_TRUE(split_numbered_key(c.key, key)) << c.key;
    EXPECT_EQ(key.stem, c.stem) << c.key;
    EXPECT_EQ(key.separator, c.separator) << c.key;
    EXPECT_EQ(std::vector(key.numbers.begin(), key.numbers.begin() + key.count), c.numbers);
    std::string again;
    append_numbered_key(again, key);
    EXPECT_EQ(again, c.key);
  }
  for (const char* key : {"x/zarr.json", "time12", "x/007", "x/", "", "x/12a", "x/99999999999"}) {
    NumberedKey split;
    EXPECT_FALSE(split_numbered_key(key, split)) << key;
  }
  std::string many = "x/0";
  for (int i = 1; i < 40; ++i) many += "/" + std::to_string(i);
  NumberedKey key;
  ASSERT_TRUE(split_numbered_key(many, key));
  EXPECT_EQ(key.count, NumberedKey::kMaxNumbers);
  std::string again;
  append_numbered_key(again, key);
  EXPECT_EQ(again, many);
}

// Against a map, of keys that make the table widen its numbers, give a family up, and sort.
TEST(ReferenceTable, FindsWhatAMapFinds) {
  std::mt19937_64 random(1);
  std::map<std::string, std::uint64_t> wanted;
  ReferenceTable::Builder builder;
  const auto add = [&](const std::string& key) {
    const std::uint64_t offset = random() >> 2;
    wanted[key] = offset;
    builder.add_range(key, "u" + std::to_string(random() % 3), offset, 10);
  };
  for (int i = 0; i < 3000; ++i) {
    add("a/" + std::to_string(random() % 50) + "." + std::to_string(random() % 50));
    add("b/c/" + std::to_string(random() % 100'000) + "/0/1/0/0/" + std::to_string(random() % 3));
    add("wide/" + std::to_string(random() % 7) + "." +
        std::to_string(static_cast<std::uint32_t>(random() >> (i % 40))) + "." +
        std::to_string(static_cast<std::uint32_t>(random() >> (i % 33))));
    add("text/" + std::to_string(random() % 100) + "x");
  }
  const auto table = builder.finish();
  EXPECT_EQ(table->size(), wanted.size());
  std::vector<std::string> keys;
  for (const auto& [key, offset] : wanted) {
    const auto found = table->find(key);
    ASSERT_TRUE(found) << key;
    EXPECT_EQ(found->range.offset, offset) << key;
    keys.push_back(key);
  }
  EXPECT_EQ(table->list(""), keys);
  for (const char* missing : {"a", "a/", "a/50.0", "a/1", "b/c/0", "wide/0.0.0.0", "text/1", "0"}) {
    EXPECT_FALSE(table->find(missing)) << missing;
  }
  EXPECT_EQ(table->list_dir(""),
            (std::vector<DirEntry>{{"a", true}, {"b", true}, {"text", true}, {"wide", true}}));
  EXPECT_EQ(table->list_dir("b"), (std::vector<DirEntry>{{"c", true}}));
}

TEST(KerchunkJson, VersionZero) {
  const auto table = parse(R"({
    ".zgroup": "{\n \"zarr_format\": 2}",
    "x/.zarray": {"chunks": [1], "text": "a}]\"b"},
    "x/0": ["s3://bucket/f.nc", 10000, 100],
    "x/1": "base64:AAEC",
    "x/2": ["whole.bin"],
    "x/3": [null, 1, 2],
    "\u00e9/0": "\u00e9\n"})");
  EXPECT_EQ(shown(*table, ".zgroup"), "{\n \"zarr_format\": 2}");
  EXPECT_EQ(shown(*table, "x/.zarray"), R"({"chunks": [1], "text": "a}]\"b"})");
  EXPECT_EQ(shown(*table, "x/0"), "s3://bucket/f.nc[10000,100]");
  EXPECT_EQ(shown(*table, "x/1"), std::string("\0\1\2", 3));
  EXPECT_EQ(shown(*table, "x/2"), "whole.bin");
  EXPECT_EQ(shown(*table, "x/3"), "[1,2]");
  EXPECT_EQ(shown(*table, "\xc3\xa9/0"), "\xc3\xa9\n");
  EXPECT_EQ(table->size(), 7u);
}

// The example of the specification, and its refs before its templates.
TEST(KerchunkJson, VersionOne) {
  const std::string refs = R"("refs": {
      "key0": "data",
      "key1": ["http://target_url", 10000, 100],
      "key2": ["http://{{u}}", 10000, 100],
      "key3": ["http://{{f(c='text')}}", 10000, 100]
    })";
  const std::string rest = R"("templates": {"u": "server.domain/path", "f": "{{c}}"},
    "gen": [{"key": "gen_key{{i}}", "url": "http://{{u}}_{{i}}",
             "offset": "{{(i + 1) * 1000}}", "length": "1000",
             "dimensions": {"i": {"stop":  5}}}])";
  for (const std::string& json : {R"({"version": 1,)" + rest + "," + refs + "}",
                                  "{" + refs + "," + rest + R"(, "version": 1})"}) {
    const auto table = parse(json);
    EXPECT_EQ(shown(*table, "key0"), "data");
    EXPECT_EQ(shown(*table, "key1"), "http://target_url[10000,100]");
    EXPECT_EQ(shown(*table, "key2"), "http://server.domain/path[10000,100]");
    EXPECT_EQ(shown(*table, "key3"), "http://text[10000,100]");
    EXPECT_EQ(shown(*table, "gen_key0"), "http://server.domain/path_0[1000,1000]");
    EXPECT_EQ(shown(*table, "gen_key4"), "http://server.domain/path_4[5000,1000]");
    EXPECT_EQ(table->size(), 9u);
  }
}

// In parts of a few bytes, so that every value is cut somewhere.
TEST(KerchunkJson, ComesInAnyParts) {
  std::string json = R"({"version": 1, "refs": {"x/.zarray": {"a": [1, {"b": "\"}"}]})";
  for (int i = 0; i < 2000; ++i) {
    json += ", \"x/" + std::to_string(i) + ".0\" : [ \"u\\u0041" + std::to_string(i % 7) + "\", " +
            std::to_string(i * 11) + " ,5 ]";
  }
  json += "}}";
  for (const std::size_t part : {1u, 2u, 3u, 7u, 64u}) {
    const auto table = read_kerchunk_json(
        [source = source_of(json), part](MutableBytes into) mutable {
          return source(into.first(std::min(part, into.size())));
        },
        "refs.json",
        {});
    EXPECT_EQ(table->size(), 2001u);
    EXPECT_EQ(shown(*table, "x/1999.0"), "uA4[21989,5]");
  }
}

TEST(KerchunkJson, HostileTextIsCorrupt) {
  for (
      const char* json :
      {"",
       "[]",
       "{",
       R"({"a")",
       R"({"a": 1})",
       R"({"a": true})",
       R"({"a": null})",
       R"({"a": []})",
       R"({"a": [1]})",
       R"({"a": ["u", 1]})",
       R"({"a": ["u", -1, 5]})",
       R"({"a": ["u", 1.5, 5]})",
       R"({"a": ["u", 1, 5, 6]})",
       R"({"a": ["u", 1, 99999999999999999999999]})",
       R"({"a": ["u", 1, 18446744073709551615]})",
       R"({"a": "base64:!!!"})",
       R"({"a": "no end)",
       R"({"a": "x"} more)",
       R"({"a": {"b": [}})",
       "{\"a\": \"\n\"}",
       R"({"version": 1, "refs": {}, "gen": [{"key": "k"}]})",
       R"({"version": 1, "gen": [{"key": "k{{i}}", "url": "u", "offset": "1", "dimensions": {}}]})",
       R"({"version": 1, "gen": [{"key": "k{{j}}", "url": "u", "dimensions": {"i": [1]}}]})",
       R"({"version": 1, "gen": [{"key": "k{{i}}", "url": "u", "dimensions": {"i": {"stop": 99999999999}}}]})",
       R"({"version": 1, "gen": [{"key": "k{{i}}", "url": "u", "dimensions":
                               {"i": {"stop": 100000}, "j": {"stop": 100000}}}]})",
       R"x({"version": 1, "templates": {"a": "{{a()"}, "refs": {"k": ["{{a()}}"]}})x"}) {
    EXPECT_EQ(json_error(json), ErrorCode::corrupt) << json;
  }
  EXPECT_EQ(json_error(R"({"version": 2, "refs": {}})"), ErrorCode::unsupported);
  EXPECT_EQ(parse(R"({"../a": "x", "/a": "x", "": "x", "a/": "x", "a": "x"})")->list(""),
            std::vector<std::string>{"a"});  // what nobody can ask for
  std::string deep = R"({"a": )";
  deep.append(100'000, '[');
  EXPECT_EQ(json_error(deep), ErrorCode::corrupt);
  deep = R"({"a": {"b": )";
  deep.append(100'000, '[');
  EXPECT_EQ(json_error(deep), ErrorCode::corrupt);
}

// What of a text with limits is said; empty: it is read.
std::string refused(const std::string& json, const GeneratorLimits& limits = {}) {
  std::string message;
  try {
    read_kerchunk_json(source_of(json), "refs.json", {}, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    message = error.what();
  }
  return message;
}

std::string generator(const std::string& url, std::uint64_t count) {
  return R"({"version": 1, "gen": [{"key": "k/{{i}}", "url": ")" + url +
         R"(", "dimensions": {"i": {"stop": )" + std::to_string(count) + "}}}]}";
}

TEST(KerchunkJson, GeneratorsAreBoundInMemory) {
  EXPECT_NE(refused(generator("u", 20'000'000)).find("16777216 references"), std::string::npos);
  const GeneratorLimits small{.nbytes = 10'000'000};
  // One URL, which is there once, and as many as there are references.
  const std::string url(1000, 'u');
  EXPECT_EQ(refused(generator(url, 9000), small), "");
  EXPECT_EQ(refused(generator(url + "{{i}}", 8000), small), "");
  EXPECT_NE(refused(generator(url + "{{i}}", 9000), small).find("10000000 bytes"),
            std::string::npos);
  // By templates.
  const auto rendered = [](int count) {
    std::string text =
        R"({"version": 1, "templates": {"u": ")" + std::string(100'000, 'u') + R"("}, "refs": {)";
    for (int i = 0; i < count; ++i) {
      const std::string number = std::to_string(i);
      text += (i == 0 ? "\"k" : ",\"k") + number + R"(": ["{{u}}/)" + number + R"("])";
    }
    return text + "}}";
  };
  EXPECT_EQ(refused(rendered(90), small), "");
  EXPECT_NE(refused(rendered(110), small).find("10000000 bytes"), std::string::npos);
}

TEST(KerchunkJson, GeneratorsAreBoundInTime) {
  const GeneratorLimits small{.work = 100'000'000};
  // A template of a megabyte, again and again.
  std::string text =
      R"({"version": 1, "templates": {"u": ")" + std::string(1'000'000, 'u') + R"("}, "refs": {)";
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    text += (i == 0 ? "\"k" : ",\"k") + number + R"(": ["{{u}}/)" + number + R"("])";
  }
  EXPECT_NE(refused(text + "}}", small).find("characters"), std::string::npos);
  // Long strings of which nothing stays but a number.
  const std::string blanks(100'000, ' ');
  EXPECT_NE(refused(R"({"version": 1, "gen": [{"key": "k/{{i}}", "url": "u", "length": "1",
                        "offset": "{{i}}{{')" +
                        blanks + R"(' ~ ''}}", "dimensions": {"i": {"stop": 10000}}}]})",
                    small)
                .find("characters"),
            std::string::npos);
}

TEST(KerchunkJson, GeneratorsHearTheirCaller) {
  struct Unwanted {};
  int polls = 0;
  const InterruptScope scope([&polls] {
    if (++polls == 3) throw Unwanted();
  });
  EXPECT_THROW(parse(R"({"version": 1, "gen": [{"key": "k{{i}}", "url": "u",
                         "dimensions": {"i": {"stop": 10000000}}}]})"),
               Unwanted);
}

TEST(Templates, ExpressionsHaveTheValuesOfJinja) {
  const Templates templates{{"u", "host/path"}, {"f", "{{c}}-{{d}}"}};
  const TemplateValues variables{{"i", std::int64_t{7}}, {"s", std::string("text")}};
  TemplateWork work;
  const std::pair<const char*, const char*> cases[] = {
      {"plain", "plain"},
      {"{{i}}", "7"},
      {"a{{ i }}b{{s}}", "a7btext"},
      {"{{u}}/x", "host/path/x"},
      {"{{f(c='1', d=i + 1)}}", "1-8"},
      {"{{(i + 1) * 1000}}", "8000"},
      {"{{-i // 2}}", "-4"},
      {"{{-i % 3}}", "2"},
      {"{{i - 2 - 3}}", "2"},
      {"{{'%03d' % i}}.nc", "007.nc"},
      {"{{s ~ i ~ \"!\"}}", "text7!"},
      {"{{s + 'x'}}", "textx"},
      {"{i} {", "{i} {"},
  };
  for (const auto& [text, wanted] : cases) {
    EXPECT_EQ(render_template(text, templates, variables, work), wanted) << text;
  }
  for (const char* text : {"{{i | abs}}", "{{i ** 2}}", "{% if i %}", "{{i / 2}}", "{{i.real}}"}) {
    EXPECT_EQ(code_of([&] { render_template(text, templates, variables, work); }),
              ErrorCode::unsupported)
        << text;
  }
  const std::string deep =
      "{{" + std::string(100'000, '(') + "1" + std::string(100'000, ')') + "}}";
  for (const std::string& text : {std::string("{{i // 0}}"),
                                  std::string("{{unknown}}"),
                                  std::string("{{s * 2}}"),
                                  std::string("{{i"),
                                  deep}) {
    EXPECT_EQ(code_of([&] { render_template(text, templates, variables, work); }),
              ErrorCode::corrupt)
        << text.substr(0, 50);
  }
}

class References : public testing::Test {
 protected:
  References() {
    std::filesystem::create_directories(folder_ / "data");
    write_file(folder_ / "data/target.bin", "0123456789");
    write_file(folder_ / "secret.bin", "secret");
  }
  Store open(const std::string& json, const StorageOptions& options = {}) {
    write_file(folder_ / "data/refs.json", json);
    return open_store("reference://" + (folder_ / "data/refs.json"), StoreMode::read, options);
  }
  std::string url(const char* name) { return "file://" + (folder_ / name); }

  TempFolder folder_;
};

TEST_F(References, ReadWhatTheyLeadTo) {
  const Store store =
      open(R"({"a/0": "inline", "a/1": ["target.bin", 2, 5], "a/2": [")" + url("data/target.bin") +
           R"("], "a/3": [")" + (folder_ / "data/target.bin") +
           R"(", 8, 3], "a/4": ["gone.bin"], "a/5": ["target.bin", 3, 0]})");
  EXPECT_TRUE(store.read_only());
  EXPECT_EQ(get_text(store, "a/0"), "inline");
  EXPECT_EQ(get_text(store, "a/1"), "23456");
  EXPECT_EQ(get_text(store, "a/2"), "0123456789");
  EXPECT_EQ(get_text(store, "a/5"), "");
  EXPECT_EQ(get_text(store, "a/6"), "(none)");
  EXPECT_EQ(code_of([&] { get_text(store, "a/3"); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { get_text(store, "a/4"); }), ErrorCode::io);
  const auto part = store.driver().open("a/1");
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->size(), 5u);
  EXPECT_NE(part->version(), 0u);
  std::byte bytes[2];
  part->read(3, bytes);
  EXPECT_EQ(text_of(bytes), "56");
  EXPECT_EQ(code_of([&] { part->read(4, bytes); }), ErrorCode::corrupt);
  EXPECT_EQ(store.list(""), (std::vector<std::string>{"a/0", "a/1", "a/2", "a/3", "a/4", "a/5"}));
  EXPECT_EQ(code_of([&] { store.set("a/0", {}); }), ErrorCode::permission_denied);
}

TEST_F(References, LeadNowhereButWhereTheyMay) {
  std::filesystem::create_symlink(folder_ / "secret.bin", folder_ / "data/link.bin");
  const std::string json =
      R"({"up": ["../secret.bin"], "absolute": [")" + (folder_ / "secret.bin") +
      R"("], "url": [")" + url("secret.bin") + R"("], "link": ["link.bin"],
      "dots": [")" +
      (folder_ / "data/../secret.bin") +
      R"("], "host": ["http://127.0.0.1/x"], "loop": ["reference:///x.json"]})";
  {
    const Store store = open(json);
    for (const char* key : {"up", "absolute", "url", "link", "dots", "host"}) {
      std::string message;
      try {
        get_text(store, key);
        ADD_FAILURE() << key;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::permission_denied) << key;
        EXPECT_NE(std::string(error.what()).find("\"allow\""), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(code_of([&] { get_text(store, "loop"); }), ErrorCode::unsupported);
  }
  for (const std::string& allow : {folder_ / "",
                                   "[\"" + url("") + "\"]",
                                   "/nowhere, " + (folder_ / "secret.bin"),
                                   std::string("*")}) {
    const Store store = open(json, {{"allow", allow}});
    for (const char* key : {"up", "absolute", "url", "link", "dots"}) {
      EXPECT_EQ(get_text(store, key), "secret") << key << " with " << allow;
    }
  }
  // A name that begins alike is another one.
  const Store store = open(json, {{"allow", folder_ / "secret"}});
  EXPECT_EQ(code_of([&] { get_text(store, "up"); }), ErrorCode::permission_denied);
}

// RFC 8089 has "file:/a", too.
TEST_F(References, LeadToFilesByOneSlash) {
  const auto json = [&](const char* name) {
    return R"({"a": ["file:)" + (folder_ / name) + R"("]})";
  };
  EXPECT_EQ(get_text(open(json("data/target.bin")), "a"), "0123456789");
  const Store secret = open(json("secret.bin"));
  EXPECT_EQ(code_of([&] { get_text(secret, "a"); }), ErrorCode::permission_denied);
  EXPECT_EQ(get_text(open(json("secret.bin"), {{"allow", "file:" + (folder_ / "")}}), "a"),
            "secret");
}

// What is relative lies on the same host, and is read as all of a network is.
TEST_F(References, AreRelativeToAnotherHost) {
  ObjectServer server;
  server.put("data/refs.json", R"({"a/0": ["f.bin", 2, 5], "a/1": ["../f.bin"]})");
  server.put("data/f.bin", "0123456789");
  const Store store =
      open_store("reference://" + server.url() + "/data/refs.json", StoreMode::read);
  ASSERT_NE(store.driver().async_reads(), nullptr);
  const int before = server.server().requests();
  EXPECT_EQ(get_text(store, "a/0"), "23456");
  EXPECT_EQ(server.server().requests(), before + 1);
  EXPECT_EQ(code_of([&] { get_text(store, "a/1"); }), ErrorCode::corrupt);
}

TEST_F(References, UnpackToNoMoreThanTheyCanBe) {
  const auto packed = [](std::size_t spaces) {
    const std::string json = R"({"a": "text")" + std::string(spaces, ' ') + "}";
    std::string out(ZSTD_compressBound(json.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), json.data(), json.size(), 3));
    return out;
  };
  EXPECT_EQ(get_text(open(packed(1 << 20)), "a"), "text");
  EXPECT_EQ(code_of([&] { open(packed(80 << 20)); }), ErrorCode::corrupt);
}

TEST_F(References, ShowNoPassword) {
  ObjectServer server;
  server.put("refs.json", R"({"a": ["http://nowhere.example/x"], "b": ["f"]})");
  server.put("f", "text");
  const std::string place = "reference://http://user:SECRET@" + server.url().substr(7);
  const Store store = open_store(place + "/refs.json", StoreMode::read);
  EXPECT_EQ(store.url(), "reference://" + server.url() + "/refs.json");
  EXPECT_EQ(get_text(store, "b"), "text");
  const auto message_of = [](auto&& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "SECRET, for there is no error";
  };
  for (const std::string& message :
       {message_of([&] { get_text(store, "a"); }),
        message_of([&] { open_store(place + "/none.json", StoreMode::read); }),
        message_of([&] { open_store(place + "/none.parq", StoreMode::read); }),
        message_of([&] { open_store(place + "/refs.json", StoreMode::append); }),
        message_of([&] {
          open_store(place + "/refs.json", StoreMode::read, {{"no", "1"}});
        }),
        message_of([&] {
          open_store(place + "/refs.json", StoreMode::read, {{"fo", "x"}});
        }),
        message_of([&] {
          open_store(place + "/refs.json", StoreMode::read, {{"max_gap", "x"}});
        }),
        message_of([&] { open_store("icechunk+" + place.substr(12), StoreMode::append); }),
        message_of([&] { open_store("zip://" + place.substr(12) + "/a.zip", StoreMode::read); }),
        message_of([&] { open_store(place + "/f", StoreMode::read); })}) {
    EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
  }
}

TEST_F(References, AQueryIsAnOption) {
  ObjectServer server;
  server.put("refs.json", R"({"a": "text"})");
  const std::string place = "reference://" + server.url() + "/refs.json";
  std::mutex mutex;
  std::string query, message;
  server.set_fault([&](const test::ServerRequest& request, test::ServerAnswer&) {
    const std::lock_guard lock(mutex);
    query = request.query;
  });
  EXPECT_EQ(code_of([&] { open_store(place + "?sig=SECRET", StoreMode::read); }, &message),
            ErrorCode::invalid_argument);
  EXPECT_NE(message.find("target_options={\"query\": ...}"), std::string::npos) << message;
  EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
  const StorageOptions options{{"target_options", R"({"query": "sig=SECRET"})"}};
  EXPECT_EQ(get_text(open_store(place, StoreMode::read, options), "a"), "text");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(query, "sig=SECRET");
}

TEST(ShownPlace, HidesWhatUrlsHideWhereverTheyStand) {
  const struct {
    const char* place;
    const char* shown;
  } cases[] = {
      {"http://me:pw@host/a?sig#b", "http://host/a"},
      {"reference://HTTPS://me:pw@host/a.json?sig", "reference://HTTPS://host/a.json"},
      {"icechunk+http://me:pw@host/a", "icechunk+http://host/a"},
      {"simplecache::http://me:pw@host/a?u=http://x", "simplecache::http://host/a"},
      {"/data/a?b:@c", "/data/a?b:@c"},
      {"icechunk+s3://key:pw@bucket/a", "icechunk+s3://bucket/a"},
      {"reference://s3://key:p:w@bucket/a?b", "reference://s3://bucket/a?b"},
      {"abfss://container@account/a:b@c", "abfss://container@account/a:b@c"},
      {"s3://bucket/a?b@c", "s3://bucket/a?b@c"},
  };
  for (const auto& [place, shown] : cases) EXPECT_EQ(shown_place(place), shown);
}

TEST_F(References, OptionsThatMeanNothingAreErrors) {
  EXPECT_EQ(code_of([&] { open("{}", {{"no_such", "1"}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { open("{}", {{"max_gap", "x"}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { open_store("reference://", StoreMode::read); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { open_store("reference:///no/such.json", StoreMode::read); }),
            ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { open_store("reference:///x.json", StoreMode::append); }),
            ErrorCode::permission_denied);
  const Store store = open_store("reference://", StoreMode::read, {{"fo", R"({"a": "text"})"}});
  EXPECT_EQ(get_text(store, "a"), "text");
}

// An option that nobody knows tells whether a place is opened by the home's options.
TEST(ReferenceTargets, OptionsOfTheHomeGoToNoOtherHostOfAzure) {
  TargetRules rules;
  rules.home = "abfss://con@acc.dfs.core.windows.net/repo";
  rules.allow = {"*"};
  rules.options = {{"sas_token", "s"}, {"unknown", "x"}};
  rules.options_are_of_home = true;
  Targets targets(rules);
  EXPECT_EQ(code_of([&] { targets.open("abfss://other@acc.dfs.core.windows.net/k"); }),
            ErrorCode::invalid_argument);
  for (const char* elsewhere : {"abfss://con@acc.dfs.example/k",
                                "abfss://con@acc.dfs.core.windows.net.example/k",
                                "abfss://acc.dfs.core.windows.net@other.dfs.core.windows.net/k"}) {
    EXPECT_NO_THROW(targets.open(elsewhere)) << elsewhere;
  }
}

}  // namespace
}  // namespace headrace::test
