#include "store/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "headrace/error.h"
#include "store/posix.h"
#include "store/store.h"

namespace headrace {

namespace {

constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::size_t kCentralHeader = 46;
constexpr std::size_t kEndRecord = 22;
constexpr std::size_t kEnd64Record = 56;
constexpr std::size_t kLocator = 20;
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint32_t kFull32 = 0xffffffff;
constexpr std::uint16_t kFull16 = 0xffff;

std::uint16_t u16(const std::byte* p) { return load_le<std::uint16_t>(p); }
std::uint32_t u32(const std::byte* p) { return load_le<std::uint32_t>(p); }
std::uint64_t u64(const std::byte* p) { return load_le<std::uint64_t>(p); }

[[noreturn]] void throw_corrupt(std::string_view path, const std::string& why) {
  throw Error(ErrorCode::corrupt, "zip archive " + std::string(path) + ": " + why);
}

struct EndRecord {
  std::uint64_t count = 0;
  std::uint64_t size = 0;    // of the central directory
  std::uint64_t offset = 0;  // as written: bytes put before the archive are not counted
  std::uint64_t end = 0;     // where the central directory ends in the file
  bool zip64 = false;
};

class EndFinder {
 public:
  EndFinder(int fd, std::uint64_t file_size, std::string_view path)
      : fd_(fd), file_size_(file_size), path_(path) {}

  EndRecord find() {
    constexpr std::uint64_t kReach = kLocator + kEndRecord + kFull16;
    Buffer tail(static_cast<std::size_t>(std::min(file_size_, kReach)));
    const std::uint64_t tail_start = file_size_ - tail.size();
    read(tail_start, tail.bytes());
    // From the back: the record whose comment ends with the file.
    for (std::size_t at = tail.size() < kEndRecord ? 0 : tail.size() - kEndRecord + 1; at-- > 0;) {
      const std::byte* p = tail.data() + at;
      if (u32(p) != kEndSignature || at + kEndRecord + u16(p + 20) != tail.size()) continue;
      EndRecord end{u16(p + 10), u32(p + 12), u32(p + 16), tail_start + at, false};
      if (at >= kLocator && u32(p - kLocator) == kLocatorSignature) return find64(p, end);
      // With a locator these numbers may be 0xffff; it was looked at above.
      if (u16(p + 4) != 0 || u16(p + 6) != 0) refuse_parts();
      return end;
    }
    throw_corrupt(path_,
                  "no end of central directory; the file is no zip archive, or was cut short");
  }

 private:
  void read(std::uint64_t offset, MutableBytes dst) {
    if (read_at(fd_, offset, dst, path_) != dst.size()) throw_corrupt(path_, "became shorter");
  }

  [[noreturn]] void refuse_parts() {
    throw Error(ErrorCode::unsupported,
                "zip archive " + std::string(path_) + ": it is one of several parts");
  }

  EndRecord find64(const std::byte* end_record, EndRecord end) {
    const std::uint64_t locator = end.end - kLocator;
    if (u32(end_record - kLocator + 16) > 1) refuse_parts();
    const std::uint64_t declared = u64(end_record - kLocator + 8);
    std::byte record[kEnd64Record];
    // The second place is right when bytes were put before the archive.
    for (std::uint64_t at : {declared, locator - std::min<std::uint64_t>(locator, kEnd64Record)}) {
      if (locator < kEnd64Record || at > locator - kEnd64Record) continue;
      read(at, record);
      if (u32(record) != kEnd64Signature) continue;
      if (u32(record + 16) != 0 || u32(record + 20) != 0) refuse_parts();
      return {u64(record + 32), u64(record + 40), u64(record + 48), at, true};
    }
    throw_corrupt(path_, "the zip64 end of central directory is not where its locator says");
  }

