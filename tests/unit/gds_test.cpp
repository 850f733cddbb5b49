// Reads to devices by GPUDirect Storage, with the cuFile of tests/fake: what goes that way and what
// does not, and that every error names its chunk.

#include "engine/device/gds.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "conformance/config_guard.h"
#include "conformance/random_selection.h"
#include "conformance/temp_folder.h"
#include "engine/device/slab.h"
#include "fake/cufile.h"
#include "headrace/trace.h"
#include "simt/host_queue.h"
#include "store/file.h"
#include "support/portable.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::error_of;
using test::filled;
using test::Layout;
using testing::HasSubstr;

std::string library() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libfake_cufile.so";
}

// Forgets what it was told and what it counted.
void reset(FakeCufile& cufile) {
  cufile.files = cufile.refused = cufile.reads = cufile.nbytes = 0;
  cufile.refuse = 0;
  cufile.most_nbytes = FakeCufile().most_nbytes.load();
  cufile.failing_read = cufile.failure = 0;
}

class GdsRead : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    SKIP_IF_PORTABLE("reads past the page cache");
    ::setenv("FAKE_CUFILE", "nvidia-fs", 1);
    ::setenv("HEADRACE_SIMT_CUFILE", library().c_str(), 1);
    ::setenv("HEADRACE_CUFILE", library().c_str(), 1);
    reset(fake());
    set("on");
  }
  void TearDown() override {
    EXPECT_EQ(fake().open, 0) << "files that stay registered";
    reset(fake());
    for (const char* name : {"FAKE_CUFILE", "HEADRACE_SIMT_CUFILE", "HEADRACE_CUFILE"})
      ::unsetenv(name);
    DeviceTest::TearDown();
  }

  static FakeCufile& fake() {
    static void* const opened = ::dlopen(library().c_str(), RTLD_NOW);
    if (!opened) throw std::runtime_error(::dlerror());
    return *static_cast<FakeCufile*>(::dlsym(opened, "fake_cufile"));
  }
  // A GPU takes part when no test of this process has looked for its cuFile before.
  static std::vector<Device> devices() {
    std::vector<Device> found = test::devices();
    std::erase_if(found,
                  [](Device d) { return backend(d.type).direct_files().library != library(); });
    return found;
  }
  static void set(const char* gds, std::size_t slab_nbytes = std::size_t{1} << 20) {
    Config changed = config();
    changed.gds = gds;
    changed.device_slab_nbytes = slab_nbytes;
    set_config(changed);
  }
  Store store() { return open_store(folder_ / "s", StoreMode::append); }
  std::filesystem::path object(const char* key) const { return folder_ / "s/a/" + key; }

  const test::TempFolder folder_;
};

const CodecSpec little = codec::bytes();
const CodecSpec shuffle{"numcodecs.shuffle", R"({"elementsize": 4})"};

Layout layout_of(std::vector<CodecSpec> codecs, Shape shards = {}) {
  return {"", {60, 60}, {8, 8}, std::move(shards), std::move(codecs)};
}

TEST_F(GdsRead, ReadsWhatTheHostReads) {
  const std::vector<CodecSpec> chains[] = {{little},
                                           {codec::bytes("big")},
                                           {codec::transpose({1, 0}), little},
                                           {little, codec::crc32c()},
                                           {little, shuffle},
                                           {little, shuffle, codec::crc32c()}};
  std::mt19937 random(7);
  for (const auto& codecs : chains) {
    for (const Shape& shards : {Shape{}, Shape{16, 32}}) {
      const Array a =
          filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of(codecs, shards));
      for (const Device device : devices()) {
        for (const std::size_t slab : {std::size_t{512}, std::size_t{1} << 20}) {
          set("on", slab);
          reset(fake());
          EXPECT_EQ(bytes_of(a.to(device).read()), bytes_of(a.read()));
          EXPECT_GT(fake().nbytes, 2 * 60 * 60);
          for (int i = 0; i < 10; ++i) {
            const Selection selection = test::random_selection(a.shape(), random);
            EXPECT_EQ(bytes_of(a.to(device).read(selection)), bytes_of(a.read(selection)));
          }
        }
      }
    }
  }
}

