// What GCC and clang call at each load, store and atomic of code built with -fsanitize=thread.
// https://github.com/llvm/llvm-project/blob/main/compiler-rt/lib/tsan/rtl/tsan_interface.h

#include "simt/shadow.h"

#ifdef HEADRACE_SIMT_SHADOW

#include <atomic>

namespace {

using headrace::host::simt::Access;
using headrace::host::simt::note;

}  // namespace

#define HEADRACE_PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void** p) { note(p, sizeof(*p), Access::read, HEADRACE_PC); }
void __tsan_vptr_update(void** p, void*) { note(p, sizeof(*p), Access::write, HEADRACE_PC); }
void __tsan_read_range(void* p, unsigned long nbytes) {
  note(p, nbytes, Access::read, HEADRACE_PC);
}
void __tsan_write_range(void* p, unsigned long nbytes) {
  note(p, nbytes, Access::write, HEADRACE_PC);
}

#define HEADRACE_ACCESS(n)                                                                   \
  void __tsan_read##n(void* p) { note(p, n, Access::read, HEADRACE_PC); }                    \
  void __tsan_write##n(void* p) { note(p, n, Access::write, HEADRACE_PC); }                  \
  void __tsan_unaligned_read##n(void* p) { note(p, n, Access::read, HEADRACE_PC); }          \
  void __tsan_unaligned_write##n(void* p) { note(p, n, Access::write, HEADRACE_PC); }        \
  void __tsan_volatile_read##n(void* p) { note(p, n, Access::read, HEADRACE_PC); }           \
  void __tsan_volatile_write##n(void* p) { note(p, n, Access::write, HEADRACE_PC); }         \
  void __tsan_unaligned_volatile_read##n(void* p) { note(p, n, Access::read, HEADRACE_PC); } \
  void __tsan_unaligned_volatile_write##n(void* p) { note(p, n, Access::write, HEADRACE_PC); }
HEADRACE_ACCESS(1)
HEADRACE_ACCESS(2)
HEADRACE_ACCESS(4)
HEADRACE_ACCESS(8)
HEADRACE_ACCESS(16)

// In the strictest order, whatever is asked for.
#define HEADRACE_UPDATE(n, type, name, builtin)                           \
  type __tsan_atomic##n##_##name(volatile type* p, type value, int) {     \
    note(const_cast<type*>(p), n / 8, Access::shared_write, HEADRACE_PC); \
    return builtin(p, value, __ATOMIC_SEQ_CST);                           \
  }
#define HEADRACE_ATOMIC(n, type)                                                                 \
  type __tsan_atomic##n##_load(const volatile type* p, int) {                                    \
    note(const_cast<type*>(p), n / 8, Access::shared_read, HEADRACE_PC);                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                              \
  void __tsan_atomic##n##_store(volatile type* p, type value, int) {                             \
    note(const_cast<type*>(p), n / 8, Access::shared_write, HEADRACE_PC);                        \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                              \
  int __tsan_atomic##n##_compare_exchange_strong(                                                \
      volatile type* p, type* expected, type value, int, int) {                                  \
    note(const_cast<type*>(p), n / 8, Access::shared_write, HEADRACE_PC);                        \
    return __atomic_compare_exchange_n(                                                          \
        p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                              \
  int __tsan_atomic##n##_compare_exchange_weak(                                                  \
      volatile type* p, type* expected, type value, int, int) {                                  \
    note(const_cast<type*>(p), n / 8, Access::shared_write, HEADRACE_PC);                        \
    return __atomic_compare_exchange_n(                                                          \
        p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                              \
  type __tsan_atomic##n##_compare_exchange_val(                                                  \
      volatile type* p, type expected, type value, int, int) {                                   \
    note(const_cast<type*>(p), n / 8, Access::shared_write, HEADRACE_PC);                        \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                             \
  }                                                                                              \
  HEADRACE_UPDATE(n, type, exchange, __atomic_exchange_n)                                        \
  HEADRACE_UPDATE(n, type, fetch_add, __atomic_fetch_add)                                        \
  HEADRACE_UPDATE(n, type, fetch_sub, __atomic_fetch_sub)                                        \
  HEADRACE_UPDATE(n, type, fetch_and, __atomic_fetch_and)                                        \
  HEADRACE_UPDATE(n, type, fetch_or, __atomic_fetch_or)                                          \
  HEADRACE_UPDATE(n, type, fetch_xor, __atomic_fetch_xor)                                        \
  HEADRACE_UPDATE(n, type, fetch_nand, __atomic_fetch_nand)
HEADRACE_ATOMIC(8, unsigned char)
HEADRACE_ATOMIC(16, unsigned short)
HEADRACE_ATOMIC(32, unsigned)
HEADRACE_ATOMIC(64, unsigned long)

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // extern "C"

#endif
