#pragma once

// The whole public interface but the loader and the arena, which have headers of their own.

#include "headrace/array.h"
#include "headrace/codec.h"
#include "headrace/config.h"
#include "headrace/device.h"
#include "headrace/dtype.h"
#include "headrace/error.h"
#include "headrace/future.h"
#include "headrace/interrupt.h"
#include "headrace/rechunk.h"
#include "headrace/selection.h"
#include "headrace/store.h"
#include "headrace/tensor.h"
#include "headrace/trace.h"
