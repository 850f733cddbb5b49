#pragma once

// Walks the headers of a source, on the host where it has the bytes, else on the device.

#include "kernels/zstd/format.h"

namespace headrace::SIMT_SPACE::zstd {

// How much of everything there is before some place.
struct Tally {
  u64 records = 0;
  u64 literals = 0;  // bytes of the pool
  u32 frames = 0, blocks = 0;
  u32 with_sequences = 0, with_pool_literals = 0;  // blocks
  u32 checksums = 0;

  friend Tally operator+(Tally a, const Tally& b) {
    a.records += b.records;
    a.literals += b.literals;
    a.frames += b.frames;
    a.blocks += b.blocks;
    a.with_sequences += b.with_sequences;
    a.with_pool_literals += b.with_pool_literals;
    a.checksums += b.checksums;
    return a;
  }
  friend Tally operator-(Tally a, const Tally& b) {
    a.records -= b.records;
    a.literals -= b.literals;
    a.frames -= b.frames;
    a.blocks -= b.blocks;
    a.with_sequences -= b.with_sequences;
    a.with_pool_literals -= b.with_pool_literals;
    a.checksums -= b.checksums;
    return a;
  }
};

// Where to write what is found. Of each at most `capacity`; what is beyond is only counted.
struct ParseOutput {
  u32 capacity = 0;
  Frame* frames = nullptr;
  Block* blocks = nullptr;
  u32* with_sequences = nullptr;
  u32* with_pool_literals = nullptr;
};

SIMT_HOST_DEVICE u64 read_little(const u8* p, u32 nbytes) {
  u64 value = 0;
  for (u32 i = 0; i < nbytes; ++i) value |= u64{p[i]} << 8 * i;
  return value;
}

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.1, behind the magic number.
struct FrameDescriptor {
  bool has_window, has_checksum, is_reserved;
  u32 id_nbytes, size_nbytes;
  SIMT_HOST_DEVICE u32 nbytes() const { return 1 + has_window + id_nbytes + size_nbytes; }
};
SIMT_HOST_DEVICE FrameDescriptor read_frame_descriptor(u32 byte) {
  const bool single_segment = byte & 32;
  const u32 id_flag = byte & 3, size_flag = byte >> 6;
  return {!single_segment,
          (byte & 4) != 0,
          (byte & 8) != 0,
          id_flag == 3 ? 4 : id_flag,
          size_flag == 0 ? single_segment : 1u << size_flag};
}

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.1.1
struct LiteralsHeader {
  u32 type;           // 0: raw, 1: RLE, 2: compressed, 3: with the table before
  u32 header_nbytes;  // 0: there is no room for it
  u32 count, nbytes;  // decoded, encoded
  u32 streams;
};
SIMT_HOST_DEVICE LiteralsHeader read_literals_header(const u8* p, u32 room) {
  if (room == 0) return {};
  const u32 type = *p & 3, format = *p >> 2 & 3;
  u32 nbytes, count_bits, shift = 4;
  if (type >= 2) {
    nbytes = format < 2 ? 3 : format + 2;
    count_bits = format < 2 ? 10 : format == 2 ? 14 : 18;
  } else {
    nbytes = format == 1 ? 2 : format == 3 ? 3 : 1;
    count_bits = format == 1 ? 12 : format == 3 ? 20 : 5;
    if (nbytes == 1) shift = 3;
  }
  if (nbytes > room) return {};
  const u64 header = read_little(p, nbytes) >> shift;
  const u32 mask = (1u << count_bits) - 1, count = static_cast<u32>(header) & mask;
  if (type == 0) return {type, nbytes, count, count, 0};
  if (type == 1) return {type, nbytes, count, 1, 0};
  return {type, nbytes, count, static_cast<u32>(header >> count_bits) & mask, format ? 4u : 1u};
}

class Parser {
 public:
  SIMT_HOST_DEVICE Parser(const u8* data, u32 nbytes, u32 target_nbytes, u32 source, Tally before)
      : data_(data),
        nbytes_(nbytes),
        target_nbytes_(target_nbytes),
        source_(source),
        max_blocks_(before.blocks + kSpareBlocks + target_nbytes / kMinMeanBlock),
        tally_(before) {}

  // With a fault, what was found so far is void.
  SIMT_HOST_DEVICE Fault run(const ParseOutput& output) {
    output_ = output;
    while (at_ < nbytes_)
      if (const Fault fault = frame(); fault != Fault::none) return fault;
    return Fault::none;
  }

  SIMT_HOST_DEVICE const Tally& tally() const { return tally_; }

