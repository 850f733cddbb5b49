// Reading zip archives: stored entries by pread, from any thread without a lock; deflated ones
// whole.

#include "store/zip.h"

#include <fcntl.h>
#include <libdeflate.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/file_times.h"
#include "base/system.h"
#include "base/trace.h"
#include "headrace/error.h"
#include "store/file.h"
#include "store/key_list.h"
#include "store/left_out.h"
#include "store/posix.h"
#include "store/url.h"
#include "store/zip_directory.h"

namespace headrace {

namespace {

// Deflate's best: 258 bytes for two bits, in a block whose header is small beside it.
constexpr std::uint64_t kMaxDeflateRatio = 1032;

struct ZipFile {
  FileDescriptor fd;
  std::uint64_t size = 0;
  std::uint64_t version = 0;
  std::optional<WrittenAt> written{};
  std::string path{};
};

std::string place_of(const ZipFile& file, const ZipEntry& entry) {
  return "zip archive " + file.path + ": entry " + std::string(entry.name);
}

[[noreturn]] void throw_corrupt(const ZipFile& file,
                                const ZipEntry& entry,
                                const std::string& why) {
  throw Error(ErrorCode::corrupt, place_of(file, entry) + ": " + why);
}

void check_readable(const ZipFile& file, const ZipEntry& entry) {
  constexpr std::uint16_t kEncrypted = 0x1 | 0x40 | 0x2000;
  if (entry.flags & kEncrypted) {
    throw Error(ErrorCode::unsupported, place_of(file, entry) + " is encrypted");
  }
  if (entry.method == kZipStored) {
    if (entry.size == entry.packed_size) return;
    throw_corrupt(file,
                  entry,
                  "stored, but " + std::to_string(entry.packed_size) + " bytes for an object of " +
                      std::to_string(entry.size));
  }
  if (entry.method != kZipDeflated) {
    throw Error(ErrorCode::unsupported,
                place_of(file, entry) + " is compressed by method " + std::to_string(entry.method) +
                    "; known are 0 (stored) and 8 (deflate)");
  }
  if (entry.size / kMaxDeflateRatio > entry.packed_size) {
    throw_corrupt(file,
                  entry,
                  std::to_string(entry.packed_size) + " deflated bytes cannot give " +
                      std::to_string(entry.size));
  }
}

void check_crc(const std::string& place, std::uint32_t wanted, std::uint32_t found) {
  if (found == wanted) return;
  throw Error(
      ErrorCode::corrupt,
      place + ": wanted CRC-32 " + std::to_string(wanted) + ", found " + std::to_string(found));
}

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
};

void inflate(const ZipFile& file, const ZipEntry& entry, ConstBytes packed, Buffer& into) {
  into.resize(checked_cast<std::size_t>(entry.size, "zip entry size"));
  std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) throw Error(ErrorCode::out_of_memory, place_of(file, entry));
  std::byte none{};  // libdeflate wants a place even for no bytes
  std::size_t used = 0;
  std::size_t made = 0;
  libdeflate_result result = libdeflate_deflate_decompress_ex(decompressor.get(),
                                                              packed.data(),
                                                              packed.size(),
                                                              into.empty() ? &none : into.data(),
                                                              into.size(),
                                                              &used,
                                                              &made);
  if (result != LIBDEFLATE_SUCCESS || made != into.size()) {
    throw_corrupt(file,
                  entry,
                  result == LIBDEFLATE_INSUFFICIENT_SPACE
                      ? "inflates to more than " + std::to_string(entry.size) + " bytes"
                  : result == LIBDEFLATE_SUCCESS ? "wanted " + std::to_string(entry.size) +
                                                       " bytes, got " + std::to_string(made)
                                                 : std::string("bad deflate data"));
  }
  if (used != packed.size()) throw_corrupt(file, entry, "bytes are left after the deflate data");
}

// A range of the archive. Whatever takes all of an entry at once checks it; ranges carry no
// checksum.
class StoredReader : public ObjectReader {
 public:
  StoredReader(std::shared_ptr<ZipFile> file,
               std::uint64_t start,
               std::uint64_t size,
               std::uint32_t crc,
               std::string place)
      : file_(std::move(file)), start_(start), size_(size), crc_(crc), place_(std::move(place)) {}

