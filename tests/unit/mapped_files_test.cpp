// Files in memory that a device copies from where they lie: what is mapped, what is kept, and what
// is let go of, by the device that runs kernels on the CPU. It locks nothing, and copies by a call
// that says where a load would end the process.

#include "device/mapped_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "conformance/config_guard.h"
#include "conformance/temp_folder.h"
#include "support/fork.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using test::bytes_of;
using test::error_of;
using test::Layout;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Longer than a file has to lie as it is before it is mapped.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(80)); }

bool has_memory_files() {
  const int fd = ::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool found = fd >= 0 && page_nbytes_in_memory(fd) > 0;
  if (fd >= 0) ::close(fd);
  return found;
}

class MappedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_memory_files()) GTEST_SKIP() << "no files are known to be in memory";
  }

  std::string write(const std::string& name, std::size_t nbytes, char value) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << std::string(nbytes, value);
    return path;
  }
  struct Opened {
    explicit Opened(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~Opened() { ::close(fd); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    int fd;
  };
  // All of a file, as the device gets it; nothing where it is not mapped.
  std::string read(MappedFiles& files, const std::string& path) {
    const Opened file(path);
    const std::size_t size = std::filesystem::file_size(path);
    return read(files, file.fd, size, 0, size);
  }
  std::string read(
      MappedFiles& files, int fd, std::size_t size, std::size_t offset, std::size_t nbytes) {
    const auto parts = files.find(simt_backend(), 0, fd, size, offset, nbytes);
    std::string target(parts.empty() ? 0 : nbytes, '?');
    const auto queue = simt_backend().make_queue(0);
    std::size_t at = 0;
    for (const auto& part : parts) {
      part.window->copy(*queue, target.data() + at, part.at, part.nbytes);
      at += part.nbytes;
    }
    queue->synchronize();
    return target;
  }

  const test::TempFolder folder_{test::fast_directory_path()};
};

TEST_F(MappedFilesTest, KeepsWhatWasMapped) {
  MappedFiles files(64 * kMiB);
  const std::string path = write("x", kMiB, 'a');
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB, 'a'));
  EXPECT_EQ(read(files, path), std::string(kMiB, 'a'));
  EXPECT_EQ(files.stats().mapped, 1u);
  EXPECT_EQ(files.stats().reused, 1u);
  EXPECT_EQ(files.stats().windows, 1u);
  EXPECT_EQ(files.stats().nbytes, kMiB);
  files.limit(0);
  EXPECT_EQ(files.stats().nbytes, 0u);
  EXPECT_EQ(files.stats().dropped, 1u);
  EXPECT_EQ(read(files, path), "");
}

TEST_F(MappedFilesTest, MapsOfLargeFilesWhatIsAskedFor) {
  MappedFiles files(std::size_t{1} << 30);
  const std::string path = folder_ / "x";
  std::string bytes(3 * MappedFiles::kWindow + 5000, 'x');
  std::mt19937 random(3);
  for (std::size_t i = 0; i < bytes.size(); i += 97) bytes[i] = static_cast<char>(random());
  std::ofstream(path, std::ios::binary) << bytes;
  settle();
  const Opened file(path);
  const std::size_t at = MappedFiles::kWindow - 300'000;
  EXPECT_EQ(read(files, file.fd, bytes.size(), at, kMiB), bytes.substr(at, kMiB));
  EXPECT_EQ(files.stats().windows, 2u);
  EXPECT_EQ(read(files, file.fd, bytes.size(), 0, bytes.size()), "")
      << "the last 5,000 bytes are no copy of their own";
  const std::size_t last = bytes.size() - kMiB;
  EXPECT_EQ(read(files, file.fd, bytes.size(), last - 5000, kMiB), bytes.substr(last - 5000, kMiB));
}

