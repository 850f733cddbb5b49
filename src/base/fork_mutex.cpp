#include "base/fork_mutex.h"

#include <pthread.h>

namespace headrace {

// All live ForkMutexes. The list's own lock is taken first, so that none comes or goes while a fork
// is on its way.
struct ForkMutexList {
  Mutex mutex;
  ForkMutex* head GUARDED_BY(mutex) = nullptr;

  static ForkMutexList& get() {
    static ForkMutexList* list = [] {
      auto* made = new ForkMutexList;  // never destroyed: static destructors may still lock
      pthread_atfork(
          [] { get().lock_all(); }, [] { get().unlock_all(); }, [] { get().unlock_all(); });
      return made;
    }();
    return *list;
  }

  // From before a fork until after it.
  void lock_all() NO_THREAD_SAFETY_ANALYSIS {
    mutex.lock();
    for (ForkMutex* m = head; m; m = m->next_) m->lock();
  }
  void unlock_all() NO_THREAD_SAFETY_ANALYSIS {
    for (ForkMutex* m = head; m; m = m->next_) m->unlock();
    mutex.unlock();
  }
};

ForkMutex::ForkMutex() {
  ForkMutexList& list = ForkMutexList::get();
  MutexLock lock(list.mutex);
  next_ = list.head;
  if (next_) next_->previous_ = this;
  list.head = this;
}

ForkMutex::~ForkMutex() {
  ForkMutexList& list = ForkMutexList::get();
  MutexLock lock(list.mutex);
  (previous_ ? previous_->next_ : list.head) = next_;
  if (next_) next_->previous_ = previous_;
}

}  // namespace headrace
