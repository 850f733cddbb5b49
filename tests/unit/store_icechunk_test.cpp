// Repositories of version 2 of the format, whose files are made here by the flatbuffers library;
// those of version 1 the icechunk library makes for the tests in Python.

#include <flatbuffers/flatbuffers.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "conformance/error_code.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "headrace/store.h"
#include "store/icechunk/metadata_file.h"
#include "store/icechunk/repository.h"
#include "store/icechunk/snapshot.h"
#include "store/store.h"
#include "support/http_server.h"

namespace headrace::test {
namespace {

using Any = flatbuffers::Offset<void>;
using flatbuffers::FlatBufferBuilder;

struct Id12 {
  std::array<std::uint8_t, 12> bytes;
};
struct Id8 {
  std::array<std::uint8_t, 8> bytes;
};
struct Range {
  std::uint32_t from, to;
};

Id12 id12(std::uint8_t n) { return {{n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255}}; }
Id8 id8(std::uint8_t n) { return {{n, 1, 1, 1, 1, 1, 1, 1}}; }

std::string name_of(const Id12& id) {
  IcechunkId bytes;
  std::transform(
      id.bytes.begin(), id.bytes.end(), bytes.begin(), [](std::uint8_t b) { return std::byte{b}; });
  return icechunk_name(bytes);
}

constexpr flatbuffers::voffset_t field(unsigned number) {
  return static_cast<flatbuffers::voffset_t>(4 + 2 * number);
}

// A table whose fields the function adds.
template <typename F>
Any table(FlatBufferBuilder& b, F&& add) {
  const auto start = b.StartTable();
  add();
  return Any(b.EndTable(start));
}

Any tables(FlatBufferBuilder& b, const std::vector<Any>& all) { return Any(b.CreateVector(all).o); }

std::string packed(FlatBufferBuilder& b, Any root, IcechunkFile kind, char version = 2) {
  b.Finish(root);
  std::string out =
      "ICE\xf0\x9f\xa7\x8a"
      "CHUNK";
  out += std::string("headrace's tests").append(24 - 16, ' ');
  out += version;
  out += static_cast<char>(kind);
  out += '\1';
  std::string body(ZSTD_compressBound(b.GetSize()), '\0');
  body.resize(ZSTD_compress(body.data(), body.size(), b.GetBufferPointer(), b.GetSize(), 3));
  return out + body;
}

std::string repo_file() {
  FlatBufferBuilder b;
  const auto ref = [&](const char* name, std::uint32_t snapshot) {
    const auto text = b.CreateString(name);
    return table(b, [&] {
      b.AddOffset(field(0), text);
      b.AddElement<std::uint32_t>(field(1), snapshot, 0);
    });
  };
  const auto info = [&](std::uint8_t n) {
    const Id12 id = id12(n);
    return table(b, [&] { b.AddStruct(field(0), &id); });
  };
  const Any branches = tables(b, {ref("lost", 7), ref("main", 1)});
  const Any tags = tables(b, {ref("v1", 0)});
  const Any snapshots = tables(b, {info(1), info(2)});
  return packed(b,
                table(b,
                      [&] {
                        b.AddElement<std::uint8_t>(field(0), 2, 0);
                        b.AddOffset(field(1), tags);
                        b.AddOffset(field(2), branches);
                        b.AddOffset(field(4), snapshots);
                      }),
                IcechunkFile::repo);
}

std::string snapshot_file(const std::string& title) {
  FlatBufferBuilder b;
  const auto node =
      [&](std::uint8_t n, const char* path, const std::string& json, std::uint8_t kind, Any data) {
        const Id8 id = id8(n);
        const auto text = b.CreateString(path);
        const auto user =
            b.CreateVector(reinterpret_cast<const std::uint8_t*>(json.data()), json.size());
        return table(b, [&] {
          b.AddStruct(field(0), &id);
          b.AddOffset(field(1), text);
          b.AddOffset(field(2), user);
          b.AddElement<std::uint8_t>(field(3), kind, 0);
          b.AddOffset(field(4), data);
        });
      };
  const Any group = table(b, [] {});
  const Any dimension = table(b, [&] { b.AddElement<std::uint64_t>(field(0), 100, 0); });
  const Any shape = tables(b, {dimension});
  const Id12 manifest = id12(9);
  const Range extent{0, 50};
  const auto extents = b.CreateVectorOfStructs(&extent, 1);
  const Any ref = table(b, [&] {
    b.AddStruct(field(0), &manifest);
    b.AddOffset(field(1), extents);
  });
  const Any refs = tables(b, {ref});
  const Any array = table(b, [&] {
    b.AddOffset(field(2), refs);
    b.AddOffset(field(3), shape);
  });
  const Any nodes = tables(b, {node(1, "/", title, 2, group), node(2, "/g/x", "array", 1, array)});
  return packed(b, table(b, [&] { b.AddOffset(field(2), nodes); }), IcechunkFile::snapshot);
}

// Chunks 0 (here), 1 (native), 2 and 3 (elsewhere), and 60, which the snapshot does not speak of.
std::string manifest_file(const std::string& location,
                          bool in_order = true,
                          std::uint32_t last_modified = 0,
                          const std::string& etag = {}) {
  FlatBufferBuilder b;
  const auto chunk = [&](std::uint32_t number, auto&& add, Any extra) {
    const auto index = b.CreateVector(&number, 1);
    return table(b, [&] {
      b.AddOffset(field(0), index);
      add(extra);
    });
  };
  const auto range = [&](std::uint64_t offset, std::uint64_t length) {
    b.AddElement<std::uint64_t>(field(2), offset, 0);
    b.AddElement<std::uint64_t>(field(3), length, 0);
  };
  const std::vector<std::uint8_t> bytes{'i', 'n', ' ', 'i', 't'};
  const Any here(b.CreateVector(bytes).o);
  const Id12 id = id12(5);
  const Any url(b.CreateString(location).o);
  const Any etag_at(b.CreateString(etag).o);
  const std::string dictionary = "a dictionary of urls: " + location;
  const auto dictionary_at =
      b.CreateVector(reinterpret_cast<const std::uint8_t*>(dictionary.data()), dictionary.size());
  std::vector<std::uint8_t> small(ZSTD_compressBound(location.size()));
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  small.resize(ZSTD_compress_usingDict(context,
                                       small.data(),
                                       small.size(),
                                       location.data(),
                                       location.size(),
                                       dictionary.data(),
                                       dictionary.size(),
                                       3));
  ZSTD_freeCCtx(context);
  const Any packed_url(b.CreateVector(small).o);
  std::vector<Any> chunks{chunk(
                              0,
                              [&](Any at) {
                                range(std::uint64_t{1} << 40, 5);  // means nothing here
                                b.AddOffset(field(1), at);
                              },
                              here),
                          chunk(
                              1,
                              [&](Any) {
                                range(2, 4);
                                b.AddStruct(field(4), &id);
                              },
                              here),
                          chunk(
                              2,
                              [&](Any at) {
                                range(1, 3);
                                b.AddOffset(field(5), at);
                                if (!etag.empty()) b.AddOffset(field(6), etag_at);
                                b.AddElement<std::uint32_t>(field(7), last_modified, 0);
                              },
                              url),
                          chunk(
                              3,
                              [&](Any at) {
                                range(0, 2);
                                b.AddOffset(field(8), at);
                              },
                              packed_url),
                          chunk(
                              60, [&](Any at) { b.AddOffset(field(1), at); }, here)};
  if (!in_order) std::swap(chunks[0], chunks[3]);
  const Any refs = tables(b, chunks);
  const Id8 node = id8(2);
  const Any array = table(b, [&] {
    b.AddStruct(field(0), &node);
    b.AddOffset(field(1), refs);
  });
  const Any arrays = tables(b, {array});
  const Id12 manifest = id12(9);
  return packed(b,
                table(b,
                      [&] {
                        b.AddStruct(field(0), &manifest);
                        b.AddOffset(field(1), arrays);
                        b.AddOffset(field(2), dictionary_at);
                      }),
                IcechunkFile::manifest);
}

ConstBytes as_bytes(const std::string& text) { return bytes_of(text); }

class IcechunkVersion2 : public testing::Test {
 protected:
  IcechunkVersion2() {
    for (const char* folder : {"snapshots", "manifests", "chunks", "data"}) {
      std::filesystem::create_directories(folder_ / folder);
    }
    write("repo", repo_file());
    write("snapshots/" + name_of(id12(1)), snapshot_file("first"));
    write("snapshots/" + name_of(id12(2)), snapshot_file("second"));
    write("manifests/" + name_of(id12(9)), manifest_file("file://" + (folder_ / "data/f.bin")));
    write("chunks/" + name_of(id12(5)), "0123456789");
    write("data/f.bin", "virtual");
  }
  void write(const std::string& key, const std::string& text) {
    std::ofstream(folder_ / key, std::ios::binary) << text;
  }
  Store open(const StorageOptions& options = {}) {
    return open_store("icechunk://" + folder_.path(), StoreMode::read, options);
  }
  static std::string get(const Store& store, std::string_view key) {
    Buffer bytes;
    return store.driver().get(key, bytes) ? std::string(text_of(bytes)) : "(none)";
  }

