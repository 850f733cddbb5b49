// Create an array, write to it, read a part of it, and hand the result to a DLPack consumer.
#include <headrace/dlpack.h>
#include <headrace/headrace.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace hr = headrace;

namespace {

int run(const char* path) {
  const hr::Store store = path ? hr::open_store(path, hr::StoreMode::append) : hr::memory_store();

  hr::CreateOptions options;
  options.shape = {4, 6, 8};
  options.chunks = {1, 6, 8};
  options.dtype = hr::DType::float32;
  options.codecs = {hr::codec::zstd(3)};
  options.attributes = R"({"units": "K"})";
  options.overwrite = true;
  const hr::Array array = hr::create_array(store, "t2m", options);

  std::vector<float> values(4 * 6 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 280.0F + static_cast<float>(i);
  array.write(
      {}, hr::TensorView{values.data(), array.shape(), {}, hr::DType::float32, hr::Device::cpu()});

  // Row 2, every second column from the last one, as a[2, :, ::-2] in Python.
  const hr::Selection selection = {2, hr::all, hr::Slice{{}, {}, -2}};
  hr::Tensor part = array.read(selection);
  std::printf("read %zu bytes of shape (%lld, %lld)\n",
              part.nbytes(),
              static_cast<long long>(part.shape()[0]),
              static_cast<long long>(part.shape()[1]));
  const float first = part.span<float>()[0];
  if (first != values[2 * 48 + 7]) {
    std::fprintf(stderr,
                 "wanted %f, got %f\n",
                 static_cast<double>(values[2 * 48 + 7]),
                 static_cast<double>(first));
    return 1;
  }

  // Into memory that is there already, with strides in bytes: the transpose of the same selection.
  std::vector<float> out(6 * 4);
  array.read_into(
      selection,
      hr::TensorView{out.data(), {6, 4}, {4, 24}, hr::DType::float32, hr::Device::cpu()});
  if (out[1] != values[2 * 48 + 8 + 7]) return 1;

  // The capsule owns the memory now; who takes it calls its deleter.
  DLManagedTensorVersioned* managed = std::move(part).to_dlpack();
  std::printf("DLPack %u.%u, %d dimensions, %d bits an element\n",
              managed->version.major,
              managed->version.minor,
              managed->dl_tensor.ndim,
              managed->dl_tensor.dtype.bits);
  managed->deleter(managed);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
