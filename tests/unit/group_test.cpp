#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "headrace/headrace.h"
#include "store/store.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

void put(const Store& store, const std::string& key, std::string_view text) {
  store.driver().set(key, bytes_of(text));
}

template <typename F>
Error error_of(F&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::io, "");
}

std::string array_v3(const std::string& more = "") {
  return R"({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 7, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}])" +
         more + "}";
}
const char* const kGroupV3 = R"({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}})";
const char* const kArrayV2 = R"({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4",
    "compressor": null, "fill_value": 7, "order": "C", "filters": null})";
const char* const kGroupV2 = R"({"zarr_format": 2})";

std::string names(const Group& group) {
  std::string result;
  for (const Node& node : group.members()) result += node.name + (node.is_group ? "/ " : " ");
  return result;
}

Store v3_store() {
  Store store = memory_store();
  put(store, "zarr.json", kGroupV3);
  put(store, "b/zarr.json", array_v3());
  put(store, "a/zarr.json", kGroupV3);
  put(store, "a/x/zarr.json", array_v3());
  put(store, "a/x/c/0", "12345678");
  put(store, "notes/readme.txt", "hello");
  put(store, "loose.txt", "hello");
  return store;
}

Store v2_store() {
  Store store = memory_store();
  put(store, ".zgroup", kGroupV2);
  put(store, ".zattrs", R"({"a": 1})");
  put(store, "b/.zarray", kArrayV2);
  put(store, "b/.zattrs", R"({"units": "K"})");
  put(store, "a/.zgroup", kGroupV2);
  put(store, "a/x/.zarray", kArrayV2);
  put(store, ".nczgroup", "{}");
  put(store, "b/.nczarray", "{}");
  put(store, "_nczarr_default/stuff", "{}");
  return store;
}

TEST(Group, ListsNodesAndPassesOverTheRest) {
  for (const Store& store : {v3_store(), v2_store()}) {
    const Group root = open_group(store);
    EXPECT_EQ(names(root), "a/ b ");
    EXPECT_EQ(names(root.group("a")), "x ");
    EXPECT_FALSE(root.consolidated());
    EXPECT_EQ(Json::parse(root.attributes_json()), Json::parse(R"({"a": 1})"));
    EXPECT_EQ(root.is_group("a"), true);
    EXPECT_EQ(root.is_group("a/x"), false);
    EXPECT_FALSE(root.is_group("nothing"));
    EXPECT_TRUE(root.contains("/a//x/"));
    EXPECT_FALSE(root.contains("notes"));
    EXPECT_EQ(root.array("a/x").path(), "a/x");
    EXPECT_EQ(root.group("a").array("x").shape(), Shape{4});
  }
}

std::string left_out_of(const Group& group) {
  std::vector<NodeLeftOut> left_out;
  std::string result;
  for (const Node& node : group.members(left_out)) result += node.name + ' ';
  for (const NodeLeftOut& node : left_out) result += '|' + node.name + ": " + node.why;
  return result;
}

TEST(Group, TellsWhatIsNoMember) {
  EXPECT_EQ(left_out_of(open_group(v3_store())), "a b ");
  EXPECT_EQ(left_out_of(open_group(v2_store())), "a b ");
  const Store store = v3_store();
  put(store, "old/.zarray", kArrayV2);
  put(store, "notes/more/x/zarr.json", array_v3());
  put(store, ".rechunk/between-0/zarr.json", array_v3());
  EXPECT_EQ(left_out_of(open_group(store)),
            "a b |notes: a folder without a group's document, which has notes/more/x"
            "|old: an array of Zarr 2 in a group of Zarr 3");
}

TEST(Group, TellsOfChunksWithoutAnArray) {
  for (const char* chunk : {"c/0/1", "c.0.1", "0.1", "0/1", "17"}) {
    const Store store = v3_store();
    put(store, std::string("gone/") + chunk, "chunk");
    put(store, "images/1st.png", "");
    put(store, "images/c", "");
    EXPECT_EQ(left_out_of(open_group(store)),
              "a b |gone: a folder of what look like chunks, without an array's document")
        << chunk;
  }
}

TEST(Group, LooksForNodesInSoManyFoldersOnly) {
  const Store store = v3_store();
  for (int i = 0; i < 1100; ++i) put(store, "notes/n" + std::to_string(i) + "/readme.txt", "");
  EXPECT_EQ(left_out_of(open_group(store)),
            "a b |notes: a folder without a group's document, not looked through: there are too "
            "many");
}

TEST(Group, AsStoredPassesOverConsolidatedMetadata) {
  for (const Store& store : {v3_store(), v2_store()}) {
    const bool third = store.exists("zarr.json");
    consolidate_metadata(store);
    put(store, third ? "a/y/zarr.json" : "a/y/.zarray", third ? array_v3() : kArrayV2);
    store.erase(third ? "b/zarr.json" : "b/.zarray");
    const Group consolidated = open_group(store);
    EXPECT_EQ(names(consolidated), "a/ b ");
    EXPECT_EQ(left_out_of(consolidated), "a b ");
    const Group group = consolidated.as_stored();
    EXPECT_FALSE(group.consolidated());
    EXPECT_EQ(names(group), "a/ ");
    EXPECT_EQ(names(group.group("a")), "x y ");
    EXPECT_EQ(left_out_of(group),
              "a |b: named by consolidated metadata alone: there is no such node");
    EXPECT_EQ(names(group.as_stored()), "a/ ");
  }
}