TEST_F(GdsRead, ReadsNeighboursOfAShardTogether) {
  const Array a = filled(store(), layout_of({little}, {64, 64}));
  for (const Device device : devices()) {
    reset(fake());
    EXPECT_EQ(bytes_of(a.to(device).read()), bytes_of(a.read()));
    EXPECT_EQ(fake().files, 1);
    EXPECT_EQ(fake().reads, 1);
  }
}

TEST_F(GdsRead, OpensAShardOnce) {
  const Array a = filled(store(), {"", {1024, 1024}, {128, 128}, {1024, 1024}, {little}});
  EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
  EXPECT_EQ(fake().files, 1);
  EXPECT_GE(fake().reads, 3) << "runs of 1 MiB";
}

TEST_F(GdsRead, ReadsALargeChunkByThreads) {
  test::set_threads(2);
  const Array a = filled(store(), {"", {2048, 1025}, {2048, 1025}, {}, {little}});
  EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
  EXPECT_EQ(fake().files, 1);
  EXPECT_EQ(fake().reads, 3) << "8 MiB and a bit, 4 MiB each";
}

TEST_F(GdsRead, IsTakenWhereItIsNative) {
  const Array a = filled(store(), layout_of({little}));
  set("auto");
  for (const Device device : devices()) {
    reset(fake());
    EXPECT_EQ(bytes_of(a.to(device).read()), bytes_of(a.read()));
    EXPECT_EQ(fake().files, 5 * 8) << "chunks that are stored";
    EXPECT_EQ(fake().nbytes, 5 * 8 * 8 * 8 * 4);
  }
  set("off");
  reset(fake());
  EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
  EXPECT_EQ(fake().files, 0);
}

TEST_F(GdsRead, DecodesOnTheDeviceWhatTheHostWouldDecodeSooner) {
  Config measured = config();
  measured.device_min_decode_nbytes.reset();
  set_config(measured);
  const Array a = filled(store(), layout_of({little, shuffle}));
  EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
  EXPECT_GT(fake().reads, 0);
}

// Why a read does not go that way: an error when it must, and none when it need not.
void expect_refused(const Array& array, const std::string& why) {
  const std::vector<std::byte> expected = bytes_of(array.read());
  for (const char* gds : {"on", "auto"}) {
    Config changed = config();
    changed.gds = gds;
    set_config(changed);
    const auto read = [&] { return bytes_of(array.to(Device::simt()).read()); };
    if (changed.gds == "on") {
      const std::string found = error_of(read, ErrorCode::unsupported);
      EXPECT_THAT(found, testing::AllOf(HasSubstr("[read] a"), HasSubstr(why)));
    } else {
      EXPECT_EQ(read(), expected) << why;
    }
  }
}

TEST_F(GdsRead, LeavesToTheHostWhatItHasToLookAt) {
  for (const auto& compressor : {codec::zstd(1), codec::gzip(), codec::blosc(), codec::lz4()}) {
    const Array a = filled(open_store(folder_ / "s", StoreMode::overwrite),
                           layout_of({little, compressor, codec::crc32c()}));
    expect_refused(a, "the host reads its headers");
  }
  Config host = config();
  host.device_min_decode_nbytes.reset();
  set_config(host);
  expect_refused(filled(open_store(folder_ / "s", StoreMode::overwrite),
                        layout_of({little, {"numcodecs.jenkins_lookup3", "{}"}})),
                 "the host decodes the chunks");
  EXPECT_EQ(fake().files, 0);
}

TEST_F(GdsRead, LeavesPartsOfUncompressedChunksToTheHost) {
  const Array a = filled(store(), {"", {64, 64}, {64, 64}, {}, {little}});
  const Selection row{3};
  EXPECT_EQ(bytes_of(a.to(Device::simt()).read(row)), bytes_of(a.read(row)));
  EXPECT_EQ(fake().files, 0);
}

TEST_F(GdsRead, IsNotTakenWhereItIsNotNative) {
  expect_refused(filled(memory_store(), layout_of({little})), "the store has no files");
  const Array a = filled(store(), layout_of({little}));
  fake().refuse = 5008;
  expect_refused(a, "s/a/c/");
  expect_refused(a, "cuFileHandleRegister failed with error 5008");
  ::unsetenv("HEADRACE_SIMT_CUFILE");
  expect_refused(a, "cuFile is for CUDA devices");
  EXPECT_EQ(fake().files, 0);
  EXPECT_EQ(fake().reads, 0);
}

