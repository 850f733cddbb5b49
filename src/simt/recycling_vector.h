#pragma once

// Vectors that are made anew for every batch: their memory is kept for the next one. malloc gives
// blocks of this size back to the system, and their fresh pages took half of the time to plan a
// batch of small chunks. For the same reason vectors made by their size alone hold arbitrary
// values.

#include <cstddef>
#include <new>
#include <vector>

namespace headrace {

// Of at least `nbytes`, aligned for any type. Throws std::bad_alloc.
void* take_recycled(std::size_t nbytes);
// `nbytes`: as it was taken.
void give_recycled(void* memory, std::size_t nbytes) noexcept;

template <class T>
struct RecyclingAllocator {
  using value_type = T;

  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}

  T* allocate(std::size_t n) { return static_cast<T*>(take_recycled(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { give_recycled(p, n * sizeof(T)); }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }

  friend bool operator==(RecyclingAllocator, RecyclingAllocator) { return true; }
};

template <class T>
using RecyclingVector = std::vector<T, RecyclingAllocator<T>>;

}  // namespace headrace
