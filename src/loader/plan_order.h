#pragma once

#include "loader/plan.h"

namespace headrace::loader {

// Makes `order` and `order_id` of a plan that has all else.
void plan_order(Plan& plan);

}  // namespace headrace::loader