  std::uint64_t size() const override { return size_; }
  // An open archive does not change; who remembers its entries may open another one later.
  std::uint64_t version() const override { return (file_->version + start_) | 1; }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    read_scattered(offset, {&dst, 1});
  }
  void read_scattered(std::uint64_t offset, std::span<const MutableBytes> dsts) const override {
    const std::uint64_t total = total_size(dsts);
    const Span span("fetch", total);
    check_object_range(place_, size_, offset, total);
    if (read_at_scattered(file_->fd.get(), start_ + offset, dsts, file_->path) != total) {
      throw Error(ErrorCode::io, place_ + ": the archive became shorter while it was read");
    }
    if (total != size_) return;
    std::uint32_t found = 0;
    for (const MutableBytes dst : dsts) found = libdeflate_crc32(found, dst.data(), dst.size());
    check_crc(place_, crc_, found);
  }
  void check() const override {
    Buffer piece;
    std::uint32_t found = 0;
    for (std::uint64_t done = 0; done < size_; done += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min(size_ - done, kPieceNbytes)));
      const MutableBytes into = piece.bytes();
      if (read_at(file_->fd.get(), start_ + done, into, file_->path) != into.size()) {
        throw Error(ErrorCode::io, place_ + ": the archive became shorter while it was read");
      }
      found = libdeflate_crc32(found, into.data(), into.size());
    }
    check_crc(place_, crc_, found);
  }

 private:
  static constexpr std::uint64_t kPieceNbytes = 1 << 20;

  std::shared_ptr<ZipFile> file_;
  std::uint64_t start_;
  std::uint64_t size_;
  std::uint32_t crc_;
  std::string place_;
};

class InflatedReader : public ObjectReader {
 public:
  InflatedReader(Buffer bytes, std::uint64_t version, std::string place)
      : bytes_(std::move(bytes)), version_(version), place_(std::move(place)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  std::uint64_t version() const override { return version_; }
  void read(std::uint64_t offset, MutableBytes dst) const override {
    check_object_range(place_, bytes_.size(), offset, dst.size());
    if (!dst.empty()) std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  }
  ConstBytes mapped() const override { return bytes_.bytes(); }

 private:
  Buffer bytes_;
  std::uint64_t version_;
  std::string place_;
};

class ZipStore : public StoreDriver {
 public:
  explicit ZipStore(std::shared_ptr<ZipFile> file)
      : file_(std::move(file)),
        directory_(ZipDirectory::read(file_->fd.get(), file_->size, file_->path)),
        data_offsets_(new std::atomic<std::uint64_t>[directory_.entries().size()]()) {}

  std::string url() const override { return "zip://" + percent_encode_path(file_->path); }
  bool read_only() const override { return true; }

  bool get(std::string_view key, Buffer& into) override {
    return get_within(key, into, UINT64_MAX);
  }

  bool get_within(std::string_view key, Buffer& into, std::uint64_t max_nbytes) override {
    check_key(key);
    const ZipEntry* entry = directory_.find(key);
    if (entry == nullptr) return false;
    check_readable(*file_, *entry);
    check_object_nbytes(place_of(*file_, *entry), entry->size, max_nbytes);
    if (entry->method == kZipStored) {
      read_packed(*entry, into);
    } else {
      Buffer packed;
      read_packed(*entry, packed);
      inflate(*file_, *entry, packed, into);
    }
    check_crc(place_of(*file_, *entry),
              entry->crc,
              libdeflate_crc32(0, into.bytes().data(), into.bytes().size()));
    return true;
  }

  std::unique_ptr<ObjectReader> open(std::string_view key) override {
    check_key(key);
    const ZipEntry* entry = directory_.find(key);
    if (entry == nullptr) return nullptr;
    check_readable(*file_, *entry);
    if (entry->method == kZipStored) {
      return std::make_unique<StoredReader>(
          file_, data_offset(*entry), entry->size, entry->crc, place_of(*file_, *entry));
    }
    Buffer bytes;
    if (!get(key, bytes)) return nullptr;
    return std::make_unique<InflatedReader>(
        std::move(bytes), (file_->version + entry->header) | 1, place_of(*file_, *entry));
  }

  bool exists(std::string_view key) override {
    check_key(key);
    return directory_.find(key) != nullptr;
  }

