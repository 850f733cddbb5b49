#pragma once

// The directory of a zip archive: found and checked when reading, made when writing.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
//
// Own code and not libzip: entries stored without compression are plain ranges of the file, which
// any number of threads can pread at once; libzip gives them only through one locked handle.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"

namespace headrace {

struct ZipEntry {
  std::string_view name;          // into the directory's bytes
  std::uint64_t header = 0;       // offset of the local header in the file
  std::uint64_t limit = 0;        // where the next entry, or the directory, starts
  std::uint64_t packed_size = 0;  // bytes in the file
  std::uint64_t size = 0;         // bytes of the object
  std::uint32_t crc = 0;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint16_t extra_size = 0;  // of the central header: most writers give the local one the same
};

inline constexpr std::size_t kZipLocalHeader = 30;
inline constexpr std::uint16_t kZipStored = 0;
inline constexpr std::uint16_t kZipDeflated = 8;

class ZipDirectory {
 public:
  // `corrupt` for what is no archive or lies about its sizes; `unsupported` for parts of a set.
  static ZipDirectory read(int fd, std::uint64_t file_size, std::string_view path);

  // By name, each once: of entries with one name the last one counts, as a rewrite appends. Folders
  // and names that are no keys ("/a", "../a") are left out.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;
  // Of entries that are no keys, without folders.
  const std::vector<std::string_view>& unnamed() const { return unnamed_; }

 private:
  Buffer bytes_;
  std::vector<ZipEntry> entries_;
  std::vector<std::string_view> unnamed_;
};

// The bytes after the fixed part of a local header, the name and extra fields, end where the data
// starts. Checks that the header agrees with the directory. `head` holds at least the fixed part
// and the name.
std::uint64_t zip_data_offset(const ZipEntry& entry, ConstBytes head, std::string_view path);

// A stored entry of a new archive.
struct ZipRecord {
  std::uint64_t header = 0;
  std::uint64_t data = 0;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
};

std::size_t zip_local_header_size(std::string_view name, std::uint64_t size);
Buffer zip_local_header(std::string_view name, const ZipRecord& record);
// Central directory and end records of an archive whose entries end at `offset`.
Buffer zip_directory(const std::map<std::string, ZipRecord, std::less<>>& records,
                     std::uint64_t offset);

}  // namespace headrace