TEST_F(MappedFilesTest, LeavesToOthersWhatIsNotWorthIt) {
  MappedFiles files(64 * kMiB);
  const std::string small = write("small", MappedFiles::kLeast - 1, 'a');
  const std::string large = write("large", 65 * kMiB, 'a');
  const std::string fresh = write("fresh", kMiB, 'a');
  EXPECT_EQ(read(files, fresh), "") << "it may change within a tick of the clock";
  settle();
  EXPECT_EQ(read(files, small), "");
  const Opened file(fresh);
  EXPECT_EQ(read(files, file.fd, kMiB, kMiB / 2, kMiB), "") << "past its end";
  EXPECT_EQ(read(files, file.fd, kMiB + 1, 0, kMiB), "") << "not the size that was found";
  EXPECT_EQ(read(files, file.fd, kMiB, ~std::size_t{0} - 5, kMiB), "");
  EXPECT_EQ(read(files, -1, kMiB, 0, kMiB), "");
  EXPECT_EQ(files.stats().mapped, 0u);
  const test::TempFolder on_disk(std::filesystem::current_path());
  const std::string path = on_disk / "x";
  std::ofstream(path, std::ios::binary) << std::string(kMiB, 'a');
  settle();
  const Opened disk(path);
  if (page_nbytes_in_memory(disk.fd) > 0) return;
  EXPECT_EQ(read(files, path), "") << "on a disk";
  EXPECT_EQ(files.stats().mapped, 0u);
}

TEST_F(MappedFilesTest, SeesThatAFileIsAnother) {
  MappedFiles files(64 * kMiB);
  const std::string path = write("x", kMiB, 'a');
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB, 'a'));
  // Written over in its place: the pages are the same.
  write("x", kMiB, 'b');
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB, 'b'));
  EXPECT_EQ(files.stats().dropped, 1u);
  // Grown and cut short.
  std::filesystem::resize_file(path, 2 * kMiB);
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB, 'b') + std::string(kMiB, '\0'));
  std::filesystem::resize_file(path, kMiB / 2);
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB / 2, 'b'));
  EXPECT_EQ(files.stats().dropped, 3u);
  EXPECT_EQ(files.stats().windows, 1u);
  // Replaced: the old one is let go of when it is its turn to be looked at.
  std::filesystem::rename(write("y", kMiB, 'c'), path);
  settle();
  EXPECT_EQ(read(files, path), std::string(kMiB, 'c'));
  EXPECT_EQ(files.stats().dropped, 4u);
  EXPECT_EQ(files.stats().nbytes, kMiB);
}

TEST_F(MappedFilesTest, LetsGoOfFilesThatAreGone) {
  MappedFiles files(64 * kMiB);
  for (int i = 0; i < 4; ++i) write("x" + std::to_string(i), kMiB, 'a');
  settle();
  for (int i = 0; i < 4; ++i) read(files, folder_ / ("x" + std::to_string(i)));
  for (int i = 0; i < 4; ++i) std::filesystem::remove(folder_ / ("x" + std::to_string(i)));
  for (int i = 0; i < 4; ++i) write("y" + std::to_string(i), kMiB, 'b');
  settle();
  for (int i = 0; i < 4; ++i) read(files, folder_ / ("y" + std::to_string(i)));
  EXPECT_EQ(files.stats().dropped, 4u);
  EXPECT_EQ(files.stats().windows, 4u);
}

TEST_F(MappedFilesTest, AFileThatIsCutShortIsAnErrorAndNoSignal) {
  MappedFiles files(64 * kMiB);
  const std::string path = write("x", kMiB, 'a');
  settle();
  const Opened file(path);
  const auto parts = files.find(simt_backend(), 0, file.fd, kMiB, 0, kMiB);
  ASSERT_EQ(parts.size(), 1u);
  std::filesystem::resize_file(path, 4096);
  const auto queue = simt_backend().make_queue(0);
  std::string target(kMiB, '?');
  EXPECT_THAT(
      error_of([&] { parts[0].window->copy(*queue, target.data(), 0, kMiB); }, ErrorCode::io),
      HasSubstr("became shorter"));
}