  void set(std::string_view, ConstBytes) override { throw_read_only(url()); }
  void erase(std::string_view) override { throw_read_only(url()); }
  void erase_prefix(std::string_view) override { throw_read_only(url()); }

  std::vector<std::string> list(std::string_view prefix) override {
    std::vector<std::string> keys;
    for (ObjectSize& object : list_sizes(prefix)) keys.push_back(std::move(object.key));
    return keys;
  }

  // The times that an archive has of its entries are those of some clock of some zone, to two
  // seconds: its own is later.
  std::vector<ObjectSize> list_sizes(std::string_view prefix) override {
    prefix = check_prefix(prefix);
    std::vector<ObjectSize> objects;
    for (const ZipEntry& entry : directory_.entries()) {
      if (lies_below(entry.name, prefix))
        objects.push_back({std::string(entry.name), entry.size, file_->written});
    }
    for (const std::string_view name : directory_.unnamed())
      if (lies_below(name, prefix)) tell_left_out(name);
    return objects;
  }

  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    prefix = check_prefix(prefix);
    return names_directly_below(list(prefix), prefix);
  }

 private:
  std::atomic<std::uint64_t>& known_offset(const ZipEntry& entry) {
    return data_offsets_[static_cast<std::size_t>(&entry - directory_.entries().data())];
  }

  std::uint64_t data_offset(const ZipEntry& entry) {
    std::atomic<std::uint64_t>& known = known_offset(entry);
    std::uint64_t offset = known.load(std::memory_order_relaxed);
    if (offset == 0) {
      Buffer head(kZipLocalHeader + entry.name.size());
      head.resize(read_at(file_->fd.get(), entry.header, head.bytes(), file_->path));
      offset = zip_data_offset(entry, head, file_->path);
      known.store(offset, std::memory_order_relaxed);
    }
    return offset;
  }

  // The entry's bytes as they are in the file. Only the local header says where they start; the
  // first read takes both at once, on the guess that it is as long as the directory's copy.
  void read_packed(const ZipEntry& entry, Buffer& into) {
    if (entry.packed_size > entry.limit - entry.header) {
      throw_corrupt(*file_,
                    entry,
                    std::to_string(entry.packed_size) + " bytes do not fit between offset " +
                        std::to_string(entry.header) + " and " + std::to_string(entry.limit));
    }
    into.resize(static_cast<std::size_t>(entry.packed_size));
    std::atomic<std::uint64_t>& known = known_offset(entry);
    std::uint64_t offset = known.load(std::memory_order_relaxed);
    if (offset == 0) {
      Buffer head(kZipLocalHeader + entry.name.size() + entry.extra_size);
      const MutableBytes parts[] = {head.bytes(), into.bytes()};
      std::size_t n = read_at_scattered(file_->fd.get(), entry.header, parts, file_->path);
      const std::size_t guess = head.size();
      offset = zip_data_offset(entry, head.bytes().first(std::min(n, guess)), file_->path);
      known.store(offset, std::memory_order_relaxed);
      if (offset == entry.header + guess && n == guess + into.size()) return;
    }
    if (read_at(file_->fd.get(), offset, into.bytes(), file_->path) != into.size()) {
      throw Error(ErrorCode::io,
                  place_of(*file_, entry) + ": the archive became shorter while it was read");
    }
  }

  std::shared_ptr<ZipFile> file_;
  ZipDirectory directory_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> data_offsets_;  // 0: not looked up yet
};

}  // namespace

std::unique_ptr<StoreDriver> open_zip_archive(const std::string& path) {
  auto file = std::make_shared<ZipFile>();
  file->path = path;
  file->fd = FileDescriptor(open_retrying(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!file->fd) throw_open_failure(errno, path, false);
  struct stat st;
  if (os().fstat(file->fd.get(), &st) != 0) throw_io(errno, "stat", path);
  std::optional<std::uint64_t> size = object_size(st, path);
  if (!size) throw Error(ErrorCode::invalid_argument, path + " is a folder, not a zip archive");
  file->size = *size;
  file->version = version_of(st);
  file->written = written_of(modified_at(st), changed_at(st));
  return std::make_unique<ZipStore>(std::move(file));
}

}  // namespace headrace
