#include "engine/device/stages.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

constexpr std::size_t kChecksumNbytes = 4;
constexpr std::size_t kAlignment = 256;

Decode decoder(const Kernels& kernels, Kind kind) {
  switch (kind) {
    case Kind::zstd:
      return kernels.zstd;
    case Kind::lz4:
      return kernels.lz4;
    case Kind::gzip:
      return kernels.gzip;
    case Kind::zlib:
      return kernels.zlib;
    case Kind::blosc:
      return kernels.blosc;
    case Kind::packbits:
      return kernels.packbits;
    default:
      return nullptr;
  }
}

ReadHeaders header_reader(const Kernels& kernels, Kind kind) {
  if (kind == Kind::zstd) return kernels.zstd_headers;
  if (kind == Kind::blosc) return kernels.blosc_headers;
  return nullptr;
}

Checksum checksum_of(Kind kind) {
  switch (kind) {
    case Kind::crc32:
      return Checksum::crc32;
    case Kind::adler32:
      return Checksum::adler32;
    case Kind::fletcher32:
      return Checksum::fletcher32;
    default:
      return Checksum::crc32c;
  }
}

NumberFormat format_of(const ElementType& type) {
  const auto first = [&] {
    switch (type.kind) {
      case ElementType::Kind::integer:
        return Number::int8;
      case ElementType::Kind::natural:
        return Number::uint8;
      case ElementType::Kind::floating:
        return Number::float16;
      case ElementType::Kind::boolean:
        break;
    }
    return Number::boolean;
  }();
  // Sizes of 1 to 8 bytes follow each other; floats begin with 2.
  const int doublings = std::countr_zero(type.size) - (type.is_floating() ? 1 : 0);
  return {static_cast<Number>(static_cast<int>(first) + doublings), type.swapped};
}

TypedDecode number_decoder(const Kernels& kernels, Kind kind) {
  switch (kind) {
    case Kind::delta:
      return kernels.delta;
    case Kind::fixed_scale_offset:
      return kernels.fixed_scale_offset;
    case Kind::cast:
      return kernels.cast;
    default:
      return nullptr;
  }
}

std::size_t skipped(const DeviceStage& checksum) { return checksum.at_start ? kChecksumNbytes : 0; }

const char* words_of(Fault fault) {
  switch (fault) {
    case Fault::truncated:
      return "the bytes are cut short";
    case Fault::malformed:
      return "the bytes are malformed";
    case Fault::checksum:
      return "the checksum is wrong";
    case Fault::unsupported:
      return "a feature of the format that devices do not decode; host implementations may";
    default:
      return "the decoder failed";
  }
}

void skip_header(std::span<Frame> frames,
                 std::span<const std::uint8_t*> host_sources,
                 std::size_t nbytes) {
  for (Frame& frame : frames) {
    frame.source += nbytes;
    frame.source_nbytes -= nbytes;
  }
  for (const std::uint8_t*& source : host_sources) source += nbytes;
}

// The first step that decodes something, if there is one, and the bytes that it is given.
const DeviceStep* skip_checksums(const DevicePlan& plan, ConstBytes& encoded) {
  for (const DeviceStep& step : plan.steps) {
    if (!is_checksum(step.stage.kind)) return &step;
    encoded = encoded.subspan(skipped(step.stage), encoded.size() - kChecksumNbytes);
  }
  return nullptr;
}

}  // namespace

DeviceDecoder::DeviceDecoder(Queue& queue,
                             Backend& devices,
                             std::span<const DeviceChunk> chunks,
                             KeptMemory* kept)
    : queue_(queue),
      devices_(devices),
      kernels_(devices.kernels()),
      chunks_(chunks),
      kept_(kept),
      frames_(chunks.size()) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    frames_[i].source = chunks[i].source;
    frames_[i].source_nbytes = chunks[i].nbytes;
    frames_[i].chunk = static_cast<std::uint32_t>(i);
  }
  if (!std::ranges::all_of(chunks, [](const DeviceChunk& chunk) { return chunk.headers; })) return;
  headers_.reserve(chunks.size());
  for (const DeviceChunk& chunk : chunks) headers_.push_back(chunk.headers);
}

