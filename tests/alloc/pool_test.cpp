// The pool, the buffers and what starts threads, while memory or threads are short: the n-th
// allocation fails, for every n, or the n-th thread does not start. In an executable of their own,
// since operator new and pthread_create are its own.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/start_thread.h"
#include "base/thread_pool.h"
#include "headrace/error.h"

namespace {

// How many more succeed; negative: all.
std::atomic<long> g_allocations_left{-1};
std::atomic<long> g_threads_left{-1};
thread_local bool t_may_fail = false;  // only the thread under test is refused memory

bool g_once = false;  // only the one, not all after it

bool refused(std::atomic<long>& left) {
  long n = left.load();
  while (n >= 0) {
    if (n == 0) {
      if (g_once) left = -1;
      return true;
    }
    if (left.compare_exchange_weak(n, n - 1)) return false;
  }
  return false;
}

void* take(std::size_t nbytes) {
  if (t_may_fail && refused(g_allocations_left)) throw std::bad_alloc();
  if (void* p = std::malloc(nbytes ? nbytes : 1)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t nbytes) { return take(nbytes); }
void* operator new[](std::size_t nbytes) { return take(nbytes); }
void* operator new(std::size_t nbytes, std::align_val_t alignment) {
  if (t_may_fail && refused(g_allocations_left)) throw std::bad_alloc();
  void* p = nullptr;
  if (posix_memalign(&p, static_cast<std::size_t>(alignment), nbytes) != 0) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*start)(void*),
                              void* argument) {
  if (refused(g_threads_left)) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

namespace headrace {
namespace {

using namespace std::chrono_literals;

// Refuses this thread its n-th allocation from here on and all after it.
class Short {
 public:
  explicit Short(long n, bool once = false) {
    g_once = once;
    g_allocations_left = n;
    t_may_fail = true;
  }
  ~Short() {
    t_may_fail = false;
    g_allocations_left = -1;
    g_once = false;
  }
};

class FewThreads {
 public:
  explicit FewThreads(long n) { g_threads_left = n; }
  ~FewThreads() { g_threads_left = -1; }
};

// The pool still does what it is there for.
void expect_pool_works() {
  std::atomic<int> calls{0};
  parallel_for(64, [&](std::size_t) { ++calls; });
  EXPECT_EQ(calls, 64);
  std::promise<void> ran;
  run_async([&] { ran.set_value(); });
  EXPECT_EQ(ran.get_future().wait_for(30s), std::future_status::ready);
}

// Of workers there are few at first, so that each job wants more: more of them than the test has
// runs, lest all are there before the end.
constexpr int kThreads = 3;
int g_threads = kThreads;

TEST(Pool, DoesAllOfAJobForWhichNoThreadStarts) {
  set_thread_count(++g_threads);
  for (long n = 0; n < 3; ++n) {
    const FewThreads few(n);
    std::atomic<int> calls{0};
    parallel_for(100, [&](std::size_t) { ++calls; });
    EXPECT_EQ(calls, 100);
  }
  expect_pool_works();
}

TEST(Pool, SaysThatThereIsNoThreadForATask) {
  // In a child: its pool has no worker yet.
  EXPECT_EXIT(
      {
        const FewThreads none(0);
        set_thread_count(2);
        try {
          run_async([] { std::_Exit(3); });
        } catch (const Error& error) {
          std::_Exit(error.os_error() == EAGAIN ? 0 : 2);
        }
        std::_Exit(1);
      },
      testing::ExitedWithCode(0),
      "");
}

TEST(Pool, SaysThatThereIsNoThreadForATaskThatATaskWaitsFor) {
  // In a child: its pool has no worker yet.
  EXPECT_EXIT(
      {
        set_thread_count(1);
        std::promise<int> end;
        run_async([&] {
          const FewThreads none(0);
          try {
            run_async([] {});
            end.set_value(1);
          } catch (const Error& error) {
            end.set_value(error.os_error() == EAGAIN ? 0 : 2);
          }
        });
        std::_Exit(end.get_future().get());
      },
      testing::ExitedWithCode(0),
      "");
}

// Each job asks for one thread more than there are, so that one is started, with memory for all but
// the n-th of what that takes. A job that stayed in the list lies where the next one's stack is.
TEST(Pool, ForgetsAJobForWhichThereWasNoMemory) {
  bool failed = true;
  for (long n = 0; failed && n < 50; ++n) {
    set_thread_count(++g_threads);
    std::atomic<int> calls{0};
    try {
      const Short memory(n);
      parallel_for(1000, [&](std::size_t) { ++calls; });
      failed = g_allocations_left == 0;
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << "at allocation " << n << ": a job needs none";
    }
    EXPECT_EQ(calls, 1000) << n;
    expect_pool_works();
  }
  EXPECT_FALSE(failed);
}

TEST(Pool, RefusesATaskForWhichThereWasNoMemory) {
  bool failed = true;
  for (long n = 0; failed && n < 50; ++n) {
    set_thread_count(++g_threads);
    auto ran = std::make_shared<std::promise<void>>();
    auto future = ran->get_future();
    bool taken = false;
    try {
      const Short memory(n);
      run_async([ran] { ran->set_value(); });
      taken = true;
      failed = g_allocations_left == 0;
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    ran.reset();
    // Taken tasks run; of others nothing is kept, so that their promise is broken at once.
    ASSERT_EQ(future.wait_for(30s), std::future_status::ready) << n;
    if (taken) {
      EXPECT_NO_THROW(future.get()) << n;
    } else {
      EXPECT_THROW(future.get(), std::future_error) << n;
    }
    expect_pool_works();
  }
  EXPECT_FALSE(failed);
}

TEST(StartThread, ThrowsAndStartsTheNextOne) {
  {
    const FewThreads none(0);
    EXPECT_THROW(start_thread([] {}), std::system_error);
  }
  for (long n = 0; n < 10; ++n) {
    std::atomic<bool> ran{false};
    try {
      const Short memory(n);
      start_thread([&] { ran = true; }).join();
      EXPECT_TRUE(ran);
    } catch (const std::bad_alloc&) {
      EXPECT_FALSE(ran);
    }
  }
}

// More than the cache keeps, of sizes that it keeps, given back while there is no memory at all.
TEST(Buffer, IsFreedWithoutMemory) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::vector<Buffer> buffers;
  std::vector<std::shared_ptr<std::byte>> shared;
  for (std::size_t i = 0; i < 80; ++i) buffers.emplace_back(kMiB + i % 3 * (kMiB / 2));
  for (std::size_t i = 0; i < 40; ++i) shared.push_back(allocate_shared(2 * kMiB));
  buffers.emplace_back(100);
  {
    const Short memory(0);
    while (!buffers.empty()) buffers.pop_back();
    shared.clear();
    Buffer again(kMiB);  // one of those
    EXPECT_NE(again.data(), nullptr);
    again.resize_keep(3 * kMiB);
    again.reset();
  }
}

TEST(Buffer, SharedMemoryThatCannotBeCountedIsAnError) {
  for (const std::size_t nbytes : {std::size_t{100}, std::size_t{5} << 20}) {
    const Short memory(0, /*once=*/true);  // enough for the message
    try {
      allocate_shared(nbytes);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << "not an Error";
    }
  }
}

}  // namespace
}  // namespace headrace