 private:
  static constexpr u32 kMagic = 0xfd2fb528, kSkippableMagic = 0x184d2a50;
  static constexpr u32 kMaxWindowLog = 31;  // libzstd's
  static constexpr u32 kEmptyChecksum = 0x51d8e999;
  // Plans are by blocks, about 128 bytes each: this holds them to half a byte a decoded byte,
  // however small the blocks of hostile sources are. Beyond, the host decodes.
  static constexpr u32 kSpareBlocks = 1024, kMinMeanBlock = 256;

  SIMT_HOST_DEVICE u32 left() const { return nbytes_ - at_; }
  SIMT_HOST_DEVICE u64 little(u32 at, u32 nbytes) const { return read_little(data_ + at, nbytes); }

  SIMT_HOST_DEVICE Fault frame();
  SIMT_HOST_DEVICE Fault frame_header(u64& content_nbytes, bool& has_checksum);
  SIMT_HOST_DEVICE Fault block(bool& last);
  SIMT_HOST_DEVICE Fault compressed_block(Block& block, u32 end);
  SIMT_HOST_DEVICE Fault literals_section(Block& block, u32 end);
  SIMT_HOST_DEVICE Fault sequences_section(Block& block, u32 end);
  SIMT_HOST_DEVICE Fault add(const Block& block);

