// lzma: bytes -> bytes, LZMA in its containers: xz, the older "alone" (.lzma), or none at all.
// Compatibility: Python's lzma module, whose numbers the configuration has: `format` 0 (found out
// when decoding), 1 (xz), 2 (alone), 3 (raw); `check` -1 (the default), 0 (none), 1 (CRC32),
// 4 (CRC64), 10 (SHA-256); `preset` 0 to 9, with bit 31 for the extreme ones; `filters`, a chain of
// objects with an "id" and options, which raw streams need. Several streams are read, as xz does.
// GDAL writes a filter chain of delta and LZMA2 as `delta`, the distance, beside `preset`.
// Spec: https://numcodecs.readthedocs.io/en/stable/compression/lzma.html,
//       https://docs.python.org/3/library/lzma.html, https://tukaani.org/xz/xz-file-format.txt
// {"name": "numcodecs.lzma", "configuration": {"format": 1, "check": -1, "preset": 1}}

#include <lzma.h>

#include <array>
#include <cstring>
#include <limits>
#include <variant>

#include "codec/byte_stream.h"
#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

enum class Format : std::uint8_t { automatic, xz, alone, raw };

// A stream says itself how large its dictionary is. No preset asks for more than 64 MiB.
constexpr std::uint64_t kMaxDecoderMemory = std::uint64_t{1} << 30;

[[noreturn]] void throw_too_much_memory() {
  throw Error(ErrorCode::unsupported, "the stream asks for a dictionary of 1 GiB or more");
}

// A chain of filters and what its entries point at. Immutable: liblzma reads it from many threads.
class Filters {
 public:
  Filters() = default;
  explicit Filters(const std::vector<CodecSpec>& specs);
  Filters(const Filters&) = delete;
  Filters& operator=(const Filters&) = delete;

  bool empty() const { return used_ == 0; }
  bool is_lzma1_alone() const { return used_ == 1 && chain_[0].id == LZMA_FILTER_LZMA1; }
  const lzma_options_lzma& lzma_options() const { return std::get<lzma_options_lzma>(options_[0]); }
  const lzma_filter* chain() const { return chain_.data(); }

 private:
  using Options =
      std::variant<std::monostate, lzma_options_lzma, lzma_options_delta, lzma_options_bcj>;

  std::size_t used_ = 0;
  std::array<Options, LZMA_FILTERS_MAX> options_;
  std::array<lzma_filter, LZMA_FILTERS_MAX + 1> chain_{{{LZMA_VLI_UNKNOWN, nullptr}}};
};

std::uint32_t read_preset(CodecConfig& config) {
  return static_cast<std::uint32_t>(
      config.integer("preset", 0, std::numeric_limits<std::uint32_t>::max(), LZMA_PRESET_DEFAULT));
}

lzma_options_lzma preset_options(const CodecConfig& config, std::uint32_t preset) {
  lzma_options_lzma options;
  if (lzma_lzma_preset(&options, preset)) {
    config.fail("preset", "is none of liblzma's: " + std::to_string(preset));
  }
  return options;
}

lzma_options_lzma read_lzma_options(CodecConfig& config) {
  lzma_options_lzma options = preset_options(config, read_preset(config));
  const auto set = [&](const char* field, auto& value, std::int64_t max) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(
        config.integer(field, 0, max, static_cast<std::int64_t>(value)));
  };
  constexpr std::int64_t kAny = std::numeric_limits<std::uint32_t>::max();
  set("dict_size", options.dict_size, kAny);
  set("lc", options.lc, kAny);
  set("lp", options.lp, kAny);
  set("pb", options.pb, kAny);
  set("mode", options.mode, LZMA_MODE_NORMAL);
  set("nice_len", options.nice_len, kAny);
  set("mf", options.mf, LZMA_MF_BT4);
  set("depth", options.depth, kAny);
  return options;
}

