#pragma once

#include "loader/plan.h"

namespace headrace::loader {

// Makes the tensors of a batch, and tells the planned variables where in a sample they are.
void lay_out_tensors(Plan& plan, const std::vector<Variable>& variables);

}  // namespace headrace::loader
