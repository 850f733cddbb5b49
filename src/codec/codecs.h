#pragma once

// The factories that the table in registry.cpp lists, one a body.

#include "codec/codec.h"

namespace headrace {

CodecPtr make_bytes(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_transpose(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zstd(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_blosc(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_c_blosc(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_gzip_isal(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_gzip_libdeflate(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zlib_isal(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zlib_libdeflate(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_lz4(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_bz2(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_lzma(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zfp(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zfpy(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_crc32c(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_crc32(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_adler32(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_fletcher32(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_jenkins_lookup3(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_sharding(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_delta(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_fixed_scale_offset(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_quantize(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_bit_round(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_as_type(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_pack_bits(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_pack_bits_array(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_reshape(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_scale_offset(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_cast_value(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_bitshuffle(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_shuffle(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_vlen_utf8(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_vlen_bytes(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_vlen_array(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_json2(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_msgpack2(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_base64(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_categorize(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_hdf5_szip(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_hdf5_scaleoffset(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_hdf5_nbit(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_lzf(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_tiff_lzw(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_tiff_packbits(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_tiff_delta(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_tiff_floatpred(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_grib(const CodecSpec& spec, const CodecSite& site);

}  // namespace headrace