TEST(Group, NamesWhatItLacks) {
  const Group root = open_group(v3_store());
  const Error missing = error_of([&] { root.array("a/y"); });
  EXPECT_EQ(missing.code(), ErrorCode::not_found);
  EXPECT_NE(std::string(missing.what()).find("'a/y'"), std::string::npos);
  EXPECT_NE(std::string(error_of([&] { root.array("a"); }).what()).find("it is a group"),
            std::string::npos);
  EXPECT_NE(std::string(error_of([&] { root.group("b"); }).what()).find("it is an array"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { root.array(""); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { root.array("../b"); }).code(), ErrorCode::invalid_argument);
}

TEST(Open, SaysWhereAndWhatIsThere) {
  const Store store = v3_store();
  const Error missing = error_of([&] { open_array(store, "nope"); });
  EXPECT_EQ(missing.code(), ErrorCode::not_found);
  EXPECT_NE(std::string(missing.what()).find(store.url()), std::string::npos);
  EXPECT_NE(std::string(missing.what()).find("'nope'"), std::string::npos);
  EXPECT_EQ(error_of([&] { open_array(store); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { open_group(store, "b"); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { open_array(store, "b", {.zarr_format = 2}); }).code(),
            ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { open_array(store, "b", {.zarr_format = 4}); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(node_is_group(store), true);
  EXPECT_EQ(node_is_group(store, "a/x"), false);
  EXPECT_FALSE(node_is_group(store, "notes"));
}

TEST(Open, TakesV3WhereBothFormatsAre) {
  const Store store = memory_store();
  put(store, ".zarray", kArrayV2);
  EXPECT_EQ(open_array(store).zarr_format(), 2);
  put(store, "zarr.json", array_v3());
  EXPECT_EQ(open_array(store).zarr_format(), 3);
  EXPECT_EQ(open_array(store, "", {.zarr_format = 2}).zarr_format(), 2);
}

TEST(Open, NamesTheDocumentThatIsCorrupt) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"zarr_format": 3, "node_type": "tree"})", "\xff\xfe"}) {
    const Store store = memory_store();
    put(store, "a/zarr.json", text);
    const Error error = error_of([&] { open_array(store, "a"); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << text;
    EXPECT_NE(std::string(error.what()).find("a/zarr.json"), std::string::npos) << error.what();
  }
  const Store store = v2_store();
  put(store, "b/.zattrs", "[1]");
  const Error error = error_of([&] { open_array(store, "b"); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_NE(std::string(error.what()).find("b/.zattrs"), std::string::npos) << error.what();
}

TEST(Group, ListsAMalformedMemberAndRaisesWhenItIsOpened) {
  const Store store = v3_store();
  put(store, "b/zarr.json", "{");
  const Group root = open_group(store);
  EXPECT_EQ(names(root), "a/ b ");
  EXPECT_EQ(error_of([&] { root.array("b"); }).code(), ErrorCode::corrupt);
  EXPECT_EQ(error_of([&] { consolidate_metadata(store); }).code(), ErrorCode::corrupt);
}

TEST(Open, ReadOnlyHandlesRefuseWrites) {
  const Store store = v3_store();
  const Group root = open_group(store, "", {.read_only = true});
  EXPECT_TRUE(root.read_only());
  EXPECT_EQ(error_of([&] { root.set_attributes_json("{}"); }).code(), ErrorCode::permission_denied);
  EXPECT_TRUE(root.array("b").read_only());
  EXPECT_EQ(error_of([&] { root.array("b").resize({2}); }).code(), ErrorCode::permission_denied);
}

TEST(Open, GroupsHandTheirOptionsDown) {
  const Store store = v3_store();
  const Group root =
      open_group(store, "", {.device = Device::cuda(1), .implementations = {{"zstd", "libzstd"}}});
  EXPECT_EQ(root.array("b").device(), Device::cuda(1));
  EXPECT_EQ(root.group("a").array("x", {.device = Device::cuda(0)}).device(), Device::cuda(0));
  EXPECT_EQ(error_of([&] {
              open_array(store, "b", {.implementations = {{"zstd", "none"}}});
            }).code(),
            ErrorCode::invalid_argument);
}

TEST(Group, AttributesAreStoredAndKeepTheRest) {
  for (const Store& store : {v3_store(), v2_store()}) {
    Group root = open_group(store);
    consolidate_metadata(store);
    root.set_attributes_json(R"({"b": [1, 2]})");
    EXPECT_EQ(Json::parse(root.attributes_json()), Json::parse(R"({"b": [1, 2]})"));
    const Group again = open_group(store);
    EXPECT_EQ(Json::parse(again.attributes_json()), Json::parse(R"({"b": [1, 2]})"));
    EXPECT_TRUE(again.consolidated());
    EXPECT_EQ(error_of([&] { root.set_attributes_json("[1]"); }).code(),
              ErrorCode::invalid_argument);
  }
}

TEST(Consolidated, IsPassedOverWhenNotWanted) {
  for (const Store& store : {v3_store(), v2_store()}) {
    consolidate_metadata(store);
    store.driver().erase("a/x/zarr.json");
    store.driver().erase("a/x/.zarray");
    const Group root = open_group(store, "", {.use_consolidated = false});
    EXPECT_FALSE(root.consolidated());
    EXPECT_FALSE(root.group("a").consolidated());
    EXPECT_FALSE(root.contains("a/x"));
    EXPECT_TRUE(open_group(store).contains("a/x"));
  }
}

TEST(Consolidated, ReadsWithoutTheMembersDocuments) {
  for (const Store& store : {v3_store(), v2_store()}) {
    consolidate_metadata(store);
    for (const auto* key : {"a/zarr.json",
                            "a/x/zarr.json",
                            "b/zarr.json",
                            "a/.zgroup",
                            "a/x/.zarray",
                            "b/.zarray",
                            "b/.zattrs"}) {
      store.driver().erase(key);
    }
    const Group root = open_group(store);
    EXPECT_TRUE(root.consolidated());
    EXPECT_EQ(names(root), "a/ b ");
    const Group a = root.group("a");
    EXPECT_TRUE(a.consolidated());
    EXPECT_EQ(names(a), "x ");
    EXPECT_EQ(a.array("x").shape(), Shape{4});
    EXPECT_EQ(root.array("a/x").path(), "a/x");
    if (root.zarr_format() == 2) {
      EXPECT_EQ(Json::parse(root.array("b").attributes_json()), Json::parse(R"({"units": "K"})"));
    }
  }
}

TEST(Consolidated, StillFindsWhatWasMadeAfterwards) {
  const Store store = v3_store();
  consolidate_metadata(store);
  const Group root = open_group(store);
  put(store, "late/zarr.json", array_v3());
  EXPECT_EQ(names(root), "a/ b ");
  EXPECT_EQ(root.array("late").shape(), Shape{4});
}

TEST(Consolidated, IsWrittenAsZarrPythonDoes) {
  const Store store = v3_store();
  consolidate_metadata(store, "/");
  consolidate_metadata(store);  // a second time: nothing nests
  const Json root = Json::parse(open_group(store).metadata_json());
  const Json& consolidated = root.at("consolidated_metadata");
  EXPECT_EQ(consolidated.at("kind"), "inline");
  EXPECT_EQ(consolidated.at("must_understand"), false);
  const Json& nodes = consolidated.at("metadata");
  EXPECT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes.at("a/x").at("fill_value"), 7);
  EXPECT_EQ(nodes.at("a").at("consolidated_metadata").at("metadata"), Json::object());

  const Store old = v2_store();
  consolidate_metadata(old);
  Buffer text;
  ASSERT_TRUE(old.driver().get(".zmetadata", text));
  const Json document = Json::parse(text_of(text));
  EXPECT_EQ(document.at("zarr_consolidated_format"), 1);
  const Json& keys = document.at("metadata");
  EXPECT_EQ(keys.at(".zattrs"), Json::parse(R"({"a": 1})"));
  EXPECT_TRUE(keys.contains("a/x/.zarray"));
  EXPECT_EQ(keys.at("b/.zattrs").at("units"), "K");
}

TEST(Consolidated, RefusesHostileTables) {
  for (const std::string name : {"../x", "a/../../x"}) {
    const Store store = memory_store();
    put(store,
        "zarr.json",
        R"({"zarr_format": 3, "node_type": "group", "consolidated_metadata":
           {"kind": "inline", "must_understand": false, "metadata": {")" +
            name + "\": " + array_v3() + "}}}");
    EXPECT_EQ(error_of([&] { open_group(store); }).code(), ErrorCode::corrupt) << name;
  }
}

TEST(Consolidated, GoAlongWithWhatIsRemoved) {
  const Store store = v3_store();
  consolidate_metadata(store);
  const Group group = open_group(store);
  group.remove("a/x");
  EXPECT_EQ(names(open_group(store).group("a")), "");
  group.remove("a");
  EXPECT_EQ(names(open_group(store)), "b ");
  EXPECT_TRUE(open_group(store).consolidated());
  EXPECT_FALSE(store.exists("a/zarr.json"));
  EXPECT_EQ(error_of([&] { group.remove("none"); }).code(), ErrorCode::not_found);
  OpenOptions options;
  options.read_only = true;
  EXPECT_EQ(error_of([&] { open_group(store, "", options).remove("b"); }).code(),
            ErrorCode::permission_denied);
  EXPECT_EQ(names(open_group(store)), "b ");
}

TEST(Consolidated, NeedsAGroup) {
  const Store store = v3_store();
  EXPECT_EQ(error_of([&] { consolidate_metadata(store, "b"); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { consolidate_metadata(store, "none"); }).code(), ErrorCode::not_found);
}

}  // namespace
}  // namespace headrace
