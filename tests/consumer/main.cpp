// Data, exceptions and virtual functions cross the border of the library, both ways.
#include <headrace/headrace.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <typeinfo>
#include <vector>

namespace hr = headrace;

int main() {
  hr::CreateOptions options;
  options.shape = {300, 200};
  options.dtype = hr::DType::float32;
  const hr::Array array = hr::create_array(hr::memory_store(), "a", options);
  std::vector<float> values(300 * 200);
  std::iota(values.begin(), values.end(), 0.0F);
  array.write({}, hr::TensorView{values.data(), array.shape(), {}, hr::dtype_of<float>(), {}});
  const hr::Tensor tensor = array.read();
  if (!std::ranges::equal(tensor.span<float>(), values) || tensor.ndim() != 2) return 1;

  try {
    hr::open_array(array.store(), "b");  // the library throws
    return 2;
  } catch (const hr::Error& error) {
    if (error.code() != hr::ErrorCode::not_found || typeid(error) != typeid(hr::Error)) return 3;
  }
  try {  // it lets through what the program throws
    array.to(hr::Device::cpu()).read_placed({}, [](const hr::Shape&) -> hr::TensorView {
      throw hr::Error(hr::ErrorCode::conflict, "the program's own");
    });
    return 4;
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const hr::Error*>(&error);
    if (own == nullptr || own->code() != hr::ErrorCode::conflict) return 5;
  }
  std::printf("headrace %s\n", hr::version().c_str());
}