TEST_F(GdsRead, AsksOnceWhetherAFileSystemIsNative) {
  test::set_threads(1);
  fake().refuse = 5008;
  for (const Shape& shards : {Shape{}, Shape{16, 16}}) {
    const Array a =
        filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of({little}, shards));
    fake().refused = 0;
    set("auto", 512);
    EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
    EXPECT_EQ(fake().refused, 1);
  }
}

class BatchingFileStore final : public FileStore {
 public:
  using FileStore::FileStore;
  std::size_t batch_size() const override { return 7; }
};

TEST_F(GdsRead, TakesSmallObjectsOutOfBatchesOnlyWhenItMust) {
  test::set_threads(2);  // there are batches when there are more objects than threads
  store();
  FileOptions options;
  options.read_only = false;
  const Array a = filled(Store(std::make_shared<BatchingFileStore>(folder_ / "s", options)),
                         layout_of({little}));
  for (const auto& [gds, files] : {std::pair{"auto", 0}, {"on", 40}}) {
    set(gds);
    EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
    EXPECT_EQ(fake().files, files);
  }
}

TEST_F(GdsRead, GoesOnAfterShortReads) {
  for (const Shape& shards : {Shape{}, Shape{64, 64}}) {
    const Array a =
        filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of({little}, shards));
    fake().most_nbytes = 100;
    EXPECT_EQ(bytes_of(a.to(Device::simt()).read()), bytes_of(a.read()));
    EXPECT_GE(fake().reads, 5 * 8 * 3);
  }
}

TEST_F(GdsRead, NamesTheChunkThatCannotBeRead) {
  const std::pair<long, const char*> failures[] = {{-5011, "cuFileRead failed with error 5011"},
                                                   {-1, "Input/output error"},
                                                   {0, "became shorter while it was read"}};
  for (const char* gds : {"on", "auto"}) {
    for (const Shape& shards : {Shape{}, Shape{16, 16}}) {
      const Array a =
          filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of({little}, shards));
      const Array there = a.to(Device::simt());
      for (const std::size_t slab : {std::size_t{512}, std::size_t{1} << 20}) {
        set(gds, slab);
        for (const auto& [failure, words] : failures) {
          fake().failure = failure;
          fake().failing_read = 3;
          const std::string found = error_of([&] { there.read(); }, ErrorCode::io);
          EXPECT_THAT(found, testing::AllOf(HasSubstr("[read] a chunk c/"), HasSubstr(words)));
          EXPECT_EQ(found.find("inner chunk") != std::string::npos, !shards.empty()) << found;
          EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read()));
        }
      }
    }
  }
}

TEST_F(GdsRead, FindsWhatIsCorrupt) {
  for (const auto& codecs :
       {std::vector{little}, std::vector{little, codec::crc32c()}, std::vector{little, shuffle}}) {
    const Array a = filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of(codecs));
    const auto nbytes = std::filesystem::file_size(object("c/1/2"));
    for (const auto other : {nbytes - 1, nbytes + 1, std::uintmax_t{0}, std::uintmax_t{3}}) {
      std::filesystem::resize_file(object("c/1/2"), other);
      const std::string found = error_of([&] { a.to(Device::simt()).read(); }, ErrorCode::corrupt);
      EXPECT_THAT(found, HasSubstr("[read] a chunk c/1/2: codec")) << other;
    }
  }
  const Array a =
      filled(open_store(folder_ / "s", StoreMode::overwrite), layout_of({little, codec::crc32c()}));
  std::fstream(object("c/1/2"), std::ios::in | std::ios::out | std::ios::binary).put('!');
  const std::string found = error_of([&] { a.to(Device::simt()).read(); }, ErrorCode::corrupt);
  EXPECT_THAT(found, HasSubstr("[read] a chunk c/1/2: codec crc32c: the checksum is wrong"));
}

