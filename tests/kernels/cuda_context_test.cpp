// Other libraries of the process make contexts of their own: only a GPU can show what comes of it.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "simt/queue.h"

namespace headrace {
namespace {

// Of the driver, which the tests are not linked with.
template <class Function>
Function* driver_call(void* driver, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(driver, name));
}

TEST(CudaContext, WorksUnderAContextOfAnotherLibrary) {
  std::unique_ptr<Queue> queue = make_gpu_queue(0);
  if (!queue) GTEST_SKIP() << "there is no GPU";
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr);
  // What every version of the driver has; CUDA 13 only changed the newest name.
  auto* const create = driver_call<int(void**, unsigned, int)>(driver, "cuCtxCreate_v2");
  auto* const destroy = driver_call<int(void*)>(driver, "cuCtxDestroy_v2");
  auto* const current = driver_call<int(void**)>(driver, "cuCtxGetCurrent");
  ASSERT_TRUE(create && destroy && current);

  void* theirs = nullptr;
  ASSERT_EQ(create(&theirs, 0, 0), 0);  // and current
  const auto works = [&](Queue& q) {
    std::vector<std::uint8_t> bytes(100000, 7), back(bytes.size());
    const Scratch<std::uint8_t> there(q, bytes.size());
    q.upload(there.data(), bytes.data(), bytes.size());
    const std::unique_ptr<Mark> mark = q.mark();
    q.download(back.data(), there.data(), bytes.size());
    mark->wait();
    q.synchronize();
    EXPECT_EQ(bytes, back);
  };
  works(*queue);              // made before
  works(*make_gpu_queue(0));  // made under it
  void* now = nullptr;
  EXPECT_EQ(current(&now), 0);
  EXPECT_EQ(now, theirs) << "the caller's context is no more current";
  EXPECT_EQ(destroy(theirs), 0);
  works(*queue);
}

}  // namespace
}  // namespace headrace
