#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/codec.h"
#include "headrace/error.h"
#include "kernels/filter_kit.h"

namespace headrace::test {
namespace {

struct Type {
  const char* numpy;  // little-endian
  Number number;
  std::size_t nbytes;
};

constexpr Type kTypes[] = {{"|b1", Number::boolean, 1},
                           {"|i1", Number::int8, 1},
                           {"<i2", Number::int16, 2},
                           {"<i4", Number::int32, 4},
                           {"<i8", Number::int64, 8},
                           {"|u1", Number::uint8, 1},
                           {"<u2", Number::uint16, 2},
                           {"<u4", Number::uint32, 4},
                           {"<u8", Number::uint64, 8},
                           {"<f2", Number::float16, 2},
                           {"<f4", Number::float32, 4},
                           {"<f8", Number::float64, 8}};

std::string numpy_name(const Type& type, bool swapped) {
  std::string name = type.numpy;
  if (swapped) name[0] = '>';
  return name;
}

CodecPtr codec(const std::string& name, const std::string& configuration) {
  return resolve_codec(
      {name, configuration}, {{DType::uint8, {0}, {}}, CodecPosition::after_bytes}, {});
}

Bytes on_host(const Codec& codec, const Bytes& encoded, std::size_t nbytes) {
  Bytes decoded(nbytes);
  codec.decode({reinterpret_cast<const std::byte*>(encoded.data()), encoded.size()},
               {reinterpret_cast<std::byte*>(decoded.data()), nbytes},
               {});
  return decoded;
}

template <class T>
void append(Bytes& bytes, T value) {
  bytes.resize(bytes.size() + sizeof(T));
  std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
}

// Values at the limits of types and of roundings, then small ones, then any bits.
Bytes numbers(const Type& type, std::size_t n, std::mt19937_64& random) {
  const double edges[] = {
      0.0,           -0.0,         0.5,           1.0,           -1.0,         1.5,    2.5,
      65504.0,       65519.9,      65520.0,       65536.0,       6e-8,         2.9e-8, 3e-8,
      6.1e-5,        127.0,        128.0,         -128.0,        -129.0,       255.0,  256.0,
      2147483647.0,  2147483648.0, -2147483648.0, -2147483649.0, 4294967296.0, 0x1p63, -0x1p63,
      0x1.fffffep63, 0x1p64,       1e300,         -1e300,        1e-310,       1e-45,  INFINITY,
      -INFINITY,     NAN,          -NAN};
  Bytes bytes;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = random();
    const double edge = edges[r % std::size(edges)];
    const int kind = i < n / 2 ? (r >> 40 & 1 ? 0 : 1) : 2;
    if (type.number == Number::float64 && kind < 2)
      append(bytes, kind == 0 ? edge : static_cast<double>(r >> 20) * 1e-9);
    else if (type.number == Number::float32 && kind < 2)
      append(bytes, kind == 0 ? static_cast<float>(edge) : static_cast<float>(r >> 30) * 1e-3f);
    else
      for (std::size_t k = 0; k < type.nbytes; ++k)
        bytes.push_back(
            static_cast<std::uint8_t>(kind == 0 ? (r >> 41 & 1 ? 255 : 0) : r >> 8 * k));
  }
  return bytes;
}

void swap_each(Bytes& bytes, std::size_t nbytes) {
  for (std::size_t i = 0; i + nbytes <= bytes.size(); i += nbytes)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + nbytes));
}

struct Result {
  std::vector<Bytes> chunks;
  std::vector<Fault> faults;
};

template <class Run>
Result decode(const Place& place,
              const std::vector<Bytes>& encoded,
              const std::vector<std::size_t>& nbytes,
              std::uint64_t seed,
              Run run) {
  std::mt19937_64 random(seed);
  const auto queue = place.make_queue(seed);
  Scratch<std::uint32_t> faults(*queue, encoded.size());
  queue->fill(faults.data(), 0, encoded.size() * sizeof(std::uint32_t));
  Result result;
  result.chunks =
      run_frames(*queue, random, encoded, nbytes, [&](Queue& q, std::span<const Frame> frames) {
        run(q, DecodeBatch{frames, {}, faults.data()});
      });
  result.faults.resize(encoded.size());
  queue->download(result.faults.data(), faults.data(), encoded.size() * sizeof(std::uint32_t));
  queue->synchronize();
  return result;
}

// Makes all NaNs the one of inf - inf: of two that are added compilers keep either.
void unify_nans(Bytes& bytes, const Type& type) {
  if (type.number < Number::float16) return;
  const unsigned mantissa = type.nbytes == 2 ? 10 : type.nbytes == 4 ? 23 : 52;
  const std::uint64_t infinity =
      (std::uint64_t{1} << (8 * type.nbytes - 1)) - (std::uint64_t{1} << mantissa);
  for (std::size_t i = 0; i < bytes.size(); i += type.nbytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, type.nbytes);
    bits &= (std::uint64_t{1} << (8 * type.nbytes - 1)) - 1;
    if (bits <= infinity) continue;
    bits = ~std::uint64_t{0} << (mantissa - 1);
    std::memcpy(bytes.data() + i, &bits, type.nbytes);
  }
}

