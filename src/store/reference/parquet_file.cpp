#include "store/reference/parquet_file.h"

#include <snappy.h>
#include <zstd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "headrace/error.h"
#include "store/reference/thrift.h"

namespace headrace {
namespace {

// Of one partition; kerchunk's have 10,000 rows by default, and users make it a hundred times that.
constexpr std::int64_t kMaxRows = std::int64_t{1} << 26;
constexpr std::int64_t kMaxPageNbytes = std::int64_t{1} << 30;
constexpr std::size_t kMaxColumns = 1024;
// Of the texts of one file in memory: pages of nothing but empty ones pack well.
constexpr std::size_t kMaxTextNbytes = std::size_t{1} << 30;

// Of the format.
constexpr std::int64_t kInt32 = 1, kInt64 = 2, kByteArray = 6;
constexpr std::int64_t kRequired = 0, kRepeated = 2;
constexpr std::int64_t kDataPage = 0, kDictionaryPage = 2, kDataPageV2 = 3;
constexpr std::int64_t kPlain = 0, kPlainDictionary = 2, kRleDictionary = 8;
constexpr std::int64_t kUncompressed = 0, kSnappy = 1, kZstd = 6;

struct Chunk {
  std::string name;
  std::int64_t type = -1, codec = 0, values = 0;
  std::int64_t nbytes = 0, first_page = 0, dictionary = 0;
};

struct Page {
  std::int64_t type = -1, nbytes = -1, packed_nbytes = -1;
  std::int64_t values = 0, encoding = kPlain;
  std::int64_t levels_nbytes = 0, repeats_nbytes = 0;  // version 2
  bool is_packed = true;
};

class File {
 public:
  File(ConstBytes file,
       const std::string& name,
       std::span<const std::string_view> wanted,
       std::uint64_t max_rows)
      : file_(file), name_(name), wanted_(wanted), max_rows_(max_rows) {}

  ParquetTable read() {
    read_footer();
    ParquetTable table;
    table.rows = static_cast<std::uint64_t>(rows_);
    for (const Chunk& chunk : chunks_) {
      if (std::find(wanted_.begin(), wanted_.end(), chunk.name) == wanted_.end()) continue;
      ParquetColumn* column = nullptr;
      for (ParquetColumn& each : table.columns) {
        if (each.name == chunk.name) column = &each;
      }
      if (column == nullptr) {
        column = &table.columns.emplace_back();
        column->name = chunk.name;
        column->is_bytes = chunk.type == kByteArray;
      }
      if (column->is_bytes != (chunk.type == kByteArray)) fail("has a column of two types");
      const std::size_t before = column->is_bytes ? column->rows.size() : column->numbers.size();
      if (chunk.values < 0 || static_cast<std::uint64_t>(chunk.values) > table.rows - before) {
        fail("has a column longer than its rows");
      }
      read_chunk(chunk, *column);
    }
    for (const ParquetColumn& column : table.columns) {
      const std::size_t found = column.is_bytes ? column.rows.size() : column.numbers.size();
      if (found != table.rows) {
        fail("has " + std::to_string(found) + " values in column " + column.name + ", and " +
             std::to_string(table.rows) + " rows");
      }
    }
    return table;
  }

 private:
  struct Element {
    std::string name;
    std::int64_t repetition = kRequired;
    bool has_children = false;
  };

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::corrupt, name_ + ": " + why);
  }
  [[noreturn]] void unknown(const std::string& what) const {
    throw Error(ErrorCode::unsupported, name_ + ": Parquet with " + what + " is not read here");
  }