TEST_F(MappedFilesTest, OfWhatDoesNotFitAPartStays) {
  MappedFiles files(4 * kMiB);
  for (int i = 0; i < 8; ++i) write("x" + std::to_string(i), kMiB, 'a');
  settle();
  const auto round = [&] {
    for (int i = 0; i < 8; ++i) read(files, folder_ / ("x" + std::to_string(i)));
  };
  round();
  EXPECT_EQ(files.stats().mapped, 4u);
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(files.stats().mapped, 4u) << "round and round";
  EXPECT_EQ(files.stats().reused, 5u * 4);
  EXPECT_EQ(files.stats().evicted, 0u);
  // What is asked for again while the others are not takes their place.
  for (int i = 4; i < 8; ++i)
    for (int again = 0; again < 3; ++again) read(files, folder_ / ("x" + std::to_string(i)));
  EXPECT_EQ(files.stats().mapped, 8u);
  EXPECT_EQ(files.stats().evicted, 4u);
  EXPECT_EQ(files.stats().nbytes, 4 * kMiB);
  // A window that somebody holds stays for as long.
  const Opened file(folder_ / "x7");
  const auto held = files.find(simt_backend(), 0, file.fd, kMiB, 0, kMiB);
  ASSERT_EQ(held.size(), 1u);
  files.limit(0);
  std::string target(kMiB, '?');
  held[0].window->copy(*simt_backend().make_queue(0), target.data(), 0, kMiB);
  EXPECT_EQ(target, std::string(kMiB, 'a'));
}

// As a driver may that has no memory left, or none to lock.
class Refusing final : public test::SimtDevice {
 public:
  int asked = 0;
  std::shared_ptr<const MappedFile> map_file(int, int, std::uint64_t, std::size_t) const override {
    ++const_cast<Refusing*>(this)->asked;
    throw Error(ErrorCode::out_of_memory, "no more than this can be locked");
  }
};

TEST_F(MappedFilesTest, DoesNotAskAgainAtOnceWhatWasRefused) {
  MappedFiles files(64 * kMiB);
  const std::string path = write("x", kMiB, 'a');
  settle();
  const Opened file(path);
  Refusing refusing;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(files.find(refusing, 0, file.fd, kMiB, 0, kMiB).empty());
  EXPECT_EQ(refusing.asked, 1);
  EXPECT_EQ(files.stats().refused, 3u);
  EXPECT_EQ(files.stats().nbytes, 0u);
  EXPECT_EQ(files.stats().why_not, "no more than this can be locked");
}

TEST_F(MappedFilesTest, LetsGoOfHalfWhereMemoryIsShort) {
  MappedFiles files(64 * kMiB);
  for (int i = 0; i < 5; ++i) write("x" + std::to_string(i), kMiB, 'a');
  settle();
  for (int i = 0; i < 4; ++i) read(files, folder_ / ("x" + std::to_string(i)));
  const Opened file(folder_ / "x4");
  Refusing refusing;
  EXPECT_TRUE(files.find(refusing, 0, file.fd, kMiB, 0, kMiB).empty());
  EXPECT_EQ(files.stats().windows, 2u);
  EXPECT_EQ(files.stats().evicted, 2u);
  EXPECT_EQ(read(files, folder_ / "x3"), std::string(kMiB, 'a')) << "the last that was used";
  EXPECT_EQ(files.stats().mapped, 4u);
}