void expect_as_on_host(const Place& place,
                       TypedDecode Kernels::*kernel,
                       const Codec& codec,
                       const NumberConversion& filter,
                       std::size_t from_nbytes,
                       std::size_t to_nbytes,
                       const std::vector<Bytes>& encoded,
                       const std::string& what,
                       std::uint64_t seed) {
  std::vector<std::size_t> nbytes;
  for (const Bytes& chunk : encoded) nbytes.push_back(chunk.size() / from_nbytes * to_nbytes);
  const Result got = decode(place, encoded, nbytes, seed, [&](Queue& q, const DecodeBatch& batch) {
    (place.kernels->*kernel)(q, batch, filter);
  });
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    EXPECT_EQ(got.faults[i], Fault::none) << place.name << " " << what;
    const Bytes expected = on_host(codec, encoded[i], nbytes[i]);
    const auto differs = std::mismatch(expected.begin(), expected.end(), got.chunks[i].begin());
    EXPECT_TRUE(differs.first == expected.end())
        << place.name << " " << what << " chunk " << i << " of " << expected.size()
        << " bytes, first at " << differs.first - expected.begin();
  }
}

constexpr std::size_t kCounts[] = {0, 1, 31, 33, 900, 1025};

TEST(KernelFilters, CastsBetweenAllTypes) {
  for (const Place& place : places())
    for (const Type& from : kTypes)
      for (const Type& to : kTypes)
        for (const int swapped : {0, 1, 2, 3}) {
          const bool from_swapped = swapped & 1, to_swapped = swapped & 2;
          if ((from_swapped && from.nbytes == 1) || (to_swapped && to.nbytes == 1)) continue;
          const std::string from_name = numpy_name(from, from_swapped),
                            to_name = numpy_name(to, to_swapped);
          std::mt19937_64 random(swapped);
          std::vector<Bytes> encoded;
          for (const std::size_t n : kCounts) encoded.push_back(numbers(from, n, random));
          if (from_swapped)
            for (Bytes& chunk : encoded) swap_each(chunk, from.nbytes);
          const auto host = codec(
              "numcodecs.astype",
              R"({"encode_dtype": ")" + from_name + R"(", "decode_dtype": ")" + to_name + "\"}");
          expect_as_on_host(place,
                            &Kernels::cast,
                            *host,
                            {{from.number, from_swapped}, {to.number, to_swapped}},
                            from.nbytes,
                            to.nbytes,
                            encoded,
                            "cast " + from_name + " to " + to_name,
                            1);
        }
}

TEST(KernelFilters, FixedScaleOffset) {
  const std::pair<double, double> scales[] = {
      {10, 1000}, {0.1, -3.7}, {3, 1e300}, {0, 0}, {1e6, 1e-9}};
  for (const Place& place : places())
    for (const Type& from : kTypes)
      for (const Type& to : kTypes)
        for (const auto& [scale, offset] : scales) {
          std::mt19937_64 random(1);
          std::vector<Bytes> encoded;
          for (const std::size_t n : {5, 1025}) encoded.push_back(numbers(from, n, random));
          std::ostringstream configuration;
          configuration.precision(17);
          configuration << R"({"scale": )" << scale << R"(, "offset": )" << offset
                        << R"(, "dtype": ")" << to.numpy << R"(", "astype": ")" << from.numpy
                        << "\"}";
          expect_as_on_host(place,
                            &Kernels::fixed_scale_offset,
                            *codec("numcodecs.fixedscaleoffset", configuration.str()),
                            {{from.number, false}, {to.number, false}, scale, offset},
                            from.nbytes,
                            to.nbytes,
                            encoded,
                            configuration.str(),
                            1);
        }
}

TEST(KernelFilters, Delta) {
  for (const Place& place : places())
    for (const Type& from : kTypes)
      for (const Type& to : kTypes) {
        if (to.number == Number::boolean) continue;
        for (const bool swapped : {false, true}) {
          if (swapped && (from.nbytes == 1 || to.nbytes == 1)) continue;
          std::mt19937_64 random(swapped);
          std::vector<Bytes> encoded;
          // Of several segments, the first ends within a step.
          for (const std::size_t n : {0, 1, 33, 4097, 8300})
            encoded.push_back(numbers(from, n, random));
          for (Bytes& chunk : encoded) {
            unify_nans(chunk, from);
            if (swapped) swap_each(chunk, from.nbytes);
          }
          const std::string configuration = R"({"dtype": ")" + numpy_name(to, swapped) +
                                            R"(", "astype": ")" + numpy_name(from, swapped) + "\"}";
          expect_as_on_host(place,
                            &Kernels::delta,
                            *codec("numcodecs.delta", configuration),
                            {{from.number, swapped}, {to.number, swapped}},
                            from.nbytes,
                            to.nbytes,
                            encoded,
                            "delta " + configuration,
                            2);
        }
      }
}

