#pragma once

// https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.3.2.1

#include "simt/simt.h"

namespace headrace::SIMT_SPACE::zstd {

// Which of the three codes of a sequence.
enum : u32 { kLiteralLengths, kOffsets, kMatchLengths };

SIMT_CONSTANT u32 kMaxLogs[3] = {9, 8, 9};
SIMT_CONSTANT u32 kMaxSymbols[3] = {35, 31, 52};

// Of an entry of the tables, by code: baseline and number of extra bits.
SIMT_HOST_DEVICE constexpr u32 code(u32 baseline, u32 bits) { return baseline | bits << 24; }
// clang-format off
SIMT_TABLE u32 kLiteralLengthCodes[36] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    code(16, 1), code(18, 1), code(20, 1), code(22, 1), code(24, 2), code(28, 2), code(32, 3),
    code(40, 3), code(48, 4), code(64, 6), code(128, 7), code(256, 8), code(512, 9),
    code(1024, 10), code(2048, 11), code(4096, 12), code(8192, 13), code(16384, 14),
    code(32768, 15), code(65536, 16)};
SIMT_TABLE u32 kMatchLengthCodes[53] = {
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
    28, 29, 30, 31, 32, 33, 34,
    code(35, 1), code(37, 1), code(39, 1), code(41, 1), code(43, 2), code(47, 2), code(51, 3),
    code(59, 3), code(67, 4), code(83, 4), code(99, 5), code(131, 7), code(259, 8), code(515, 9),
    code(1027, 10), code(2051, 11), code(4099, 12), code(8195, 13), code(16387, 14),
    code(32771, 15), code(65539, 16)};
// clang-format on
SIMT_DEVICE u32 code_baseline(u32 entry) { return entry & 0xffffff; }
SIMT_DEVICE u32 code_bits(u32 entry) { return entry >> 24; }

// Distributions of the predefined mode.
SIMT_CONSTANT u32 kPredefinedLogs[3] = {6, 5, 6};
SIMT_CONSTANT u32 kPredefinedSymbols[3] = {36, 29, 53};
// clang-format off
SIMT_TABLE signed char kPredefined[3][53] = {
    {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
     -1, -1, -1, -1},
    {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1},
    {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1}};
// clang-format on

}  // namespace headrace::SIMT_SPACE::zstd