  int fd_;
  std::uint64_t file_size_;
  std::string_view path_;
};

// Sizes of 4 GiB and more lie in an extra field, which holds only those that do not fit.
void apply_zip64(ConstBytes extra, ZipEntry& entry, std::string_view path) {
  while (extra.size() >= 4) {
    std::uint16_t id = u16(extra.data());
    std::size_t size = u16(extra.data() + 2);
    extra = extra.subspan(4);
    if (size > extra.size()) return;  // some writers pad; the field is not ours
    if (id == kZip64Extra) {
      ConstBytes field = extra.first(size);
      for (std::uint64_t* value : {&entry.size, &entry.packed_size, &entry.header}) {
        if (*value != kFull32) continue;
        if (field.size() < 8) {
          throw_corrupt(path, "entry " + std::string(entry.name) + ": short zip64 field");
        }
        *value = u64(field.data());
        field = field.subspan(8);
      }
      return;
    }
    extra = extra.subspan(size);
  }
}

// Each entry may reach to the start of the next one. Offsets that overlap are how a small archive
// pretends to be a huge one: https://www.bamsoftware.com/hacks/zipbomb/
void set_limits(std::vector<ZipEntry>& entries, std::uint64_t directory) {
  std::vector<std::uint64_t> starts;
  starts.reserve(entries.size() + 1);
  for (const ZipEntry& entry : entries) starts.push_back(entry.header);
  if (!std::is_sorted(starts.begin(), starts.end())) std::sort(starts.begin(), starts.end());
  starts.push_back(directory);
  for (ZipEntry& entry : entries) {
    entry.limit = *std::upper_bound(starts.begin(), starts.end() - 1, entry.header);
  }
}

bool by_name(const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; }

}  // namespace

ZipDirectory ZipDirectory::read(int fd, std::uint64_t file_size, std::string_view path) {
  const EndRecord end = EndFinder(fd, file_size, path).find();
  if (end.size > end.end) {
    throw_corrupt(path,
                  "a central directory of " + std::to_string(end.size) + " bytes in a file of " +
                      std::to_string(file_size));
  }
  if (end.count > end.size / kCentralHeader) {
    throw_corrupt(path,
                  std::to_string(end.count) + " entries in a central directory of " +
                      std::to_string(end.size) + " bytes");
  }
  // The directory lies right before its end record, whatever its offset says: the difference is
  // what was put before the archive, and shifts every entry.
  const std::uint64_t start = end.end - end.size;
  if (end.offset > start) throw_corrupt(path, "the central directory starts past its end");
  const std::uint64_t shift = start - end.offset;

  ZipDirectory directory;
  directory.bytes_.resize(static_cast<std::size_t>(end.size));
  if (read_at(fd, start, directory.bytes_.bytes(), path) != end.size) {
    throw_corrupt(path, "became shorter");
  }
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<std::size_t>(end.count));
  std::uint64_t count = 0;
  for (ConstBytes rest = directory.bytes_.bytes(); !rest.empty(); ++count) {
    const std::string place = "central directory, entry " + std::to_string(count);
    const std::byte* p = rest.data();
    if (rest.size() < kCentralHeader || u32(p) != kCentralSignature) {
      throw_corrupt(path, place + ": bad header");
    }
    const std::size_t name_size = u16(p + 28);
    const std::size_t extra_size = u16(p + 30);
    const std::size_t whole = kCentralHeader + name_size + extra_size + u16(p + 32);
    if (whole > rest.size()) throw_corrupt(path, place + ": longer than the directory");
    ZipEntry entry;
    entry.name = text_of(rest.subspan(kCentralHeader, name_size));
    entry.flags = u16(p + 8);
    entry.method = u16(p + 10);
    entry.crc = u32(p + 16);
    entry.packed_size = u32(p + 20);
    entry.size = u32(p + 24);
    entry.header = u32(p + 42);
    entry.extra_size = static_cast<std::uint16_t>(extra_size);
    apply_zip64(rest.subspan(kCentralHeader + name_size, extra_size), entry, path);
    if (entry.header > end.offset) {
      throw_corrupt(path, "entry " + std::string(entry.name) + ": starts after the entries");
    }
    entry.header += shift;
    entries.push_back(entry);
    rest = rest.subspan(whole);
  }
  // Old writers count modulo 65536.
  if (end.zip64 ? count != end.count : (count & kFull16) != end.count) {
    throw_corrupt(
        path, "wanted " + std::to_string(end.count) + " entries, found " + std::to_string(count));
  }
  set_limits(entries, start);

  std::erase_if(entries, [&](const ZipEntry& entry) {
    if (key_fault(entry.name) == nullptr) return false;
    const bool is_folder = entry.name.ends_with('/') && entry.size == 0;
    if (!is_folder) directory.unnamed_.push_back(entry.name);
    return true;
  });
  std::stable_sort(entries.begin(), entries.end(), by_name);
  for (const ZipEntry& entry : entries) {
    if (!directory.entries_.empty() && directory.entries_.back().name == entry.name) {
      directory.entries_.back() = entry;
    } else {
      directory.entries_.push_back(entry);
    }
  }
  return directory;
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  auto it = std::lower_bound(
      entries_.begin(), entries_.end(), name, [](const ZipEntry& entry, std::string_view wanted) {
        return entry.name < wanted;
      });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

std::uint64_t zip_data_offset(const ZipEntry& entry, ConstBytes head, std::string_view path) {
  const std::string place = "entry " + std::string(entry.name) + ": ";
  const std::byte* p = head.data();
  if (head.size() < kZipLocalHeader + entry.name.size() || u32(p) != kLocalSignature) {
    throw_corrupt(path, place + "no local header at offset " + std::to_string(entry.header));
  }
  if (u16(p + 26) != entry.name.size() ||
      text_of(head.subspan(kZipLocalHeader, entry.name.size())) != entry.name) {
    throw_corrupt(path, place + "the local header has another name");
  }
  if (u16(p + 8) != entry.method) {
    throw_corrupt(path, place + "local header and directory differ in the compression method");
  }
  const std::uint64_t data = entry.header + kZipLocalHeader + entry.name.size() + u16(p + 28);
  if (data > entry.limit || entry.packed_size > entry.limit - data) {
    throw_corrupt(path,
                  place + std::to_string(entry.packed_size) + " bytes at offset " +
                      std::to_string(data) + " reach past " + std::to_string(entry.limit) +
                      ", where what follows starts");
  }
  return data;
}

namespace {

class Packer {
 public:
  explicit Packer(Buffer& out) : out_(out) {}
  Packer& u16(std::uint64_t v) { return put(static_cast<std::uint16_t>(v)); }
  Packer& u32(std::uint64_t v) { return put(static_cast<std::uint32_t>(v)); }
  Packer& u64(std::uint64_t v) { return put(v); }
  Packer& text(std::string_view v) {
    out_.append(bytes_of(v));
    return *this;
  }