void DeviceDecoder::run(const DevicePlan& plan, std::uint32_t* faults) {
  if (frames_.empty()) return;
  for (std::size_t i = 0; i < plan.steps.size(); ++i, faults += frames_.size()) {
    if (is_checksum(plan.steps[i].stage.kind)) {
      verify(plan.steps[i], faults);
    } else {
      move(plan, i, faults);
    }
  }
}

// The bytes stay where they are.
void DeviceDecoder::verify(const DeviceStep& step, std::uint32_t* faults) {
  for (Frame& frame : frames_) {
    frame.target = nullptr;
    frame.target_nbytes = frame.source_nbytes - kChecksumNbytes;
  }
  kernels_.verify(queue_, checksum_of(step.stage.kind), step.stage.at_start, {frames_, {}, faults});
  for (Frame& frame : frames_) {
    frame.source += skipped(step.stage);
    frame.source_nbytes -= kChecksumNbytes;
  }
}

void DeviceDecoder::move(const DevicePlan& plan, std::size_t i, std::uint32_t* faults) {
  const DeviceStep& step = plan.steps[i];
  const bool last = i + 1 == plan.steps.size();
  const auto behind = std::span(plan.steps).subspan(i + 1);
  const auto reader = std::ranges::find_if_not(
      behind, [](const DeviceStep& other) { return is_checksum(other.stage.kind); });
  const bool is_kept = reader != behind.end() && reader->stage.kind == Kind::ragged;
  Scratch<std::uint8_t> next = place_targets(step, last, is_kept);
  if (step.stage.kind == Kind::transpose) {
    transpose(step);
  } else {
    run_stage(queue_,
              kernels_of(devices_, step.library),
              step.stage,
              frames_,
              {{}, headers_},
              faults,
              step.gives_planes);
  }
  current_ = std::move(next);
  headers_.clear();
  for (Frame& frame : frames_) {
    frame.source = frame.target;
    frame.source_nbytes = frame.target_nbytes;
  }
}

// Into memory that the next step reads; the last step, where the caller wants it.
Scratch<std::uint8_t> DeviceDecoder::place_targets(const DeviceStep& step,
                                                   bool last,
                                                   bool is_kept) {
  std::size_t staged = 0;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    frames_[i].target_nbytes = step.nbytes.value_or(chunks_[i].said_nbytes);
    frames_[i].target = last ? chunks_[i].target : nullptr;
    if (!frames_[i].target) staged += aligned_nbytes(frames_[i].target_nbytes);
  }
  Scratch<std::uint8_t> memory;
  if (!is_kept) memory = Scratch<std::uint8_t>(queue_, staged);
  std::uint8_t* at = is_kept ? kept_->add(devices_.allocate(queue_, staged)) : memory.data();
  for (Frame& frame : frames_) {
    if (frame.target) continue;
    frame.target = at;
    at += aligned_nbytes(frame.target_nbytes);
  }
  return memory;
}

void DeviceDecoder::transpose(const DeviceStep& step) {
  PlaceBatch batch;
  batch.itemsize = step.stage.itemsize;
  batch.axes = static_cast<unsigned>(step.shape.size());
  Placement pattern;
  std::int64_t from = batch.itemsize;
  std::int64_t to = batch.itemsize;
  for (unsigned d = batch.axes; d-- > 0;) {
    const std::size_t moved = step.stage.order[d];
    pattern.from[moved].stride = from;
    from *= step.shape[moved];
    pattern.to[d].stride = to;
    to *= step.shape[d];
    pattern.count[d] = step.shape[d];
  }
  RecyclingVector<Placement> placements(frames_.size(), pattern);
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    placements[i].source = frames_[i].source;
    placements[i].target = frames_[i].target;
  }
  batch.placements = placements;
  kernels_.place(queue_, batch);
}