TEST_F(MappedFilesTest, ThreadsMapAndReplaceSideBySide) {
  MappedFiles files(3 * kMiB);
  for (int i = 0; i < 6; ++i) write("x" + std::to_string(i), kMiB, static_cast<char>('a' + i));
  settle();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int n = 0; n < 300; ++n) {
        const unsigned i = random() % 6;
        const std::string found = read(files, folder_ / ("x" + std::to_string(i)));
        if (!found.empty()) {
          EXPECT_EQ(found, std::string(kMiB, static_cast<char>('a' + i)));
        }
        if (random() % 64 == 0) files.limit(random() % 2 == 0 ? 0 : 3 * kMiB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  files.limit(0);
  EXPECT_EQ(files.stats().nbytes, 0u);
  EXPECT_EQ(files.stats().windows, 0u);
  EXPECT_GT(files.stats().mapped, 0u);
}

class MappedRead : public MappedFilesTest {
 protected:
  void SetUp() override {
    MappedFilesTest::SetUp();
    Config on = config();
    on.device_mapped = "on";
    on.device_mapped_nbytes = 64 * kMiB;
    on.device_min_decode_nbytes = 0;
    on.device_slab_nbytes = 2 * kMiB;
    set_config(on);
    before_ = MappedFiles::get().stats();
  }
  // Elements that compress a little, in chunks that are mapped.
  Array filled(const std::vector<CodecSpec>& codecs, Shape shards = {}) {
    const Layout layout{"", {8, 1 << 17}, {1, 1 << 17}, std::move(shards), codecs};
    const Array a = test::create(open_store(folder_ / "s", StoreMode::overwrite), layout);
    Tensor data = Tensor::empty(a.shape(), DType::float32);
    auto* values = static_cast<std::uint32_t*>(data.data());
    std::mt19937 random(5);
    for (std::size_t i = 0; i < data.nbytes() / 4; ++i)
      values[i] = 0x3f800000 + static_cast<std::uint32_t>(random() % (1 << 23));
    a.write({all, all}, data.view());
    settle();
    return a;
  }
  std::filesystem::path object(const char* key) const {
    return folder_ / ("s/a/" + std::string(key));
  }
  MappedFiles::Stats since() const {
    MappedFiles::Stats now = MappedFiles::get().stats();
    now.mapped -= before_.mapped;
    now.reused -= before_.reused;
    now.dropped -= before_.dropped;
    return now;
  }

  const test::ConfigGuard guard_;
  MappedFiles::Stats before_;
};

TEST_F(MappedRead, ReadsWhatTheHostReads) {
  const CodecSpec little = codec::bytes();
  const std::vector<CodecSpec> chains[] = {{little},
                                           {codec::bytes("big")},
                                           {little, codec::zstd(1)},
                                           {little, codec::blosc()},
                                           {little, codec::gzip(1)},
                                           {little, codec::lz4()},
                                           {little, codec::zstd(1), codec::crc32c()},
                                           {little, codec::lz4(), codec::crc32c()},
                                           {codec::transpose({1, 0}), little, codec::crc32c()}};
  for (const auto& codecs : chains) {
    for (const Shape& shards : {Shape{}, Shape{4, 1 << 17}}) {
      const Array a = filled(codecs, shards);
      const std::vector<std::byte> expected = bytes_of(a.read());
      before_ = MappedFiles::get().stats();
      const Array there = a.to(Device::simt());
      EXPECT_EQ(bytes_of(there.read()), expected) << codecs.back().name;
      EXPECT_EQ(since().mapped, shards.empty() ? 8u : 2u) << codecs.back().name;
      EXPECT_EQ(bytes_of(there.read()), expected);
      EXPECT_GE(since().reused, shards.empty() ? 8u : 2u);
      EXPECT_EQ(since().mapped, shards.empty() ? 8u : 2u);
      const Selection some{slice(2, 7), slice(3, 70000, 5)};
      EXPECT_EQ(bytes_of(there.read(some)), bytes_of(a.read(some)));
    }
  }
}

TEST_F(MappedRead, SeesWhatWasWrittenMeanwhile) {
  const Array a = filled({codec::bytes(), codec::zstd(1)});
  const Array there = a.to(Device::simt());
  EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read()));
  const std::vector<float> ones(1 << 17, 1.5F);
  a.write({3}, TensorView{const_cast<float*>(ones.data()), {1 << 17}, {}, DType::float32, {}});
  EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read())) << "by a new file";
  settle();
  EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read()));
}

