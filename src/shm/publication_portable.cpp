// Memory that can be sealed, sockets without a file, and the identity of who is at the other end,
// are Linux's: without them a reader could not trust what it maps.

#include "headrace/error.h"
#include "headrace/shm.h"

namespace headrace::shm {

namespace {
[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "[shm] publications need memory that can be sealed, which this build does not have: "
              "use an arena");
}
}  // namespace

class Publication::Server {};

const std::string& Publication::name() const { refuse(); }
std::size_t Publication::nbytes() const { refuse(); }
void Publication::close() { refuse(); }
Publication publish(const std::string&, Parts) { refuse(); }
Message attach(const std::string&, const Wait&) { refuse(); }

}  // namespace headrace::shm