  ConstBytes range(std::int64_t offset, std::int64_t nbytes) const {
    if (offset < 0 || nbytes < 0 || static_cast<std::uint64_t>(offset) > file_.size() ||
        static_cast<std::uint64_t>(nbytes) > file_.size() - static_cast<std::uint64_t>(offset)) {
      fail("has a part outside of the file");
    }
    return file_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(nbytes));
  }

  void read_footer() {
    constexpr std::string_view kMagic = "PAR1";
    if (file_.size() < 12 || text_of(file_.first(4)) != kMagic ||
        text_of(file_.last(4)) != kMagic) {
      fail("is no Parquet");
    }
    const std::uint32_t nbytes = load_le<std::uint32_t>(file_.data() + file_.size() - 8);
    if (nbytes > file_.size() - 12) fail("has a footer longer than the file");
    ThriftReader thrift(file_.subspan(file_.size() - 8 - nbytes, nbytes));
    thrift.structure([&](std::int32_t field, ThriftType type) {
      if (field == 2 && type == ThriftType::list) {
        for (std::uint32_t n = thrift.list(ThriftType::structure); n > 0; --n) read_element(thrift);
      } else if (field == 3 && type == ThriftType::i64) {
        rows_ = thrift.number();
      } else if (field == 4 && type == ThriftType::list) {
        for (std::uint32_t n = thrift.list(ThriftType::structure); n > 0; --n) read_group(thrift);
      } else {
        return false;
      }
      return true;
    });
    const auto most = std::min<std::uint64_t>(max_rows_, kMaxRows);
    if (rows_ < 0 || static_cast<std::uint64_t>(rows_) > most) {
      fail("has more than " + std::to_string(most) + " rows");
    }
  }

  void read_element(ThriftReader& thrift) {
    Element element;
    thrift.structure([&](std::int32_t field, ThriftType type) {
      if (field == 3 && type == ThriftType::i32) {
        element.repetition = thrift.number();
      } else if (field == 4 && type == ThriftType::binary) {
        element.name = thrift.binary();
      } else if (field == 5 && type == ThriftType::i32) {
        element.has_children = thrift.number() > 0;
      } else {
        return false;
      }
      return true;
    });
    const bool is_root = elements_.empty();
    if (!is_root && (element.has_children || element.repetition == kRepeated)) {
      unknown("columns within columns");
    }
    elements_.push_back(std::move(element));
  }

  void read_group(ThriftReader& thrift) {
    thrift.structure([&](std::int32_t field, ThriftType type) {
      if (field != 1 || type != ThriftType::list) return false;
      for (std::uint32_t n = thrift.list(ThriftType::structure); n > 0; --n) {
        thrift.structure([&](std::int32_t part, ThriftType part_type) {
          if (part == 1 && part_type == ThriftType::binary && !thrift.binary().empty()) {
            unknown("columns in other files");
          }
          if (part == 1) return part_type == ThriftType::binary;
          if (part != 3 || part_type != ThriftType::structure) return false;
          read_chunk_metadata(thrift);
          return true;
        });
      }
      return true;
    });
  }

  void read_chunk_metadata(ThriftReader& thrift) {
    Chunk chunk;
    thrift.structure([&](std::int32_t field, ThriftType type) {
      if (field == 3 && type == ThriftType::list) {
        for (std::uint32_t n = thrift.list(ThriftType::binary); n > 0; --n) {
          chunk.name = thrift.binary();
        }
        return true;
      }
      std::int64_t* const number = field == 1    ? &chunk.type
                                   : field == 4  ? &chunk.codec
                                   : field == 5  ? &chunk.values
                                   : field == 7  ? &chunk.nbytes
                                   : field == 9  ? &chunk.first_page
                                   : field == 11 ? &chunk.dictionary
                                                 : nullptr;
      if (number == nullptr || (type != ThriftType::i32 && type != ThriftType::i64)) return false;
      *number = thrift.number();
      return true;
    });
    if (chunks_.size() >= kMaxColumns) fail("has too many columns");
    chunks_.push_back(std::move(chunk));
  }

  bool is_required(const Chunk& chunk) const {
    for (std::size_t i = 1; i < elements_.size(); ++i) {
      if (elements_[i].name == chunk.name) return elements_[i].repetition == kRequired;
    }
    fail("has a column " + chunk.name + " that its schema lacks");
  }

  Page read_page(ThriftReader& thrift) const {
    Page page;
    thrift.structure([&](std::int32_t field, ThriftType type) {
      if (type == ThriftType::i32 && field <= 3) {
        std::int64_t* const number = field == 1   ? &page.type
                                     : field == 2 ? &page.nbytes
                                                  : &page.packed_nbytes;
        *number = thrift.number();
        return true;
      }
      if (type != ThriftType::structure || (field != 5 && field != 7 && field != 8)) return false;
      thrift.structure([&](std::int32_t part, ThriftType part_type) {
        if (field == 8 && part == 7) {
          page.is_packed = part_type == ThriftType::yes;
          return false;
        }
        if (part_type != ThriftType::i32) return false;
        std::int64_t* const number = part == 1                      ? &page.values
                                     : part == (field == 8 ? 4 : 2) ? &page.encoding
                                     : field == 8 && part == 5      ? &page.levels_nbytes
                                     : field == 8 && part == 6      ? &page.repeats_nbytes
                                                                    : nullptr;
        if (number == nullptr) return false;
        *number = thrift.number();
        return true;
      });
      return true;
    });
    if (page.nbytes < 0 || page.packed_nbytes < 0 || page.nbytes > kMaxPageNbytes ||
        page.values < 0 || page.values > kMaxRows || page.levels_nbytes < 0 ||
        page.repeats_nbytes < 0) {
      fail("has a page of no good size");
    }
    return page;
  }

  void unpack(ConstBytes packed, std::int64_t codec, std::size_t nbytes, Buffer& into) const {
    // What it may become at most: zeros in zstd.
    if (nbytes > (packed.size() + 64) * 65536) fail("has a page that cannot be so long");
    into.resize(nbytes);
    if (codec == kUncompressed) {
      if (packed.size() != nbytes) fail("has a page of another size");
      into.assign(packed);
    } else if (codec == kZstd) {
      const std::size_t n = ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size());
      if (ZSTD_isError(n) || n != nbytes) fail("has a page whose zstd data are bad");
    } else if (codec == kSnappy) {
      std::size_t n = 0;
      const char* const from = as_chars(packed);
      if (!snappy::GetUncompressedLength(from, packed.size(), &n) || n != nbytes ||
          !snappy::RawUncompress(from, packed.size(), as_chars(into.bytes()))) {
        fail("has a page whose snappy data are bad");
      }
    } else {
      unknown("compression " + std::to_string(codec));
    }
  }

  // Runs of one number, or numbers packed in bits.
  std::vector<std::uint32_t> read_runs(ConstBytes bytes, unsigned width, std::size_t count) const {
    if (width > 32) fail("has numbers of more than 32 bits");
    std::vector<std::uint32_t> numbers;
    numbers.reserve(count);
    std::size_t at = 0;
    while (numbers.size() < count) {
      std::uint64_t head = 0;
      for (unsigned shift = 0;; shift += 7) {
        if (at >= bytes.size() || shift > 35) fail("has a page that ends too early");
        const auto byte = std::to_integer<std::uint64_t>(bytes[at++]);
        head |= (byte & 0x7F) << shift;
        if (byte < 0x80) break;
      }
      if ((head & 1) == 0) {
        std::uint32_t value = 0;
        const std::size_t nbytes = (width + 7) / 8;
        if (nbytes > bytes.size() - at) fail("has a page that ends too early");
        for (std::size_t i = 0; i < nbytes; ++i) {
          value |= std::to_integer<std::uint32_t>(bytes[at++]) << (8 * i);
        }
        if (head >> 1 == 0) fail("has a run of nothing");
        const std::size_t n = std::min<std::uint64_t>(head >> 1, count - numbers.size());
        numbers.insert(numbers.end(), n, value);
        continue;
      }
      const std::size_t n = std::min<std::uint64_t>((head >> 1) * 8, count - numbers.size());
      if (n == 0 || (n * width + 7) / 8 > bytes.size() - at) fail("has a page that ends too early");
      for (std::size_t i = 0; i < n; ++i) {
        std::uint32_t value = 0;
        for (unsigned b = 0; b < width; ++b) {
          const std::size_t bit = i * width + b;
          value |= (std::to_integer<std::uint32_t>(bytes[at + bit / 8]) >> (bit % 8) & 1U) << b;
        }
        numbers.push_back(value);
      }
      at += std::min<std::uint64_t>((head >> 1) * width, bytes.size() - at);
    }
    return numbers;
  }

  // So many values as they are, one behind the other.
  void read_plain(ConstBytes bytes,
                  std::int64_t type,
                  std::size_t count,
                  std::vector<std::int64_t>& numbers,
                  std::vector<std::string>& texts) {
    const std::size_t least = type == kInt64 ? 8 : 4;
    if (count > bytes.size() / least) fail("has a page that ends too early");
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes.size() < least) fail("has a page that ends too early");
      if (type == kInt64) {
        numbers.push_back(static_cast<std::int64_t>(load_le<std::uint64_t>(bytes.data())));
        bytes = bytes.subspan(8);
        continue;
      }
      const std::uint32_t word = load_le<std::uint32_t>(bytes.data());
      bytes = bytes.subspan(4);
      if (type == kInt32) {
        numbers.push_back(static_cast<std::int32_t>(word));
        continue;
      }
      if (word > bytes.size()) fail("has a page that ends too early");
      text_nbytes_ += sizeof(std::string) + word;
      if (text_nbytes_ > kMaxTextNbytes) fail("has more than 1 GiB of text");
      texts.emplace_back(text_of(bytes.first(word)));
      bytes = bytes.subspan(word);
    }
  }

  void read_chunk(const Chunk& chunk, ParquetColumn& column) {
    if (chunk.type != kInt32 && chunk.type != kInt64 && chunk.type != kByteArray) {
      unknown("a column of type " + std::to_string(chunk.type));
    }
    const bool required = is_required(chunk);
    const bool before = chunk.dictionary > 0 && chunk.dictionary < chunk.first_page;
    ConstBytes rest = range(before ? chunk.dictionary : chunk.first_page, chunk.nbytes);
    std::vector<std::int64_t> dictionary_numbers;
    std::size_t dictionary_at = 0;  // of its texts among the column's
    std::size_t dictionary_size = 0;
    bool has_dictionary = false;
    std::int64_t left = chunk.values;
    while (left > 0) {
      ThriftReader thrift(rest);
      const Page page = read_page(thrift);
      rest = rest.subspan(thrift.position());
      if (static_cast<std::uint64_t>(page.packed_nbytes) > rest.size()) {
        fail("has a page that ends too early");
      }
      const ConstBytes packed = rest.first(static_cast<std::size_t>(page.packed_nbytes));
      rest = rest.subspan(packed.size());
      Buffer bytes;
      if (page.type == kDictionaryPage) {
        if (std::exchange(has_dictionary, true)) fail("has a column with two dictionaries");
        unpack(packed, chunk.codec, static_cast<std::size_t>(page.nbytes), bytes);
        dictionary_at = column.values.size();
        dictionary_size = static_cast<std::size_t>(page.values);
        read_plain(bytes, chunk.type, dictionary_size, dictionary_numbers, column.values);
        continue;
      }
      if (page.type != kDataPage && page.type != kDataPageV2) continue;
      if (page.values == 0 || page.values > left) fail("has a page of more values than the column");
      const auto count = static_cast<std::size_t>(page.values);
      left -= page.values;

      std::vector<std::uint32_t> present;  // 1 where there is a value
      ConstBytes data;
      if (page.type == kDataPageV2) {
        const auto levels = static_cast<std::uint64_t>(page.levels_nbytes);
        if (page.repeats_nbytes != 0) unknown("repeated values");
        if (levels > packed.size() || page.nbytes < page.levels_nbytes) {
          fail("has a page that ends too early");
        }
        if (!required) present = read_runs(packed.first(levels), 1, count);
        unpack(packed.subspan(levels),
               page.is_packed ? chunk.codec : kUncompressed,
               static_cast<std::size_t>(page.nbytes - page.levels_nbytes),
               bytes);
        data = bytes;
      } else {
        unpack(packed, chunk.codec, static_cast<std::size_t>(page.nbytes), bytes);
        data = bytes;
        if (!required) {
          if (data.size() < 4) fail("has a page that ends too early");
          const std::uint32_t levels = load_le<std::uint32_t>(data.data());
          data = data.subspan(4);
          if (levels > data.size()) fail("has a page that ends too early");
          present = read_runs(data.first(levels), 1, count);
          data = data.subspan(levels);
        }
      }
      const std::size_t values =
          required ? count
                   : static_cast<std::size_t>(std::count(present.begin(), present.end(), 1U));
      add_values(chunk,
                 column,
                 page,
                 data,
                 present,
                 values,
                 dictionary_numbers,
                 dictionary_at,
                 dictionary_size);
    }
  }

  void add_values(const Chunk& chunk,
                  ParquetColumn& column,
                  const Page& page,
                  ConstBytes data,
                  const std::vector<std::uint32_t>& present,
                  std::size_t values,
                  const std::vector<std::int64_t>& dictionary,
                  std::size_t dictionary_at,
                  std::size_t dictionary_size) {
    std::vector<std::int64_t> numbers;
    std::vector<std::uint32_t> indices;
    if (page.encoding == kPlain) {
      const std::size_t first = column.values.size();
      read_plain(data, chunk.type, values, numbers, column.values);
      if (column.is_bytes) {
        for (std::size_t i = 0; i < values; ++i) {
          indices.push_back(static_cast<std::uint32_t>(first + i));
        }
      }
    } else if (page.encoding == kPlainDictionary || page.encoding == kRleDictionary) {
      if (values > 0) {
        if (data.empty()) fail("has a page that ends too early");
        indices = read_runs(data.subspan(1), std::to_integer<unsigned>(data[0]), values);
      }
      for (std::uint32_t& index : indices) {
        if (index >= dictionary_size) fail("has a value that its dictionary lacks");
        if (!column.is_bytes) numbers.push_back(dictionary[index]);
        index += static_cast<std::uint32_t>(dictionary_at);
      }
    } else {
      unknown("encoding " + std::to_string(page.encoding));
    }
    std::size_t next = 0;
    for (std::int64_t i = 0; i < page.values; ++i) {
      const bool is_there = present.empty() || present[static_cast<std::size_t>(i)] == 1;
      if (column.is_bytes) {
        column.rows.push_back(is_there ? indices[next] : ParquetColumn::kNull);
      } else {
        column.numbers.push_back(is_there ? numbers[next] : 0);
      }
      if (is_there) ++next;
    }
  }

  ConstBytes file_;
  std::string name_;
  std::span<const std::string_view> wanted_;
  std::uint64_t max_rows_;
  std::size_t text_nbytes_ = 0;
  std::int64_t rows_ = -1;
  std::vector<Element> elements_;
  std::vector<Chunk> chunks_;
};

}  // namespace

const ParquetColumn* ParquetTable::find(std::string_view name) const {
  for (const ParquetColumn& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

std::size_t ParquetTable::nbytes() const {
  std::size_t n = 0;
  for (const ParquetColumn& column : columns) {
    n += column.numbers.size() * sizeof(std::int64_t) + column.rows.size() * sizeof(std::uint32_t);
    for (const std::string& text : column.values) n += sizeof text + text.size();
  }
  return n;
}

ParquetTable read_parquet(ConstBytes file,
                          const std::string& name,
                          std::span<const std::string_view> wanted,
                          std::uint64_t max_rows) {
  return File(file, name, wanted, max_rows).read();
}

}  // namespace headrace
