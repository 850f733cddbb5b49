#pragma once

// Arithmetic on the elements of one row of a matrix of cells by genes.

#include <cstdint>

namespace headrace::loader {

// In double; those of whole numbers below 2^53 are exact.
double sum_of(const float* values, std::int64_t count);
double sum_of(const double* values, std::int64_t count);

// values[i] / divisor, then log(1 + value) where asked, in place.
void scale(float* values, std::int64_t count, double divisor, bool log1p);
void scale(double* values, std::int64_t count, double divisor, bool log1p);

}  // namespace headrace::loader