void run_stage(Queue& queue,
               const Kernels& kernels,
               const DeviceStage& stage,
               std::span<Frame> frames,
               const OnHost& on_host,
               std::uint32_t* faults,
               bool gives_planes) {
  const Kind kind = stage.kind;
  if (kind == Kind::lz4) skip_header(frames, on_host.sources, kLz4SizeNbytes);
  const DecodeBatch batch{frames, on_host.sources, faults, gives_planes, on_host.headers};
  if (is_checksum(kind)) return kernels.verify(queue, checksum_of(kind), stage.at_start, batch);
  switch (kind) {
    case Kind::unshuffle:
      return kernels.unshuffle(queue, {frames, stage.itemsize});
    case Kind::bit_unshuffle:
      return kernels.bit_unshuffle(queue, {filter_blocks(stage, frames), stage.itemsize});
    case Kind::swap:
      return kernels.swap_bytes(queue, {frames, stage.itemsize});
    case Kind::ragged:
      return kernels.parse_ragged(queue, {frames, {}, faults}, {stage.itemsize, stage.utf8});
    case Kind::delta:
    case Kind::fixed_scale_offset:
    case Kind::cast:
      return number_decoder(kernels, kind)(
          queue,
          {frames, {}, faults},
          {format_of(stage.encoded), format_of(stage.decoded), stage.scale, stage.offset});
    default:
      decoder(kernels, kind)(queue, batch);
  }
}

