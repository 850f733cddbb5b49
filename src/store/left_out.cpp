#include "store/left_out.h"

#include <utility>

namespace headrace {
namespace {

thread_local LeftOut* t_left_out = nullptr;

}  // namespace

LeftOutScope::LeftOutScope(LeftOut& into) noexcept : outer_(std::exchange(t_left_out, &into)) {}

LeftOutScope::~LeftOutScope() { t_left_out = outer_; }

void tell_left_out(std::string_view name) {
  if (t_left_out != nullptr && t_left_out->objects++ == 0) t_left_out->first = name;
}

}  // namespace headrace