TEST_F(MappedRead, FindsWhatIsCorrupt) {
  for (const auto& compressor : {codec::zstd(1), codec::blosc(), codec::gzip(1), codec::lz4()}) {
    const Array a = filled({codec::bytes(), compressor});
    const Array there = a.to(Device::simt());
    there.read();
    const auto nbytes = std::filesystem::file_size(object("c/5/0"));
    ASSERT_GE(nbytes, MappedFiles::kLeast);
    std::filesystem::resize_file(object("c/5/0"), nbytes - 7);  // in its place, after it was mapped
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of([&] { there.read(); }, ErrorCode::corrupt),
                  HasSubstr("[read] a chunk c/5/0: codec"));
      settle();
    }
    // Behind the header, which the host would refuse when it looks for another version.
    std::mt19937 random(1);
    std::string noise(nbytes, '\0');
    std::ifstream(object("c/4/0"), std::ios::binary).read(noise.data(), 20);
    for (std::size_t i = 20; i < nbytes; ++i) noise[i] = static_cast<char>(random());
    std::ofstream(object("c/5/0"), std::ios::binary) << noise;
    settle();
    EXPECT_THAT(error_of([&] { there.read(); }, ErrorCode::corrupt),
                HasSubstr("[read] a chunk c/5/0: codec"));
    std::ofstream(object("c/5/0"), std::ios::binary) << "";
    EXPECT_THAT(error_of([&] { there.read(); }, ErrorCode::corrupt),
                HasSubstr("[read] a chunk c/5/0: codec"));
    std::filesystem::remove(object("c/5/0"));
    EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read())) << "the fill value";
  }
}

TEST_F(MappedRead, ChecksumsAreVerifiedOnTheDevice) {
  const Array a = filled({codec::bytes(), codec::crc32c()});
  std::fstream(object("c/1/0"), std::ios::in | std::ios::out | std::ios::binary).put('!');
  settle();
  EXPECT_THAT(error_of([&] { a.to(Device::simt()).read(); }, ErrorCode::corrupt),
              HasSubstr("chunk c/1/0: codec crc32c: the checksum is wrong"));
}

TEST_F(MappedRead, ThreadsReadTheSame) {
  const Array a = filled({codec::bytes()});
  const Array there = a.to(Device::simt());
  const std::vector<std::byte> expected = bytes_of(a.read());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) EXPECT_EQ(bytes_of(there.read()), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(since().mapped, 8u);
}

TEST_F(MappedRead, AChildOfForkMapsForItself) {
  HEADRACE_SKIP_WHERE_CHILDREN_START_NO_THREADS();
  test::set_threads(1);
  const Array a = filled({codec::bytes()});
  const Array there = a.to(Device::simt());
  const std::vector<std::byte> expected = bytes_of(there.read());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool empty = MappedFiles::get().stats().windows == 0;
    const bool same = bytes_of(there.read()) == expected;
    const bool mapped = MappedFiles::get().stats().mapped == 8;
    MappedFiles::get().limit(0);
    ::_exit(empty && same && mapped ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const std::uint64_t mapped = since().mapped;
  EXPECT_EQ(bytes_of(there.read()), expected);
  EXPECT_EQ(since().mapped, mapped);
}

TEST_F(MappedRead, OffLetsGoOfAll) {
  const Array a = filled({codec::bytes()});
  const Array there = a.to(Device::simt());
  there.read();
  EXPECT_GT(MappedFiles::get().stats().nbytes, 0u);
  Config off = config();
  off.device_mapped = "off";
  set_config(off);
  EXPECT_EQ(MappedFiles::get().stats().nbytes, 0u);
  before_ = MappedFiles::get().stats();
  EXPECT_EQ(bytes_of(there.read()), bytes_of(a.read()));
  EXPECT_EQ(since().mapped, 0u);
}

}  // namespace
}  // namespace headrace
