#pragma once

// Blocks that libzstd would not write: random sequences, coded with the predefined or RLE tables.

#include <array>

#include "kernels/zstd/codes.h"
#include "kernels/zstd_frames.h"

namespace headrace::test {

// Bits in the order of a writer, the last ones being read first.
class BitWriter {
 public:
  void put(std::uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; ++i, ++bits_) {
      if (bits_ % 8 == 0) bytes_.push_back(0);
      bytes_.back() = static_cast<std::uint8_t>(bytes_.back() | (value >> i & 1) << bits_ % 8);
    }
  }
  Bytes finish() {
    put(1, 1);
    return bytes_;
  }

 private:
  Bytes bytes_;
  unsigned bits_ = 0;
};

struct TestSequence {
  u32 literal_length, match_length, offset_value;
};

struct Code {
  u32 code, extra, bits;
};
inline Code code_of(std::span<const u32> codes, u32 value) {
  u32 code = static_cast<u32>(codes.size());
  while ((codes[--code] & 0xffffff) > value) {
  }
  return {code, value - (codes[code] & 0xffffff), codes[code] >> 24};
}
inline std::array<Code, 3> codes_of(const TestSequence& sequence) {
  const auto log = static_cast<u32>(std::bit_width(sequence.offset_value) - 1);
  return {code_of(host::zstd::kLiteralLengthCodes, sequence.literal_length),
          {log, sequence.offset_value - (1u << log), log},
          code_of(host::zstd::kMatchLengthCodes, sequence.match_length)};
}

// A predefined table as decoders have it, by RFC 8878 section 4.1.1.
struct TestTable {
  struct Cell {
    u32 symbol, bits, base;
  };
  u32 log;
  std::vector<Cell> cells;

  explicit TestTable(unsigned which)
      : log(host::zstd::kPredefinedLogs[which]), cells(std::size_t{1} << log) {
    const u32 size = 1u << log, symbols = host::zstd::kPredefinedSymbols[which];
    const auto& counts = host::zstd::kPredefined[which];
    u32 high = size, at = 0;
    std::vector<u32> next(symbols);
    for (u32 s = 0; s < symbols; ++s) {
      next[s] = counts[s] < 0 ? 1 : static_cast<u32>(counts[s]);
      if (counts[s] < 0) cells[--high].symbol = s;
    }
    for (u32 s = 0; s < symbols; ++s)
      for (int i = 0; i < counts[s]; ++i) {
        cells[at].symbol = s;
        do at = (at + (size >> 1) + (size >> 3) + 3) % size;
        while (at >= high);
      }
    for (Cell& cell : cells) {
      const u32 number = next[cell.symbol]++;
      cell.bits = log + 1 - static_cast<u32>(std::bit_width(number));
      cell.base = (number << cell.bits) - size;
    }
  }

  // The state with this symbol that leads to `next`.
  u32 state_before(u32 symbol, u32 next) const {
    for (u32 i = 0; i < cells.size(); ++i)
      if (cells[i].symbol == symbol && next - cells[i].base < 1u << cells[i].bits) return i;
    ADD_FAILURE() << "symbol " << symbol << " is not in the table";
    return 0;
  }
};

inline Bytes little_endian(std::uint64_t value, unsigned nbytes) {
  Bytes bytes;
  for (unsigned i = 0; i < nbytes; ++i) bytes.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  return bytes;
}

inline Bytes sequence_count_bytes(std::size_t n) {
  if (n < 128) return little_endian(n, 1);
  if (n < 0x7f00) return little_endian((n >> 8) + 128, 1) + little_endian(n & 255, 1);
  return Bytes{255} + little_endian(n - 0x7f00, 2);
}

// The sequences section. With `rle` all sequences have the codes of the first.
inline Bytes sequences_section(const std::vector<TestSequence>& sequences, bool rle = false) {
  Bytes section = sequence_count_bytes(sequences.size());
  if (sequences.empty()) return section;
  section.push_back(rle ? 0x54 : 0);
  if (rle)
    for (const Code& code : codes_of(sequences[0]))
      section.push_back(static_cast<std::uint8_t>(code.code));
  static const std::array<TestTable, 3> tables{TestTable(0), TestTable(1), TestTable(2)};
  constexpr unsigned kReadOrder[3] = {0, 2, 1};  // of state bits
  BitWriter bits;
  std::array<u32, 3> states{};
  for (std::size_t i = sequences.size(); i-- > 0;) {
    const auto codes = codes_of(sequences[i]);
    if (!rle) {
      std::array<u32, 3> before{};
      for (unsigned t = 0; t < 3; ++t) before[t] = tables[t].state_before(codes[t].code, states[t]);
      if (i + 1 < sequences.size())
        for (unsigned k = 3; k-- > 0;) {
          const unsigned t = kReadOrder[k];
          const auto& cell = tables[t].cells[before[t]];
          bits.put(states[t] - cell.base, cell.bits);
        }
      states = before;
    }
    for (const unsigned t : {0, 2, 1}) bits.put(codes[t].extra, codes[t].bits);
  }
  if (!rle)
    for (const unsigned t : {2, 1, 0}) bits.put(states[t], tables[t].log);
  return section + bits.finish();
}

inline Bytes stored_literals(const Bytes& literals) {
  return little_endian(literals.size() << 4 | 3 << 2, 3) + literals;
}
inline Bytes repeated_literals(std::uint8_t byte, std::size_t count) {
  return little_endian(count << 4 | 3 << 2 | 1, 3) + Bytes{byte};
}

enum class BlockType { raw, rle, compressed };
inline Bytes block_header(BlockType type, std::size_t nbytes, bool last = false) {
  return little_endian(nbytes << 3 | static_cast<unsigned>(type) << 1 | last, 3);
}
inline Bytes block(BlockType type, const Bytes& content) {
  return block_header(type, content.size()) + content;
}
inline Bytes rle_block(std::uint8_t byte, std::size_t count) {
  return block_header(BlockType::rle, count) + Bytes{byte};
}
inline const Bytes kEndBlock = block_header(BlockType::raw, 0, true);

// A frame of known size in one segment.
inline Bytes frame(std::size_t nbytes, const Bytes& blocks) {
  return little_endian(0xfd2fb528, 4) + Bytes{0xe0} + little_endian(nbytes, 8) + blocks;
}

// Decodes sequences as the format says, to tell which are possible and what must come out.
struct Model {
  Bytes content;
  std::array<u32, 3> repeats{1, 4, 8};

  u32 offset_of(const TestSequence& sequence) const {
    if (sequence.offset_value > 3) return sequence.offset_value - 3;
    const u32 kind = sequence.offset_value - 1 + (sequence.literal_length == 0);
    return kind == 3 ? repeats[0] - 1 : repeats[kind];
  }
  void execute(const TestSequence& sequence, const Bytes& literals, std::size_t& used) {
    const u32 offset = offset_of(sequence);
    const u32 kind =
        sequence.offset_value > 3 ? 3 : sequence.offset_value - 1 + (sequence.literal_length == 0);
    if (kind >= 2) repeats[2] = repeats[1];
    if (kind >= 1) repeats[1] = repeats[0];
    repeats[0] = offset;
    append(literals, used, sequence.literal_length);
    for (u32 i = 0; i < sequence.match_length; ++i)
      content.push_back(content[content.size() - offset]);
  }
  void append(const Bytes& literals, std::size_t& used, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) content.push_back(literals[used++]);
  }
};

}  // namespace headrace::test
