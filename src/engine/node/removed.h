#pragma once

#include "engine/request/array_state.h"

namespace headrace {

// Has reads look, where objects of an array are missing, whether the array is there yet: one whose
// folder or disk is gone is not one that holds its fill value. Of files; elsewhere it would take a
// trip to the store.
void look_for_removal(ArrayShared& array);

}  // namespace headrace
