#pragma once

#include <vector>

#include "tensor.h"

namespace headrace::python {

// Streams of producers that the stream of a call waits for already. To ask each array for that
// takes tens of microseconds.
class ProducerStreams {
 public:
  bool is_waited_for(const Device& device, void* producer, void* consumer) const;
  void note(const Device& device, void* producer, void* consumer);

 private:
  struct Pair {
    Device device;
    void* producer;
    void* consumer;
  };
  std::vector<Pair> pairs_;
};

bool has_dlpack(nb::handle object);

// Where it says that it lies. NotImplementedError when that is neither the host nor CUDA.
Device dlpack_memory(nb::handle object, const char* what);

// Memory that `object` exports by DLPack, of any shape and strides: through the table of functions
// that its type offers since DLPack 1.2, else by __dlpack__. What was given to the producer's
// stream is waited for by `stream`; `waited` is kept for all arrays of a call.
ArrayView view_of_dlpack(nb::handle object,
                         bool writable,
                         const char* what,
                         const Stream& stream,
                         ProducerStreams& waited);

}  // namespace headrace::python
