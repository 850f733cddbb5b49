#include "device/backend.h"

#include "device/cuda_names.h"
#include "headrace/error.h"

namespace headrace {
namespace {

class NoCuda final : public Backend {
 public:
  int device_count() const override { return 0; }
  std::string why_not(int) const override { return kWhyNot; }
  std::string device_name(int) const override { refuse(); }
  std::size_t memory_nbytes(int) const override { refuse(); }
  std::string_view own_name() const override { return cuda_names::kOwnName; }
  const Kernels& kernels() const override { return gpu_kernels(); }
  std::span<const DecoderLibrary> libraries() const override {
    static constexpr DecoderLibrary kLibraries[] = {
        {cuda_names::kNvcomp, cuda_names::kNvcompCodecs, gpu_kernels, why_no_library},
        {cuda_names::kEngine, cuda_names::kEngineCodecs, gpu_kernels, why_no_library}};
    return kLibraries;
  }
  std::unique_ptr<Queue> make_queue(int) override { refuse(); }
  std::unique_ptr<Queue> wrap_stream(int, void*) override { refuse(); }
  std::shared_ptr<void> allocate(Queue&, std::size_t) override { refuse(); }
  std::shared_ptr<std::byte> allocate_pinned(int, std::size_t) override { refuse(); }
  std::shared_ptr<void> pin(int, void*, std::size_t) override { refuse(); }
  void set_allocator(int, const Allocator&) override { refuse(); }

 private:
  static constexpr const char* kWhyNot = "headrace was built without CUDA";
  static std::string why_no_library() { return kWhyNot; }
  [[noreturn]] static void refuse() { throw Error(ErrorCode::device, kWhyNot); }
};

}  // namespace

Backend& cuda_backend() {
  static NoCuda backend;
  return backend;
}

}  // namespace headrace
