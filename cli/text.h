#pragma once

#include <cstdint>

#include "cli/output.h"
#include "headrace/tensor.h"

namespace headrace::cli {

// Elements as text: the last axis on one line, an empty line between planes. Put in C order, in
// parts of any size. Numbers have as many digits as tell them apart.
class TextWriter {
 public:
  TextWriter(Output& out, const Shape& shape);

  void put(const Tensor& part);

 private:
  void separate(std::string& text);

  Output& out_;
  std::int64_t row_ = 1;    // elements of a line
  std::int64_t plane_ = 0;  // elements between empty lines; 0: there are none
  std::int64_t written_ = 0;
};

}  // namespace headrace::cli
