# Included by the build and, installed, by headraceConfig.cmake: both need the same targets.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(BLOSC REQUIRED IMPORTED_TARGET blosc)
pkg_check_modules(DEFLATE REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_package(BZip2 REQUIRED)  # Debian's has no pkg-config file
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(SNAPPY REQUIRED IMPORTED_TARGET snappy)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
# Its header alone: the library is loaded by the first request (src/store/http/curl_library.cpp).
find_package(CURL 7.84 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_library(BOOST_CONTEXT_LIBRARY boost_context REQUIRED)
# An archive before those that it calls.
set(headrace_link_dependencies
  ${BOOST_CONTEXT_LIBRARY}
  fmt::fmt PkgConfig::BLOSC PkgConfig::ZSTD PkgConfig::LZ4 PkgConfig::DEFLATE PkgConfig::ZLIB
  PkgConfig::SNAPPY PkgConfig::ISAL BZip2::BZip2 PkgConfig::LZMA OpenSSL::Crypto
  Threads::Threads ${CMAKE_DL_LIBS})

# Of zfp 1.0, whose own package asks for OpenMP though nothing here does. ZFP_LIBRARY=OFF: without.
find_path(ZFP_INCLUDE_DIR zfp/bitstream.h)
find_library(ZFP_LIBRARY zfp)
if(ZFP_INCLUDE_DIR AND ZFP_LIBRARY)
  list(APPEND headrace_link_dependencies ${ZFP_LIBRARY})
endif()
# HDF5's szip and CCSDS packing of GRIB 2. Debian 12 has no pkg-config file of it. AEC_LIBRARY=OFF: without.
find_path(AEC_INCLUDE_DIR libaec.h)
find_library(AEC_LIBRARY aec)
if(AEC_INCLUDE_DIR AND AEC_LIBRARY)
  list(APPEND headrace_link_dependencies ${AEC_LIBRARY})
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT HEADRACE_PORTABLE)
  pkg_check_modules(LIBURING IMPORTED_TARGET liburing)
  if(LIBURING_FOUND)
    list(APPEND headrace_link_dependencies PkgConfig::LIBURING)
  endif()
else()
  set(LIBURING_FOUND FALSE)
endif()