// Sums of floats in another order would differ.
TEST(KernelFilters, DeltaOfFloatsSumsInOrder) {
  for (const Place& place : places())
    for (const Type& type : {kTypes[9], kTypes[10], kTypes[11]})
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Bytes> encoded;
        for (const std::size_t n : {1, 2, 64, 3000}) {
          Bytes bytes;
          for (std::size_t i = 0; i < n; ++i) {
            const double v = static_cast<double>(random() % 20001) / 7 - 1400;
            if (type.nbytes == 8)
              append(bytes, v * 1e-3);
            else if (type.nbytes == 4)
              append(bytes, static_cast<float>(v));
            else
              append(bytes,
                     static_cast<std::uint16_t>(random() % 2 << 15 | (0x2c00 + random() % 0x800)));
          }
          if (n == 2) std::memset(bytes.data(), 0, bytes.size());
          if (n == 2) bytes[type.nbytes - 1] = bytes[2 * type.nbytes - 1] = 0x80;  // -0 and -0
          encoded.push_back(bytes);
        }
        const std::string configuration = std::string(R"({"dtype": ")") + type.numpy + "\"}";
        expect_as_on_host(place,
                          &Kernels::delta,
                          *codec("numcodecs.delta", configuration),
                          {{type.number, false}, {type.number, false}},
                          type.nbytes,
                          type.nbytes,
                          encoded,
                          "delta " + configuration,
                          seed);
      }
}

TEST(KernelFilters, SizesThatDoNotFitAreFaults) {
  const NumberConversion filter{{Number::int16, false}, {Number::int32, false}};
  for (const Place& place : places())
    for (const auto kernel : {&Kernels::cast, &Kernels::delta, &Kernels::fixed_scale_offset}) {
      const std::vector<Bytes> encoded{Bytes(10, 1), Bytes(11, 1), Bytes(10, 1), Bytes(10, 1), {}};
      const Result got =
          decode(place, encoded, {20, 20, 16, 21, 4}, 1, [&](Queue& q, const DecodeBatch& batch) {
            (place.kernels->*kernel)(q, batch, filter);
          });
      const std::vector<Fault> expected{
          Fault::none, Fault::wrong_size, Fault::wrong_size, Fault::wrong_size, Fault::wrong_size};
      EXPECT_EQ(got.faults, expected) << place.name;
    }
}

TEST(KernelFilters, PackBits) {
  const auto host = codec("numcodecs.packbits", "");
  for (const Place& place : places())
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<Bytes> encoded;
      std::vector<std::size_t> nbytes;
      for (const std::size_t n : {0, 1, 7, 8, 9, 100, 4096, 10001}) {
        Bytes chunk = random_bytes(random, 1 + (n + 7) / 8);
        chunk[0] = static_cast<std::uint8_t>((8 - n % 8) % 8);
        encoded.push_back(chunk);
        nbytes.push_back(n);
      }
      const auto run = [&](Queue& q, const DecodeBatch& batch) {
        place.kernels->packbits(q, batch);
      };
      const Result got = decode(place, encoded, nbytes, seed, run);
      for (std::size_t i = 0; i < encoded.size(); ++i) {
        EXPECT_EQ(got.faults[i], Fault::none) << place.name << " " << nbytes[i];
        EXPECT_EQ(got.chunks[i], on_host(*host, encoded[i], nbytes[i])) << place.name;
      }

      const Result bad =
          decode(place, {{}, {8, 0}, {3}, {1, 5}, {1, 5}}, {8, 0, 0, 7, 8}, seed, run);
      const std::vector<Fault> expected{
          Fault::truncated, Fault::malformed, Fault::malformed, Fault::none, Fault::wrong_size};
      EXPECT_EQ(bad.faults, expected) << place.name;
    }
}

TEST(KernelFilters, SwapsBytes) {
  for (const Place& place : places())
    for (const std::uint32_t itemsize : {1, 2, 3, 4, 8, 16}) {
      std::mt19937_64 random(itemsize);
      const auto queue = place.make_queue(itemsize);
      std::vector<Bytes> inputs;
      std::vector<std::size_t> nbytes;
      for (const std::size_t n : {0, 1, 5, 1000}) {
        inputs.push_back(random_bytes(random, n * itemsize));
        nbytes.push_back(n * itemsize);
      }
      const std::vector<Bytes> got =
          run_frames(*queue, random, inputs, nbytes, [&](Queue& q, std::span<const Frame> frames) {
            place.kernels->swap_bytes(q, {frames, itemsize});
          });
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        swap_each(inputs[i], itemsize);
        EXPECT_EQ(got[i], inputs[i]) << place.name << " " << itemsize;
      }
    }
}

TEST(KernelFilters, RefusesWhatMakesNoSense) {
  for (const Place& place : places()) {
    const auto queue = place.make_queue(1);
    EXPECT_THROW(place.kernels->delta(*queue, {}, {{}, {Number::boolean, false}}), Error);
    const Frame odd{nullptr, 7, nullptr, 7};
    EXPECT_THROW(place.kernels->swap_bytes(*queue, {{&odd, 1}, 2}), Error);
  }
}

}  // namespace
}  // namespace headrace::test