std::size_t aligned_nbytes(std::size_t nbytes) {
  return (nbytes + kSourcePadding + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<Frame> filter_blocks(const DeviceStage& stage, std::span<const Frame> chunks) {
  std::vector<Frame> blocks;
  const std::size_t block_nbytes = stage.block_elements * stage.itemsize;
  for (const Frame& chunk : chunks) {
    for (std::size_t at = 0; at < chunk.source_nbytes; at += block_nbytes) {
      Frame block = chunk;
      block.source += at;
      block.target += at;
      block.source_nbytes = std::min<std::size_t>(chunk.source_nbytes - at, block_nbytes);
      block.target_nbytes = block.source_nbytes;
      blocks.push_back(block);
    }
  }
  return blocks;
}

const Kernels& kernels_of(const Backend& devices, std::string_view library) {
  return library.empty() ? devices.kernels() : devices.library(library)->kernels();
}

bool has_kernel(const Kernels& kernels, Kind kind) {
  if (is_checksum(kind)) return kernels.verify != nullptr;
  switch (kind) {
    case Kind::unshuffle:
      return kernels.unshuffle != nullptr;
    case Kind::bit_unshuffle:
      return kernels.bit_unshuffle != nullptr;
    case Kind::swap:
      return kernels.swap_bytes != nullptr;
    case Kind::transpose:
      return kernels.place != nullptr;
    case Kind::ragged:
      return kernels.parse_ragged != nullptr;
    case Kind::delta:
    case Kind::fixed_scale_offset:
    case Kind::cast:
      return number_decoder(kernels, kind) != nullptr;
    default:
      return decoder(kernels, kind) != nullptr;
  }
}

std::string missing_decoder(const Backend& devices, Kind kind, std::string_view library) {
  if (library.empty()) return has_kernel(devices.kernels(), kind) ? "" : "has no kernel yet";
  const DecoderLibrary* offered = devices.library(library);
  if (!offered) return std::string(library) + " is for other devices";
  const std::string why_not = offered->why_not();
  if (!why_not.empty()) return std::string(library) + ": " + why_not;
  return has_kernel(offered->kernels(), kind) ? ""
                                              : std::string(library) + " has no decoder for it";
}

std::string missing_decoder(const Backend& devices, const DevicePlan& plan) {
  if (!plan.why_not.empty()) return plan.why_not;
  for (const DeviceStep& step : plan.steps) {
    const std::string missing = missing_decoder(devices, step.stage.kind, step.library);
    if (!missing.empty()) return "codec " + step.codec + ": " + missing;
  }
  return {};
}

std::size_t checked_nbytes_of(const DevicePlan& plan) {
  std::size_t nbytes = 0;
  for (const DeviceStep& step : plan.steps) {
    if (!is_checksum(step.stage.kind))
      return step.stage.kind == Kind::lz4 ? nbytes + kLz4SizeNbytes : 0;
    nbytes += skipped(step.stage);
  }
  return 0;
}

void check_encoded(const DevicePlan& plan,
                   std::size_t decoded_nbytes,
                   std::size_t nbytes,
                   const std::byte* host) {
  std::size_t skipped_nbytes = 0;
  for (const DeviceStep& step : plan.steps) {
    const auto refuse = [&](const std::string& problem) {
      throw Error(ErrorCode::corrupt, "codec " + step.codec + ": " + problem);
    };
    const auto check = [&](std::size_t wanted, std::size_t found) {
      if (wanted != found)
        refuse("expected " + std::to_string(wanted) + " bytes, got " + std::to_string(found));
    };
    const Kind kind = step.stage.kind;
    if (is_checksum(kind)) {
      if (nbytes < kChecksumNbytes)
        refuse("a checksum of 4 bytes does not fit into " + std::to_string(nbytes));
      skipped_nbytes += skipped(step.stage);
      nbytes -= kChecksumNbytes;
      if (step.nbytes) check(*step.nbytes, nbytes);
      continue;
    }
    if (kind == Kind::lz4) {
      if (nbytes < kLz4SizeNbytes)
        refuse("a size of 4 bytes does not fit into " + std::to_string(nbytes));
      if (step.nbytes) check(*step.nbytes, load_le<std::uint32_t>(host + skipped_nbytes));
    }
    if (!is_compressor(kind)) check(step.source_nbytes, nbytes);
    return;  // what comes after is not known here, and of fixed sizes
  }
  if (nbytes != decoded_nbytes) {
    throw Error(ErrorCode::corrupt,
                "codec bytes: expected " + std::to_string(decoded_nbytes) + " bytes, got " +
                    std::to_string(nbytes));
  }
}

std::size_t said_nbytes(const DevicePlan& plan, ConstBytes encoded) {
  const DeviceStep* const step = skip_checksums(plan, encoded);
  if (!step || !step->said_by) return 0;
  const DeviceStep* const end = plan.steps.data() + plan.steps.size();
  const auto checksums = static_cast<std::size_t>(std::count_if(
      step, end, [](const DeviceStep& other) { return is_checksum(other.stage.kind); }));
  const std::optional<std::size_t> said = [&] {
    try {
      return step->said_by->said_nbytes(encoded);
    } catch (const Error& error) {
      throw Error(error.code(), "codec " + step->codec + ": " + error.what());
    }
  }();
  if (said && *said < checksums * kChecksumNbytes) {
    throw Error(
        ErrorCode::corrupt,
        "codec " + step->codec + ": checksums of 4 bytes do not fit into " + std::to_string(*said));
  }
  if (said && *said <= std::numeric_limits<std::uint32_t>::max()) return *said;
  throw Error(ErrorCode::unsupported,
              "codec " + step->codec + ": bytes whose number only the host can find out");
}

std::unique_ptr<const Headers> read_headers(const Backend& devices,
                                            const DevicePlan& plan,
                                            ConstBytes encoded,
                                            std::size_t said_nbytes) {
  const DeviceStep* const step = skip_checksums(plan, encoded);
  if (!step) return nullptr;
  const ReadHeaders read = header_reader(kernels_of(devices, step->library), step->stage.kind);
  if (!read) return nullptr;
  return read(reinterpret_cast<const std::uint8_t*>(encoded.data()),
              encoded.size(),
              step->nbytes.value_or(said_nbytes));
}

Error fault_error(const DeviceStep& step, Fault fault) {
  std::string words = words_of(fault);
  if (fault == Fault::wrong_size && step.stage.kind == Kind::ragged) {
    words = "expected " + std::to_string(*step.nbytes / sizeof(RaggedElement)) +
            " elements, got another number";
  } else if (fault == Fault::wrong_size && step.nbytes) {
    words = "expected " + std::to_string(*step.nbytes) + " bytes, got another number";
  }
  const bool refused = fault == Fault::unsupported;
  return Error(refused ? ErrorCode::unsupported : ErrorCode::corrupt,
               "codec " + step.codec + ": " + words);
}

}  // namespace headrace