TEST_F(GdsRead, RefusesRangesPastTheEnd) {
  store().driver().set("x", std::vector<std::byte>(100));
  const GdsFile file(simt_backend(), Device::simt(), *store().driver().open("x"));
  std::vector<std::uint8_t> target(101);
  file.read(0, target.data(), 100);
  for (const auto& [offset, nbytes] :
       {std::pair<std::uint64_t, std::size_t>{0, 101}, {100, 1}, {~std::uint64_t{0}, 2}}) {
    EXPECT_THAT(error_of([&, at = offset, size = nbytes] { file.read(at, target.data(), size); },
                         ErrorCode::corrupt),
                HasSubstr("/x"));
  }
}

TEST_F(GdsRead, ReadsTheObjectThatWasOpened) {
  store().driver().set("x", std::vector<std::byte>(100, std::byte{1}));
  const auto reader = store().driver().open("x");
  store().driver().set("x", std::vector<std::byte>(100, std::byte{2}));
  std::uint8_t target[100];
  GdsFile(simt_backend(), Device::simt(), *reader).read(0, target, sizeof target);
  EXPECT_THAT(target, testing::Each(1));
}

// Tells when work that others were given before is known to be done.
class WatchedQueue final : public Queue {
 public:
  int allocations = 0, waited_for = 0;

  void* native() const override { return nullptr; }
  unsigned processors() const override { return 1; }
  unsigned tuned_for() const override { return queue_.tuned_for(); }
  void tune_for(unsigned processors) override { queue_.tune_for(processors); }
  std::size_t shared_nbytes() const override { return queue_.shared_nbytes(); }
  void* allocate(std::size_t nbytes) override {
    ++allocations;
    return queue_.allocate(nbytes);
  }
  void free(void* memory) noexcept override { queue_.free(memory); }
  void upload(void* to, const void* from, std::size_t n) override { queue_.upload(to, from, n); }
  void upload_made(void* to, std::size_t n, FunctionRef<void(void*)> make) override {
    queue_.upload_made(to, n, make);
  }
  void upload_pinned(void* to, const void* from, std::size_t n) override {
    queue_.upload_pinned(to, from, n);
  }
  void download(void* to, const void* from, std::size_t n) override {
    queue_.download(to, from, n);
  }
  void copy(void* to, const void* from, std::size_t n) override { queue_.copy(to, from, n); }
  void fill(void* to, std::uint8_t value, std::size_t n) override { queue_.fill(to, value, n); }
  void synchronize() override {}
  void wait_for(Queue&) override {}
  void wait_for(Mark&) override {}
  void notify(std::function<void()> done) override { queue_.notify(std::move(done)); }
  std::unique_ptr<Mark> mark() override { return std::make_unique<WatchedMark>(*this); }

 private:
  struct WatchedMark final : Mark {
    explicit WatchedMark(WatchedQueue& q) : queue(q), before(q.allocations) {}
    void wait() override { queue.waited_for = before; }
    bool is_reached() const override { return queue.waited_for >= before; }
    WatchedQueue& queue;
    const int before;
  };
  HostQueue queue_;
};

// The queue may still have work for whoever had the memory before.
TEST_F(GdsRead, WritesToMemoryThatTheQueueIsDoneWith) {
  WatchedQueue queue;
  PinnedBlocks pinned(simt_backend(), 0);
  SlabMemory memory(pinned, queue, 1 << 20);
  for (int i = 1; i < 4; ++i) {
    const SlabMemory::Piece piece = memory.reserve_on_device(1000);
    EXPECT_EQ(piece.host, nullptr);
    EXPECT_EQ(queue.allocations, i);
    EXPECT_EQ(queue.waited_for, i);
    memory.filled(piece);
  }
  memory.finish();
}

TEST_F(GdsRead, IsSeenInATrace) {
  const Array a = filled(store(), layout_of({little}));
  Trace trace(folder_ / "trace.json");
  a.to(Device::simt()).read();
  trace.finish();
  std::ifstream file(folder_ / "trace.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, HasSubstr("\"name\": \"gds\""));
  EXPECT_THAT(text, testing::Not(HasSubstr("\"name\": \"fetch\"")));
}

}  // namespace
}  // namespace headrace
