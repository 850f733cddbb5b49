// Symbols of Deflate streams: a CTA a stream. Of few streams, blocks that were found
// beforehand (find.cpp) are decoded all at once.

#include "kernels/deflate/symbols.h"

#include "kernels/common/fault.h"
#include "kernels/deflate/container.h"
#include "kernels/deflate/stream.h"
#include "kernels/tuning.h"

namespace headrace::SIMT_SPACE::deflate {
namespace {

template <unsigned kCtaThreads, unsigned kLiteralRoot>
struct DecodeStreams {
  static constexpr unsigned kThreads = kCtaThreads;
  static constexpr unsigned kMinCtas = 1024 / kThreads;  // at most 64 registers

  struct Shared : BlockShared<kThreads, kLiteralRoot> {
    u64 bit;
    Fault fault;
    u32 checksum;
    u32 has_zeros[kThreads / simt::kWarp];
  };

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const DeflateStream stream = work.streams[simt::cta_index()];
    const BitSource source(stream.source, stream.source_nbytes);
    Members members{work, source, shared, {shared, source, source.begin}, {work, stream, 0, 0}};
    const Fault fault = members.decode();
    if (simt::thread_index() != 0) return;
    work.results[simt::cta_index()] = {static_cast<u32>(fault), members.checksum};
    if (fault != Fault::none) raise(work.faults, stream.chunk, fault);
  }

 private:
  // All threads hold the same.
  struct Members {
    const DeflateWork& work;
    const BitSource& source;
    Shared& s;
    BlockDecoder<kThreads, kLiteralRoot> decoder;
    DeflateOutput output;
    u32 checksum = 0;

    SIMT_DEVICE Fault decode() {
      const Container container = work.container;
      for (;;) {
        Fault fault = container == Container::none ? Fault::none : header();
        output.member_start = output.position;
        for (bool last = false; fault == Fault::none && !last;)
          if (!take_found_block(last)) fault = decoder.template decode<true>(output, last);
        decoder.move_to((decoder.bit() + 7) & ~u64{7});
        if (fault == Fault::none && container != Container::none) fault = trailer();
        if (fault != Fault::none) return fault;
        if (decoder.bit() == source.end || (container == Container::gzip && only_zeros_follow()))
          return output.position == output.stream.target_nbytes ? Fault::none : Fault::wrong_size;
        if (container != Container::gzip) return Fault::malformed;
      }
    }

    SIMT_DEVICE Fault header() {
      if (simt::thread_index() == 0) {
        ByteReader bytes(source, decoder.bit());
        s.fault = read_header(work.container, bytes);
        s.bit = bytes.bit();
      }
      return share();
    }
    // gzip's checksum becomes that of all members together, so that one pass over the decoded bytes
    // verifies it: a member whose own is wrong makes it wrong.
    SIMT_DEVICE Fault trailer() {
      const u32 nbytes = output.position - output.member_start;
      if (simt::thread_index() == 0) {
        ByteReader bytes(source, decoder.bit());
        s.fault = read_trailer(work.container, bytes, nbytes, s.checksum);
        s.bit = bytes.bit();
      }
      const Fault fault = share();
      checksum =
          output.member_start == 0 ? s.checksum : crc_combine<kCrc32>(checksum, s.checksum, nbytes);
      return fault;
    }
    SIMT_DEVICE Fault share() {
      simt::sync_cta();
      decoder.move_to(s.bit);
      const Fault fault = s.fault;
      simt::sync_cta();
      return fault;
    }

    SIMT_DEVICE bool only_zeros_follow() {
      bool zeros = true;
      for (u64 at = decoder.bit() + 8 * simt::thread_index(); at < source.end && zeros;
           at += 8 * kThreads)
        zeros = source.byte(at) == 0;
      zeros = simt::all(zeros);
      if (simt::lane_index() == 0) s.has_zeros[simt::warp_index()] = zeros;
      simt::sync_cta();
      for (u32 of_warp : s.has_zeros) zeros &= of_warp != 0;
      simt::sync_cta();
      return zeros;
    }

