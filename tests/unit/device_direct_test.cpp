// Reads to a device of a store that goes past the page cache (O_DIRECT): the disk writes into the
// memory that the device copies from.

#include <gtest/gtest.h>

#include <filesystem>

#include "conformance/temp_folder.h"
#include "support/portable.h"
#include "unit/watched_reads.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::Layout;

class DeviceDirect : public test::WatchedReads {
 protected:
  void SetUp() override {
    WatchedReads::SetUp();
    Config slabs = config();
    slabs.threads = 2;  // who share a chunk
    slabs.device_slab_nbytes = std::size_t{16} << 20;
    set_config(slabs);
  }

  const test::TempFolder folder_{std::filesystem::current_path()};
};

TEST_F(DeviceDirect, ReadsWhatTheHostReads) {
  SKIP_IF_PORTABLE("reads past the page cache");
  const CodecSpec little = codec::bytes();
  for (const auto& codecs : {std::vector{little},
                             std::vector{little, codec::crc32c()},
                             std::vector{little, codec::zstd(1)}}) {
    for (const Shape& shards : {Shape{}, Shape{4, 800'001}}) {
      // Inner chunks begin anywhere, and end so.
      const Layout layout{"", {8, 800'001}, {1, 800'001}, shards, codecs};
      const Array a = test::filled(open_store(folder_ / "s", StoreMode::overwrite), layout);
      const Store direct = open_store(folder_ / "s", StoreMode::read, {{"direct", "true"}});
      try {
        open_array(direct, "a").read({0, slice(0, 1)});
      } catch (const Error& error) {
        if (error.code() == ErrorCode::unsupported) GTEST_SKIP() << error.what();
        throw;
      }
      largest_read = 0;
      const Array there = open_array(direct, "a").to(Device::simt());
      EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read())) << codecs.back().name;
      if (codecs.back().name == "zstd") continue;
      EXPECT_GT(largest_read, 1'100'000u)
          << "through a window of 1 MiB, to be copied once more: " << codecs.back().name;
    }
  }
}

}  // namespace
}  // namespace headrace