  const u8* data_;
  u32 nbytes_, target_nbytes_, source_;
  u64 max_blocks_;  // up to which the tally may count
  u32 at_ = 0;
  u64 least_nbytes_ = 0;  // that come out of the blocks so far
  // Of the frame: which bytes define the current tables; 0 for none.
  u32 huffman_at_ = 0, huffman_end_ = 0;
  u32 tables_at_[3] = {}, tables_end_[3] = {};
  Tally tally_;
  ParseOutput output_;
};

SIMT_HOST_DEVICE Fault Parser::frame() {
  if (left() < 4) return Fault::truncated;
  const u32 magic = static_cast<u32>(little(at_, 4));
  if ((magic & ~15u) == kSkippableMagic) {
    if (left() < 8) return Fault::truncated;
    const u64 nbytes = 8 + little(at_ + 4, 4);
    if (nbytes > left()) return Fault::truncated;
    at_ += static_cast<u32>(nbytes);
    return Fault::none;
  }
  if (magic != kMagic) return Fault::malformed;
  at_ += 4;

  u64 content_nbytes = kUnknown;
  bool has_checksum = false;
  if (const Fault fault = frame_header(content_nbytes, has_checksum); fault != Fault::none)
    return fault;
  const u32 first_block = tally_.blocks;
  huffman_at_ = 0;
  for (u32& at : tables_at_) at = 0;
  for (bool last = false; !last;)
    if (const Fault fault = block(last); fault != Fault::none) return fault;

  u32 checksum = kEmptyChecksum;
  if (has_checksum) {
    if (left() < 4) return Fault::truncated;
    checksum = static_cast<u32>(little(at_, 4));
    at_ += 4;
  }
  if (tally_.blocks == first_block) {
    if (content_nbytes != kUnknown && content_nbytes != 0) return Fault::malformed;
    return checksum == kEmptyChecksum ? Fault::none : Fault::checksum;
  }
  if (tally_.frames < output_.capacity)
    output_.frames[tally_.frames] = {source_,
                                     first_block,
                                     tally_.blocks,
                                     static_cast<u32>(content_nbytes),
                                     checksum,
                                     has_checksum};
  ++tally_.frames;
  tally_.checksums += has_checksum;
  return Fault::none;
}

SIMT_HOST_DEVICE Fault Parser::frame_header(u64& content_nbytes, bool& has_checksum) {
  if (left() < 1) return Fault::truncated;
  const FrameDescriptor descriptor = read_frame_descriptor(data_[at_]);
  if (descriptor.is_reserved) return Fault::malformed;
  if (left() < descriptor.nbytes()) return Fault::truncated;
  has_checksum = descriptor.has_checksum;
  ++at_;
  // Offsets may reach back to the start of the frame whatever the window: all of it is there.
  if (descriptor.has_window && 10u + (data_[at_++] >> 3) > kMaxWindowLog) return Fault::unsupported;
  if (little(at_, descriptor.id_nbytes) != 0) return Fault::unsupported;
  at_ += descriptor.id_nbytes;
  const u32 size_nbytes = descriptor.size_nbytes;
  if (size_nbytes) {
    content_nbytes = little(at_, size_nbytes) + (size_nbytes == 2 ? 256 : 0);
    if (content_nbytes > target_nbytes_) return Fault::wrong_size;
  }
  at_ += size_nbytes;
  return Fault::none;
}

SIMT_HOST_DEVICE Fault Parser::block(bool& last) {
  if (left() < 3) return Fault::truncated;
  const u32 header = static_cast<u32>(little(at_, 3)), type = header >> 1 & 3, nbytes = header >> 3;
  at_ += 3;
  last = header & 1;
  if (type == 3 || nbytes > kMaxBlock) return Fault::malformed;
  const u32 encoded_nbytes = type == 1 ? 1 : nbytes;
  if (encoded_nbytes > left()) return Fault::truncated;
  Block block{};
  block.source = source_;
  block.frame = tally_.frames;
  block.end = at_ + encoded_nbytes;
  block.literals_at = at_;
  block.record_count = 1;
  at_ = block.end;
  if (type == 2) return compressed_block(block, at_);
  block.nbytes = nbytes;
  block.literal_kind = Literals::stored;
  block.literal_count = nbytes;
  if (type == 1) {  // one literal and a match at offset 1
    block.literal_count = 1;
    block.record_count = 2;
  }
  return nbytes ? add(block) : Fault::none;
}

SIMT_HOST_DEVICE Fault Parser::compressed_block(Block& block, u32 end) {
  if (const Fault fault = literals_section(block, end); fault != Fault::none) return fault;
  if (const Fault fault = sequences_section(block, end); fault != Fault::none) return fault;
  block.nbytes = block.literal_count + kMinMatch * block.sequence_count;
  block.record_count = block.sequence_count + 1;
  if (block.nbytes > kMaxBlock) return Fault::malformed;
  return add(block);
}

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.1
SIMT_HOST_DEVICE Fault Parser::literals_section(Block& block, u32 end) {
  const u32 at = block.literals_at;
  const LiteralsHeader header = read_literals_header(data_ + at, end - at);
  if (header.header_nbytes == 0 || header.count > kMaxBlock) return Fault::malformed;
  block.literals_at = at + header.header_nbytes;
  block.literals_nbytes = header.nbytes;
  block.literal_count = header.count;
  block.streams = static_cast<u8>(header.streams);
  block.literal_kind = header.type == 0   ? Literals::stored
                       : header.type == 1 ? Literals::repeated
                                          : Literals::huffman;
  if (header.streams == 4 && header.count < 6) return Fault::malformed;
  if (block.literals_nbytes > end - block.literals_at) return Fault::malformed;
  if (header.type == 2) {
    huffman_at_ = block.literals_at;
    huffman_end_ = block.literals_at + block.literals_nbytes;
  }
  if (header.type >= 2 && huffman_at_ == 0) return Fault::malformed;
  block.huffman_at = huffman_at_;
  block.huffman_end = huffman_end_;
  return Fault::none;
}

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.2
SIMT_HOST_DEVICE Fault Parser::sequences_section(Block& block, u32 end) {
  u32 at = block.literals_at + block.literals_nbytes;
  if (at == end) return Fault::malformed;
  const u32 first = data_[at++];
  const u32 more = first < 128 ? 0 : first < 255 ? 1 : 2;
  if (more > end - at) return Fault::malformed;
  const u32 rest = static_cast<u32>(little(at, more));
  at += more;
  block.sequence_count = more == 0 ? first : more == 1 ? (first - 128) << 8 | rest : rest + 0x7f00;
  if (first == 0) return at == end ? Fault::none : Fault::malformed;
  // No sequences in two bytes: libzstd's versions do not agree on what follows, and none writes it.
  if (block.sequence_count == 0) return Fault::malformed;
  if (at == end || data_[at] & 3) return Fault::malformed;
  block.modes_at = at;
  for (u32 i = 0; i < 3; ++i) {
    if ((data_[at] >> (6 - 2 * i) & 3) != 3) {
      tables_at_[i] = at;
      tables_end_[i] = end;
    }
    if (tables_at_[i] == 0) return Fault::malformed;
    block.tables_at[i] = tables_at_[i];
    block.tables_end[i] = tables_end_[i];
  }
  return Fault::none;
}

SIMT_HOST_DEVICE Fault Parser::add(const Block& found) {
  least_nbytes_ += found.nbytes;
  if (least_nbytes_ > target_nbytes_) return Fault::wrong_size;
  // Those of nothing but a Huffman table count: it must be a good one.
  if (found.nbytes == 0 && found.literal_kind != Literals::huffman) return Fault::none;
  if (tally_.blocks == max_blocks_) return Fault::unsupported;
  const bool pool_literals = found.literal_kind != Literals::stored;
  if (tally_.blocks < output_.capacity) {
    Block& block = output_.blocks[tally_.blocks] = found;
    block.records = tally_.records;
    block.literals = tally_.literals;
    if (found.sequence_count) output_.with_sequences[tally_.with_sequences] = tally_.blocks;
    if (pool_literals) output_.with_pool_literals[tally_.with_pool_literals] = tally_.blocks;
  }
  ++tally_.blocks;
  tally_.records += found.record_count;
  tally_.with_sequences += found.sequence_count != 0;
  if (pool_literals) {
    ++tally_.with_pool_literals;
    tally_.literals += found.literal_count;
  }
  return Fault::none;
}

}  // namespace headrace::SIMT_SPACE::zstd