    // Leaves a block whose size is known to WriteFoundBlocks.
    SIMT_DEVICE bool take_found_block(bool& last) {
      const DeflateStream& stream = output.stream;
      if (stream.cell_count == 0) return false;
      const u64 bit = decoder.bit(), cell = stream.first_cell + bit / kSearchCellBits;
      const FoundBlock found = work.search.found[cell];  // asked for along with its start
      if (work.search.starts[cell] != bit % kSearchCellBits) return false;
      if (found.end == 0 || found.nbytes > stream.target_nbytes - output.position) return false;
      if (simt::thread_index() == 0)
        work.search.taken[simt::atomic_add(&work.search.counts->taken, 1u)] = {
            bit, simt::cta_index(), output.position, output.member_start};
      last = found.last;
      decoder.move_to(found.end);
      output.position += found.nbytes;
      return true;
    }
  };
};

template <unsigned kThreads, unsigned kLiteralRoot>
struct FoundShared : BlockShared<kThreads, kLiteralRoot> {
  u32 item;
};

// Where candidates end, and how many bytes they give.
template <unsigned kCtaThreads, unsigned kLiteralRoot>
struct CountFoundBlocks {
  static constexpr unsigned kThreads = kCtaThreads;
  static constexpr unsigned kMinCtas = 1024 / kThreads;
  // zlib's blocks have at most 32 Ki symbols. What goes on for longer is none, or rare.
  static constexpr u32 kMaxStages = 8192 / kThreads;
  using Shared = FoundShared<kThreads, kLiteralRoot>;

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const BlockSearch& search = work.search;
    const u32 all = search.counts->candidates;
    const u32 count = all < search.capacity ? all : search.capacity;
    u32 item = 0;
    while (next_item(&search.counts->next_candidate, count, shared.item, item)) {
      const BlockCandidate candidate = search.candidates[item];
      const DeflateStream stream = work.streams[candidate.stream];
      const u64 cell = stream.first_cell + candidate.bit / kSearchCellBits;
      // Of two in one cell the first counts.
      if (search.starts[cell] != candidate.bit % kSearchCellBits) continue;
      const BitSource source(stream.source, stream.source_nbytes);
      BlockDecoder<kThreads, kLiteralRoot> decoder(shared, source, candidate.bit);
      DeflateOutput output{work, stream, 0, 0};
      bool last = false;
      const Fault fault = decoder.template decode<false>(output, last, kMaxStages);
      if (simt::thread_index() == 0)
        search.found[cell] = {fault == Fault::none ? decoder.bit() : 0, output.position, last};
    }
  }
};

template <unsigned kCtaThreads, unsigned kLiteralRoot>
struct WriteFoundBlocks {
  static constexpr unsigned kThreads = kCtaThreads;
  static constexpr unsigned kMinCtas = 1024 / kThreads;
  using Shared = FoundShared<kThreads, kLiteralRoot>;

  DeflateWork work;

  SIMT_DEVICE void operator()(Shared& shared) const {
    const BlockSearch& search = work.search;
    u32 item = 0;
    while (next_item(&search.counts->next_taken, search.counts->taken, shared.item, item)) {
      const TakenBlock block = search.taken[item];
      const DeflateStream stream = work.streams[block.stream];
      const BitSource source(stream.source, stream.source_nbytes);
      BlockDecoder<kThreads, kLiteralRoot> decoder(shared, source, block.bit);
      DeflateOutput output{work, stream, block.position, block.member_start};
      bool last = false;
      const Fault fault = decoder.template decode<true>(output, last);
      if (fault != Fault::none && simt::thread_index() == 0) {
        simt::atomic_compare_exchange(
            &work.results[block.stream].fault, 0, static_cast<u32>(fault));
        raise(work.faults, stream.chunk, fault);
      }
    }
  }
};

// More threads a stream shorten the way through it, as far as it has bits for them; more streams
// at once fill the device.
void decode_streams(Queue& queue, const DeflateWork& work, u64 most_source_nbytes) {
  const u64 many = tuning_of(queue).deflate.many_streams;
  const u64 segments = 8 * most_source_nbytes / SegmentSize<512>::kBits;
  if (work.count > many || segments <= 128)
    simt::launch(queue, work.count, DecodeStreams<128, 10>{work});
  else if (work.count > many / 2 || segments <= 256)
    simt::launch(queue, work.count, DecodeStreams<256, 11>{work});
  else
    simt::launch(queue, work.count, DecodeStreams<512, 11>{work});
}

template <unsigned kThreads, unsigned kLiteralRoot>
void decode_found(Queue& queue, const DeflateWork& work, u64 most_source_nbytes) {
  const std::size_t blocks = 1024 / kThreads * std::size_t{queue.processors()};
  simt::launch(queue, blocks, CountFoundBlocks<kThreads, kLiteralRoot>{work});
  decode_streams(queue, work, most_source_nbytes);
  simt::launch(queue, blocks, WriteFoundBlocks<kThreads, kLiteralRoot>{work});
}

}  // namespace

void decode_symbols(Queue& queue, const DeflateWork& work, u64 most_source_nbytes) {
  // zlib's blocks take some 27 KB of source.
  const u64 found = u64{work.search.capacity} * (kSearchCellBits / 8) / 27'000;
  const u64 many = tuning_of(queue).deflate.many_blocks;
  if (found == 0)
    decode_streams(queue, work, most_source_nbytes);
  else if (found >= many)
    decode_found<128, 10>(queue, work, most_source_nbytes);
  else if (found >= many / 2)
    decode_found<256, 11>(queue, work, most_source_nbytes);
  else
    decode_found<512, 11>(queue, work, most_source_nbytes);
}

}  // namespace headrace::SIMT_SPACE::deflate