Filters::Filters(const std::vector<CodecSpec>& specs) {
  for (const CodecSpec& spec : specs) {
    CodecConfig config(spec);
    if (used_ == LZMA_FILTERS_MAX) config.fail("filters", "has more than 4 entries");
    const auto id =
        static_cast<lzma_vli>(config.integer("id", 0, std::numeric_limits<std::int64_t>::max()));
    Options& options = options_[used_];
    switch (id) {
      case LZMA_FILTER_LZMA1:
      case LZMA_FILTER_LZMA2:
        options = read_lzma_options(config);
        break;
      case LZMA_FILTER_DELTA:
        options.emplace<lzma_options_delta>().dist = static_cast<std::uint32_t>(
            config.integer("dist", LZMA_DELTA_DIST_MIN, LZMA_DELTA_DIST_MAX, 1));
        break;
      case LZMA_FILTER_X86:
      case LZMA_FILTER_POWERPC:
      case LZMA_FILTER_IA64:
      case LZMA_FILTER_ARM:
      case LZMA_FILTER_ARMTHUMB:
      case LZMA_FILTER_SPARC:
        options.emplace<lzma_options_bcj>().start_offset = static_cast<std::uint32_t>(
            config.integer("start_offset", 0, std::numeric_limits<std::uint32_t>::max(), 0));
        break;
      default:
        config.fail("id", "names no filter of liblzma: " + std::to_string(id));
    }
    config.finish();
    void* const p = std::visit([](auto& o) -> void* { return &o; }, options);
    chain_[used_++] = {id, p};
    chain_[used_] = {LZMA_VLI_UNKNOWN, nullptr};
  }
}

void check(lzma_ret result) {
  switch (result) {
    case LZMA_OK:
    case LZMA_STREAM_END:
      return;
    case LZMA_MEM_ERROR:
      throw Error(ErrorCode::out_of_memory, "liblzma cannot allocate its working memory");
    case LZMA_MEMLIMIT_ERROR:
      throw_too_much_memory();
    case LZMA_OPTIONS_ERROR:
      throw Error(ErrorCode::unsupported, "the stream has options that liblzma does not know");
    case LZMA_BUF_ERROR:
      throw_corrupt("the stream is cut short");
    default:
      throw_corrupt("the stream is malformed");
  }
}

class LzmaStream final : public ByteStream {
 public:
  LzmaStream(Format format, const Filters& filters, ConstBytes src)
      : format_(format), filters_(filters) {
    state_.next_in = reinterpret_cast<const std::uint8_t*>(src.data());
    state_.avail_in = src.size();
    begin();
  }
  ~LzmaStream() override { lzma_end(&state_); }
  LzmaStream(const LzmaStream&) = delete;
  LzmaStream& operator=(const LzmaStream&) = delete;

 private:
  void begin() {
    switch (format_) {
      case Format::automatic:
        return check(lzma_auto_decoder(&state_, kMaxDecoderMemory, 0));
      case Format::xz:
        return check(lzma_stream_decoder(&state_, kMaxDecoderMemory, 0));
      case Format::alone:
        return check(lzma_alone_decoder(&state_, kMaxDecoderMemory));
      case Format::raw:
        return check(lzma_raw_decoder(&state_, filters_.chain()));
    }
  }

  std::size_t step(MutableBytes dst) override {
    state_.next_out = reinterpret_cast<std::uint8_t*>(dst.data());
    state_.avail_out = dst.size();
    const lzma_ret result = lzma_code(&state_, LZMA_RUN);
    check(result);
    if (result == LZMA_STREAM_END) {
      skip_padding();
      at_end_ = state_.avail_in == 0;
      if (!at_end_) begin();
    }
    return dst.size() - state_.avail_out;
  }

  // Streams of xz may be followed by zeros, by fours.
  void skip_padding() {
    if (format_ == Format::alone || format_ == Format::raw) return;
    constexpr std::uint8_t kZeros[4] = {};
    while (state_.avail_in >= 4 && std::memcmp(state_.next_in, kZeros, 4) == 0) {
      state_.next_in += 4;
      state_.avail_in -= 4;
    }
  }

  Format format_;
  const Filters& filters_;
  lzma_stream state_ = LZMA_STREAM_INIT;
};

class Lzma final : public StreamCodec {
 public:
  Lzma(Format format, lzma_check check, std::uint32_t preset, const std::vector<CodecSpec>& filters)
      : format_(format), check_(check), preset_(preset), filters_(filters) {}

  std::string_view name() const override { return "lzma"; }
  std::string_view implementation() const override { return "liblzma"; }
  // LZMA2 stores what it cannot make smaller; LZMA1 does not, and grows by less than an eighth.
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::at_most(n + n / 8 + 1024);
  }

  void encode(ConstBytes src, Buffer& dst) const override;

  const Filters& filters() const { return filters_; }

 private:
  std::unique_ptr<ByteStream> open(ConstBytes src) const override {
    return std::make_unique<LzmaStream>(format_, filters_, src);
  }
  lzma_ret begin_encoding(lzma_stream& state) const;

  Format format_;
  lzma_check check_;
  std::uint32_t preset_;
  Filters filters_;
};

