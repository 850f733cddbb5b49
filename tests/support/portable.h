#pragma once

#include <gtest/gtest.h>

#include "base/system.h"

// At the begin of a test of what is Linux's alone.
#define SKIP_IF_PORTABLE(what) \
  if (::headrace::is_portable()) GTEST_SKIP() << "the portable build has no " << (what)