 private:
  template <typename T>
  Packer& put(T v) {
    std::byte bytes[sizeof(T)];
    store_le(bytes, v);
    out_.append(bytes);
    return *this;
  }
  Buffer& out_;
};

constexpr std::uint64_t kVersionPlain = 20;
constexpr std::uint64_t kVersion64 = 45;
constexpr std::uint64_t kFirstDay = 0x0021;  // 1980-01-01: the same data gives the same archive
constexpr std::uint64_t kFileMode = std::uint64_t{0100644} << 16;

bool needs64(std::uint64_t v) { return v >= kFull32; }
std::uint64_t clipped(std::uint64_t v) { return std::min<std::uint64_t>(v, kFull32); }

std::uint64_t name_flags(std::string_view name) {
  bool ascii = std::all_of(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return ascii ? 0 : 0x800;  // the name is UTF-8
}

}  // namespace

std::size_t zip_local_header_size(std::string_view name, std::uint64_t size) {
  return kZipLocalHeader + name.size() + (needs64(size) ? 20 : 0);
}

Buffer zip_local_header(std::string_view name, const ZipRecord& record) {
  const bool large = needs64(record.size);
  Buffer out;
  Packer pack(out);
  pack.u32(kLocalSignature).u16(large ? kVersion64 : kVersionPlain).u16(name_flags(name));
  pack.u16(kZipStored).u16(0).u16(kFirstDay).u32(record.crc);
  pack.u32(clipped(record.size)).u32(clipped(record.size));
  pack.u16(name.size()).u16(large ? 20 : 0).text(name);
  if (large) pack.u16(kZip64Extra).u16(16).u64(record.size).u64(record.size);
  return out;
}

Buffer zip_directory(const std::map<std::string, ZipRecord, std::less<>>& records,
                     std::uint64_t offset) {
  Buffer out;
  Packer pack(out);
  for (const auto& [name, record] : records) {
    const bool large = needs64(record.size);
    const bool far = needs64(record.header);
    const std::uint64_t version = large || far ? kVersion64 : kVersionPlain;
    const std::uint64_t field = (large ? 16 : 0) + (far ? 8 : 0);
    pack.u32(kCentralSignature).u16(3 << 8 | version).u16(version).u16(name_flags(name));
    pack.u16(kZipStored).u16(0).u16(kFirstDay).u32(record.crc);
    pack.u32(clipped(record.size)).u32(clipped(record.size));
    pack.u16(name.size()).u16(field == 0 ? 0 : field + 4).u16(0).u16(0).u16(0).u32(kFileMode);
    pack.u32(clipped(record.header)).text(name);
    if (field != 0) pack.u16(kZip64Extra).u16(field);
    if (large) pack.u64(record.size).u64(record.size);
    if (far) pack.u64(record.header);
  }
  const std::uint64_t size = out.size();
  const std::uint64_t count = records.size();
  if (count >= kFull16 || needs64(size) || needs64(offset)) {
    pack.u32(kEnd64Signature).u64(kEnd64Record - 12).u16(3 << 8 | kVersion64).u16(kVersion64);
    pack.u32(0).u32(0).u64(count).u64(count).u64(size).u64(offset);
    pack.u32(kLocatorSignature).u32(0).u64(offset + size).u32(1);
  }
  const std::uint64_t small_count = std::min<std::uint64_t>(count, kFull16);
  pack.u32(kEndSignature).u16(0).u16(0).u16(small_count).u16(small_count);
  pack.u32(clipped(size)).u32(clipped(offset)).u16(0);
  return out;
}

}  // namespace headrace