lzma_ret Lzma::begin_encoding(lzma_stream& state) const {
  switch (format_) {
    case Format::xz:
      return filters_.empty() ? lzma_easy_encoder(&state, preset_, check_)
                              : lzma_stream_encoder(&state, filters_.chain(), check_);
    case Format::alone: {
      if (!filters_.empty()) return lzma_alone_encoder(&state, &filters_.lzma_options());
      lzma_options_lzma options;
      if (lzma_lzma_preset(&options, preset_)) return LZMA_OPTIONS_ERROR;
      return lzma_alone_encoder(&state, &options);
    }
    case Format::raw:
      return lzma_raw_encoder(&state, filters_.chain());
    case Format::automatic:
      break;
  }
  return LZMA_OPTIONS_ERROR;
}

void Lzma::encode(ConstBytes src, Buffer& dst) const {
  if (format_ == Format::automatic) {
    throw Error(ErrorCode::invalid_argument, "encode: format 0 is for decoding only");
  }
  lzma_stream state = LZMA_STREAM_INIT;
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&state, lzma_end);
  lzma_ret result = begin_encoding(state);
  dst.resize(encoded_nbytes(src.size()).most);
  state.next_in = reinterpret_cast<const std::uint8_t*>(src.data());
  state.avail_in = src.size();
  state.next_out = reinterpret_cast<std::uint8_t*>(dst.data());
  state.avail_out = dst.size();
  while (result == LZMA_OK && state.avail_out > 0) result = lzma_code(&state, LZMA_FINISH);
  if (result == LZMA_OPTIONS_ERROR) {
    throw Error(ErrorCode::invalid_argument, "encode: liblzma does not take these options");
  }
  if (result != LZMA_STREAM_END) {
    throw Error(ErrorCode::out_of_memory, "encode: liblzma needs more memory or a larger bound");
  }
  dst.resize_keep(dst.size() - state.avail_out);
}

lzma_check read_check(CodecConfig& config, Format format) {
  const auto check = config.integer("check", -1, LZMA_CHECK_ID_MAX, -1);
  if (format != Format::xz && check > LZMA_CHECK_NONE) {
    config.fail("check", "is for format 1 (xz) only");
  }
  if (check == -1) return LZMA_CHECK_CRC64;
  if (!lzma_check_is_supported(static_cast<lzma_check>(check))) {
    config.fail("check", "is none that liblzma knows: " + std::to_string(check));
  }
  return static_cast<lzma_check>(check);
}

CodecSpec filter_spec(const CodecSpec& codec,
                      lzma_vli id,
                      const std::string& option,
                      std::int64_t value) {
  return {
      codec.name,
      "{\"id\": " + std::to_string(id) + ", \"" + option + "\": " + std::to_string(value) + "}"};
}

}  // namespace

CodecPtr make_lzma(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const auto format = static_cast<Format>(config.integer("format", 0, 3, 1));
  const lzma_check check = read_check(config, format);
  const bool has_preset = config.has("preset");
  const std::uint32_t preset = read_preset(config);
  static_cast<void>(preset_options(config, preset));
  std::vector<CodecSpec> filters = config.objects("filters");
  const auto delta = config.integer("delta", 0, LZMA_DELTA_DIST_MAX, 0);
  config.finish();
  if (has_preset && !filters.empty()) config.fail("preset", "and filters are given");
  if (delta != 0) {
    if (!filters.empty()) config.fail("delta", "and filters are given");
    filters = {filter_spec(spec, LZMA_FILTER_DELTA, "dist", delta),
               filter_spec(spec, LZMA_FILTER_LZMA2, "preset", preset)};
  }
  auto codec = std::make_shared<Lzma>(format, check, preset, filters);
  if (format == Format::raw) {
    if (filters.empty()) config.fail("filters", "is missing: raw streams do not say theirs");
    const std::uint64_t needed = lzma_raw_decoder_memusage(codec->filters().chain());
    if (needed == UINT64_MAX) config.fail("filters", "is no chain that liblzma takes");
    if (needed > kMaxDecoderMemory) throw_too_much_memory();
  }
  if (format == Format::alone && !filters.empty() && !codec->filters().is_lzma1_alone()) {
    config.fail("filters", "of format 2 (alone) must be one LZMA1 filter");
  }
  return codec;
}

}  // namespace headrace
