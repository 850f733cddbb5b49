#include "rows.h"

#include <blosc.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>

#include "base/thread_pool.h"
#include "encode.h"

namespace headrace {
namespace {

// What is compared of a row: all up to this, and the last chunks.
constexpr std::size_t kCompared = std::size_t{512} << 20;

Bytes sized(std::size_t bound, const std::function<std::size_t(Bytes&)>& encode) {
  Bytes out(bound);
  out.resize(encode(out));
  return out;
}

Codec zstd(int level) {
  return {"zstd-" + std::to_string(level), &Kernels::zstd, [level](const Bytes& in) {
            return sized(ZSTD_compressBound(in.size()), [&](Bytes& out) {
              return ZSTD_compress(out.data(), out.size(), in.data(), in.size(), level);
            });
          }};
}

Codec lz4() {
  return {"lz4", &Kernels::lz4, [](const Bytes& in) {
            const int n = static_cast<int>(in.size());
            return sized(static_cast<std::size_t>(LZ4_compressBound(n)), [&](Bytes& out) {
              return static_cast<std::size_t>(
                  LZ4_compress_default(reinterpret_cast<const char*>(in.data()),
                                       reinterpret_cast<char*>(out.data()),
                                       n,
                                       static_cast<int>(out.size())));
            });
          }};
}

Codec blosc(const char* inner) {
  return {std::string("blosc-") + inner, &Kernels::blosc, [inner](const Bytes& in) {
            return sized(in.size() + BLOSC_MAX_OVERHEAD, [&](Bytes& out) {
              return static_cast<std::size_t>(blosc_compress_ctx(
                  5, BLOSC_SHUFFLE, 4, in.size(), in.data(), out.data(), out.size(), inner, 0, 1));
            });
          }};
}

Codec zlib() {
  return {"zlib-6", &Kernels::zlib, [](const Bytes& in) {
            return sized(compressBound(in.size()), [&](Bytes& out) {
              uLongf n = out.size();
              compress2(out.data(), &n, in.data(), in.size(), 6);
              return static_cast<std::size_t>(n);
            });
          }};
}

Codec snappy() {
  return {"snappy", &Kernels::snappy, [](const Bytes& in) {
            return sized(snappy_max_compressed_length(in.size()), [&](Bytes& out) {
              std::size_t n = out.size();
              snappy_compress(reinterpret_cast<const char*>(in.data()),
                              in.size(),
                              reinterpret_cast<char*>(out.data()),
                              &n);
              return n;
            });
          }};
}

// Frames by the encoder on the device.
Codec zstd_own(const char* name, const char* encoder) {
  const auto found = std::ranges::find(encoders(), encoder, &Encoder::name);
  return {name, &Kernels::zstd, [&e = *found](const Bytes& in) { return encode_one(e, in); }};
}

}  // namespace

const std::map<std::string, Codec>& codecs() {
  static const std::map<std::string, Codec> all = [] {
    std::map<std::string, Codec> by_name;
    for (Codec codec : {zstd(3),
                        zstd(1),
                        lz4(),
                        blosc("lz4"),
                        blosc("zstd"),
                        zlib(),
                        snappy(),
                        zstd_own("zstd-own", "encode-zstd"),
                        zstd_own("zstd-own-32k", "encode-zstd-32k")})
      by_name.emplace(codec.name, codec);
    return by_name;
  }();
  return all;
}

std::string Row::name() const {
  return codec + "," + data + "," + std::to_string(count) + "x" + std::to_string(nbytes >> 10);
}

Field::Field(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot open " + path);
  bytes_.resize(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
}

std::size_t Field::distinct(std::size_t nbytes) const {
  return std::max<std::size_t>(1, bytes_.size() / nbytes);
}

Bytes Field::chunk(const std::string& data, std::size_t index, std::size_t nbytes) const {
  Bytes out(nbytes);
  if (nbytes > bytes_.size()) throw std::runtime_error("the field is smaller than a chunk");
  const std::size_t start = index % distinct(nbytes) * nbytes;
  std::memcpy(out.data(), bytes_.data() + start, nbytes);
  if (data == "full") {  // noise in the bits that packing left empty
    std::mt19937 random(static_cast<unsigned>(index));
    for (std::size_t i = 0; i + 4 <= nbytes; i += 4) {
      std::uint32_t word;
      std::memcpy(&word, &out[i], 4);
      word ^= random() & 0x3fff;
      std::memcpy(&out[i], &word, 4);
    }
  } else if (data == "shuffled") {
    Bytes planes(nbytes);
    for (std::size_t i = 0; i < nbytes; ++i) planes[i % 4 * (nbytes / 4) + i / 4] = out[i];
    out.swap(planes);
  }
  return out;
}

Inputs::Inputs(const Row& row, const Field& field, Queue& queue)
    : row_(row),
      originals_(std::min(field.distinct(row.nbytes), row.count)),
      encoded_(originals_.size()),
      frames_(row.count),
      host_(row.count) {
  const std::size_t distinct = originals_.size();
  parallel_for(distinct, [&](std::size_t i) {
    originals_[i] = field.chunk(row.data, i, row.nbytes);
    encoded_[i] = codecs().at(row.codec).encode(originals_[i]);
  });
  std::vector<std::size_t> offsets(row.count);
  std::size_t total = kSourcePadding, encoded_nbytes = 0;
  for (std::size_t i = 0; i < row.count; ++i) {
    offsets[i] = total;
    encoded_nbytes += encoded_[i % distinct].size();
    total += (encoded_[i % distinct].size() + kSourcePadding + 15) / 16 * 16;
  }
  ratio_ = static_cast<double>(row.count * row.nbytes) / static_cast<double>(encoded_nbytes);
  sources_ = {queue, total};
  targets_ = {queue, row.count * row.nbytes};
  faults_ = {queue, row.count};
  for (std::size_t i = 0; i < row.count; ++i) {
    const Bytes& bytes = encoded_[i % distinct];
    queue.upload(sources_.data() + offsets[i], bytes.data(), bytes.size());
    frames_[i] = {sources_.data() + offsets[i],
                  bytes.size(),
                  targets_.data() + i * row.nbytes,
                  row.nbytes,
                  static_cast<std::uint32_t>(i)};
    host_[i] = bytes.data();
  }
  queue.fill(targets_.data(), 0xa5, targets_.size());
  queue.fill(faults_.data(), 0, row.count * sizeof(std::uint32_t));
  queue.synchronize();
}

std::size_t Inputs::wrong(Queue& queue) const {
  std::size_t wrong = 0;
  std::vector<std::uint32_t> found(row_.count);
  queue.download(found.data(), faults_.data(), row_.count * sizeof(std::uint32_t));
  queue.synchronize();
  for (std::uint32_t fault : found) wrong += fault != 0;
  Bytes got(row_.nbytes);
  for (std::size_t k = 0; k < row_.count; ++k) {
    if ((k + 1) * row_.nbytes > kCompared && k + originals_.size() < row_.count) continue;
    queue.download(got.data(), targets_.data() + k * row_.nbytes, row_.nbytes);
    queue.synchronize();
    wrong += got != originals_[k % originals_.size()];
  }
  return wrong;
}

}  // namespace headrace
