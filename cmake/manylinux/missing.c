// What libstdc++.a takes from a C library that is newer than those a wheel is for, and what there are
// several versions of.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

// 2.32: whether counts of references need no atomic instructions. They have them always.
char __libc_single_threaded = 0;

// 2.36: std::random_device.
uint32_t arc4random(void) {
  uint32_t number;
  size_t filled = 0;
  while (filled < sizeof number) {
    const ssize_t n = getrandom((char*)&number + filled, sizeof number - filled, 0);
    if (n >= 0) {
      filled += (size_t)n;
    } else if (errno != EINTR) {
      abort();
    }
  }
  return number;
}

// From 2.29 on there are others beside these, which leave errno to whoever looks at it.
#define OLD_VERSION(name) __asm__(".symver old_" #name ", " #name "@GLIBC_2.2.5")

OLD_VERSION(exp2);
OLD_VERSION(log2);
OLD_VERSION(pow);

double old_exp2(double);
double old_log2(double);
double old_pow(double, double);

double exp2(double x) { return old_exp2(x); }
double log2(double x) { return old_log2(x); }
double pow(double x, double y) { return old_pow(x, y); }