  TempFolder folder_;
};

// Where virtual chunks may be elsewhere, all reads are asynchronous.
TEST_F(IcechunkVersion2, ChunksAreReadTheSameWhereOthersMayBeElsewhere) {
  const Store store = open({{"allow", "https://nowhere.example"}});
  ASSERT_NE(store.driver().async_reads(), nullptr);
  EXPECT_EQ(get(store, "g/x/c/0"), "in it");
  EXPECT_EQ(get(store, "g/x/c/1"), "2345");
  EXPECT_EQ(get(store, "g/x/c/2"), "irt");
  std::byte bytes[2];
  store.driver().open("g/x/c/0")->read(3, bytes);
  EXPECT_EQ(text_of(bytes), "it");
}

TEST_F(IcechunkVersion2, EveryKindOfChunkIsRead) {
  const Store store = open();
  EXPECT_EQ(get(store, "zarr.json"), "second");
  EXPECT_EQ(get(store, "g/x/zarr.json"), "array");
  EXPECT_EQ(get(store, "g/x/c/0"), "in it");
  EXPECT_EQ(get(store, "g/x/c/1"), "2345");
  EXPECT_EQ(get(store, "g/x/c/2"), "irt");
  EXPECT_EQ(get(store, "g/x/c/3"), "vi");
  for (const char* missing :
       {"g/x/c/4", "g/x/c/60", "g/x/c", "g/x/c/0/0", "g/x/c/00", "g/zarr.json"}) {
    EXPECT_EQ(get(store, missing), "(none)") << missing;
  }
  EXPECT_EQ(store.list(""),
            (std::vector<std::string>{
                "g/x/c/0", "g/x/c/1", "g/x/c/2", "g/x/c/3", "g/x/zarr.json", "zarr.json"}));
  EXPECT_EQ(store.list_dir(""), (std::vector<std::string>{"g", "zarr.json"}));
  EXPECT_EQ(store.list_dir("g/x"), (std::vector<std::string>{"c", "zarr.json"}));
  EXPECT_EQ(store.list_dir("g/x/c"), (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_TRUE(open_store(folder_.path(), StoreMode::read).url().starts_with("icechunk+file://"));
}

// The repository's token is the repository's host's.
TEST_F(IcechunkVersion2, SecretsGoToNoOtherHost) {
  ObjectServer here, elsewhere;
  const std::string location = elsewhere.url() + "/f.bin";
  write("manifests/" + name_of(id12(9)), manifest_file(location));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    here.put("repo" + entry.path().string().substr(folder_.path().size()),
             std::string(std::istreambuf_iterator<char>(file), {}));
  }
  elsewhere.put("f.bin", "virtual");
  std::mutex mutex;
  std::string seen_here, seen_elsewhere;
  const auto note = [&mutex](std::string& seen) {
    return [&mutex, &seen](const ServerRequest& request, ServerAnswer&) {
      const std::lock_guard lock(mutex);
      seen = request.header("Authorization");
    };
  };
  here.set_fault(note(seen_here));
  elsewhere.set_fault(note(seen_elsewhere));
  StorageOptions options{{"bearer_token", "SECRET"}, {"allow", elsewhere.url()}};
  for (const char* wanted : {"", "Bearer OTHER"}) {
    const Store store = open_store("icechunk+" + here.url() + "/repo", StoreMode::read, options);
    EXPECT_EQ(get(store, "g/x/c/1"), "2345");
    EXPECT_EQ(get(store, "g/x/c/2"), "irt");
    const std::lock_guard lock(mutex);
    EXPECT_EQ(seen_here, "Bearer SECRET");
    EXPECT_EQ(seen_elsewhere, wanted);
    options["remote_options"] = R"({"bearer_token": "OTHER"})";
  }
}

// Of a virtual chunk it may be known when its object was changed, and no ETag.
TEST_F(IcechunkVersion2, AnObjectThatIsNewerThanItsReferenceIsRefused) {
  ObjectServer elsewhere;
  elsewhere.put("f.bin", "virtual");
  constexpr std::uint32_t kTime = 1'795'417'200;  // 2026-11-23 07:00:00
  std::string modified;
  elsewhere.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    if (!modified.empty()) answer.headers.emplace_back("Last-Modified", modified);
  });
  for (const std::uint32_t known : {kTime, std::uint32_t{0}}) {
    write("manifests/" + name_of(id12(9)), manifest_file(elsewhere.url() + "/f.bin", true, known));
    const Store store = open({{"allow", elsewhere.url()}});
    for (const char* time :
         {"", "Mon, 23 Nov 2026 07:00:00 GMT", "Sun, 22 Nov 2026 23:00:00 GMT"}) {
      modified = time;
      EXPECT_EQ(get(store, "g/x/c/2"), "irt") << time;
    }
    modified = "Mon, 23 Nov 2026 07:00:01 GMT";
    if (known == 0) {
      EXPECT_EQ(get(store, "g/x/c/2"), "irt");
      continue;
    }
    std::string message;
    EXPECT_EQ(code_of([&] { get(store, "g/x/c/2"); }, &message), ErrorCode::io);
    EXPECT_NE(message.find("has changed since"), std::string::npos) << message;
    EXPECT_EQ(code_of([&] { store.open("g/x/c/2"); }), ErrorCode::io);
    EXPECT_EQ(get(store, "g/x/c/3"), "vi");  // of which nothing is known
  }
}

// A weak ETag is no version of a web server's objects: their time is.
TEST_F(IcechunkVersion2, AnObjectIsKnownByItsETag) {
  ObjectServer elsewhere;
  elsewhere.put("f.bin", "virtual");
  const std::string strong = ObjectServer::etag("virtual");
  std::string weak;
  elsewhere.set_fault([&](const ServerRequest&, ServerAnswer& answer) {
    answer.headers.emplace_back("Last-Modified", "Mon, 23 Nov 2026 07:00:00 GMT");
    for (auto& [name, value] : answer.headers) {
      if (name == "ETag" && !weak.empty()) value = weak;
    }
  });
  const auto read_by = [&](const std::string& etag) {
    write("manifests/" + name_of(id12(9)),
          manifest_file(elsewhere.url() + "/f.bin", true, 0, etag));
    return get(open({{"allow", elsewhere.url()}}), "g/x/c/2");
  };
  EXPECT_EQ(read_by(strong), "irt");
  EXPECT_EQ(read_by(strong.substr(1, strong.size() - 2)), "irt");  // as some stores have it
  EXPECT_EQ(code_of([&] { read_by("\"another\""); }), ErrorCode::io);
  weak = "W/" + strong;
  EXPECT_EQ(read_by(weak), "irt");
  EXPECT_EQ(code_of([&] { read_by("W/\"another\""); }), ErrorCode::io);
}

TEST_F(IcechunkVersion2, RefsNameSnapshots) {
  EXPECT_EQ(get(open({{"tag", "v1"}}), "zarr.json"), "first");
  EXPECT_EQ(get(open({{"branch", "main"}}), "zarr.json"), "second");
  EXPECT_EQ(get(open({{"snapshot", name_of(id12(1))}}), "zarr.json"), "first");
  EXPECT_EQ(code_of([&] { open({{"tag", "main"}}); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { open({{"branch", "lost"}}); }), ErrorCode::corrupt);
}

// What is opened in another process later, or kept of it on a disk, is of that snapshot.
TEST_F(IcechunkVersion2, TheUrlNamesTheSnapshot) {
  const std::string url = open({{"tag", "v1"}}).url();
  EXPECT_TRUE(url.starts_with("icechunk+file://")) << url;
  EXPECT_TRUE(url.ends_with("?snapshot=" + name_of(id12(1)))) << url;
  EXPECT_EQ(icechunk_place(url), "file://" + folder_.path());
  for (const StorageOptions& options : {StorageOptions{},
                                        {{"tag", "v1"}},
                                        {{"branch", "main"}},
                                        {{"snapshot", name_of(id12(1))}}}) {
    const Store again = open_store(url, StoreMode::read, options);
    EXPECT_EQ(again.url(), url);
    EXPECT_EQ(get(again, "zarr.json"), "first");
  }
  EXPECT_EQ(code_of([&] {
              open_store(url, StoreMode::read, {{"snapshot", name_of(id12(2))}});
            }),
            ErrorCode::invalid_argument);
  // No name of one: a folder may be called so.
  EXPECT_EQ(icechunk_place("icechunk:///a?snapshot=b"), "/a?snapshot=b");
}

TEST_F(IcechunkVersion2, ChunksOutOfOrderAreNotTakenForMissing) {
  write("manifests/" + name_of(id12(9)), manifest_file("x", false));
  const Store store = open();
  EXPECT_EQ(code_of([&] { get(store, "g/x/c/0"); }), ErrorCode::corrupt);
}

std::string fault_of(const std::string& file, bool is_snapshot) {
  try {
    if (is_snapshot) {
      const IcechunkSnapshot snapshot(as_bytes(file), "x");
    } else {
      const IcechunkManifest manifest(as_bytes(file), "x");
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "none";
}

// 1000 nodes that are one table in the file, or have one manifest's.
TEST_F(IcechunkVersion2, TablesThatAreSharedTakeNoMoreThanTheFile) {
  for (const bool by_path : {true, false}) {
    FlatBufferBuilder b;
    const Id12 id = id12(1);
    const Id8 node_id = id8(1);
    const std::vector<Range> ranges(64);
    const auto extents = b.CreateVectorOfStructs(ranges);
    const Any ref = table(b, [&] {
      b.AddStruct(field(0), &id);
      b.AddOffset(field(1), extents);
    });
    const Any refs = tables(b, std::vector<Any>(by_path ? 0 : 1000, ref));
    const Any array = table(b, [&] { b.AddOffset(field(2), refs); });
    const auto path = b.CreateString("/" + std::string(by_path ? 10000 : 1, 'x'));
    const Any node = table(b, [&] {
      b.AddStruct(field(0), &node_id);
      b.AddOffset(field(1), path);
      b.AddElement<std::uint8_t>(field(3), 1, 0);
      b.AddOffset(field(4), array);
    });
    const Any nodes = tables(b, std::vector<Any>(by_path ? 1000 : 1, node));
    const Any root = table(b, [&] { b.AddOffset(field(2), nodes); });
    EXPECT_EQ(fault_of(packed(b, root, IcechunkFile::snapshot), true),
              "x: its nodes share their paths or manifests");
  }
}

// Each word of the vector leads to itself, as the table of an array without chunks.
TEST_F(IcechunkVersion2, AManifestHasNoMoreArraysThanAGroup) {
  constexpr std::uint32_t kArrays = (1U << 20) + 1;
  std::string body;
  const auto add = [&](std::uint32_t word) {
    body.append(reinterpret_cast<const char*>(&word), sizeof word);
  };
  for (const std::uint32_t word : {12U, 8U << 16 | 8U, 4U << 16, 8U, 4U, kArrays}) add(word);
  for (std::uint32_t i = 0; i < kArrays + 4; ++i) add(8);
  const std::string header = manifest_file("x").substr(0, 38) + '\0';
  EXPECT_EQ(fault_of(header + body, false), "x: more arrays than a group may have members");
}

TEST_F(IcechunkVersion2, IdsAreNamedAsTheSpecificationDoes) {
  const Id12 first{{0x0b, 0x1c, 0xc8, 0xd6, 0x78, 0x75, 0x80, 0xf0, 0xe3, 0x3a, 0x65, 0x34}};
  EXPECT_EQ(name_of(first), "1CECHNKREP0F1RSTCMT0");
}

// Bytes changed behind the compression: every access is checked.
TEST_F(IcechunkVersion2, AnyBytesGiveAnErrorOrAnAnswer) {
  std::mt19937 random(1);
  const std::string files[] = {snapshot_file("x"), manifest_file("file:///x")};
  for (int kind = 0; kind < 2; ++kind) {
    const Buffer whole = unpack_icechunk_file(
        as_bytes(files[kind]), kind == 0 ? IcechunkFile::snapshot : IcechunkFile::manifest, "x");
    for (int i = 0; i < 4000; ++i) {
      std::string file = files[kind].substr(0, 38) + '\0' + std::string(text_of(whole));
      for (int k = 0; k <= i % 4; ++k)
        file[39 + random() % whole.size()] = static_cast<char>(random());
      if (i % 5 == 0) file.resize(39 + random() % whole.size());
      try {
        if (kind == 0) {
          const IcechunkSnapshot snapshot(as_bytes(file), "x");
          for (const IcechunkNode& node : snapshot.nodes())
            EXPECT_EQ(snapshot.find(node.path), &node);
          continue;
        }
        const IcechunkManifest manifest(as_bytes(file), "x");
        IcechunkNodeId node{};
        node.fill(std::byte{1});
        node[0] = std::byte{2};
        for (const auto& chunk : manifest.chunks_of(node)) {
          EXPECT_TRUE(manifest.find(node, chunk).has_value());
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace headrace::test
