/* How a message changes hands (src/shm/ledger.cpp: allocate, push, pop, release, release_later,
 * rebuild), under death at any step. The lock is as lock.pml has shown it: one at a time, and whoever takes it
 * from the dead repairs.
 *
 * The truth: taken, holds[], head, tail. What follows from it: in_ring. One store each makes an
 * operation count; death before it undoes the operation, death after it completes it.
 */

#define PRODUCER 0
#define CONSUMER 1
#define WATCHER 2
#define PROCESSES 3

byte lock = 0;                /* 1 + the holder */
bool dead[PROCESSES];

bool taken = false;           /* the one block */
bool holds[PROCESSES];
byte head = 0, tail = 0;      /* of a ring with one place */
bool in_ring = false;

bool untidy = false;          /* the block was let go of without the lock */
bool letting_go = false;      /* between the two stores of that */

byte sent = 0;                /* commits that were made */
byte received = 0;

#define HELD (holds[PRODUCER] || holds[CONSUMER] || holds[WATCHER])
#define MAY_DIE(p) if :: p != WATCHER && !dead[p] -> dead[p] = true; goto died :: skip fi

/* What follows from the truth, while nobody is at work. */
inline check() {
  assert(in_ring == (head != tail));
  assert(!taken || HELD || in_ring || untidy || letting_go);
  assert(tail - head <= 1)
}

inline rebuild() {
  untidy = false;
  in_ring = (head != tail);
  taken = (taken && (HELD || in_ring))
}

inline acquire(p) {
  atomic {
    if
    :: lock == 0 -> lock = p + 1; check(); if :: untidy -> rebuild() :: else fi
    :: lock != 0 && dead[lock - 1] -> lock = p + 1; rebuild()
    fi
  }
}

inline unlock() { atomic { check(); lock = 0 } }

inline free_if_unused() {
  if :: !HELD && !in_ring -> taken = false :: else fi
}

proctype producer() {
  byte n = 0;
  do
  :: n < 3 ->
     n++;
     acquire(PRODUCER);
     MAY_DIE(PRODUCER);
     if
     :: taken -> unlock()                 /* no room */
     :: !taken ->
        holds[CONSUMER] = false;          /* what the dead left in a free record */
        holds[WATCHER] = false;
        holds[PRODUCER] = true;
        MAY_DIE(PRODUCER);
        taken = true;                     /* commit */
        MAY_DIE(PRODUCER);
        unlock();
        MAY_DIE(PRODUCER);                /* it writes the message */
        acquire(PRODUCER);
        in_ring = true;
        MAY_DIE(PRODUCER);
        atomic { tail++; sent++ };        /* commit */
        MAY_DIE(PRODUCER);
        holds[PRODUCER] = false;
        MAY_DIE(PRODUCER);
        unlock()
     fi
  :: else -> break
  od;
died: skip
}

proctype consumer() {
  byte n = 0;
  do
  :: n < 3 ->
     n++;
     acquire(CONSUMER);
     MAY_DIE(CONSUMER);
     if
     :: head == tail -> unlock()
     :: head != tail ->
        holds[CONSUMER] = true;
        MAY_DIE(CONSUMER);
        atomic { head++; received++ };    /* commit */
        MAY_DIE(CONSUMER);
        in_ring = false;
        MAY_DIE(CONSUMER);
        unlock();
        MAY_DIE(CONSUMER);                /* it reads the message */
        if
        :: acquire(CONSUMER);
           holds[CONSUMER] = false;       /* commit */
           MAY_DIE(CONSUMER);
           free_if_unused();
           MAY_DIE(CONSUMER);
           unlock()
        :: true ->                        /* whoever has the lock does not go on */
           atomic { holds[CONSUMER] = false; letting_go = true };
           MAY_DIE(CONSUMER);
           atomic { untidy = true; letting_go = false }
        fi
     fi
  :: else -> break
  od;
died: skip
}

/* Buries the dead now and then, and at the end gets what is left. */
proctype watcher() {
  byte n = 0;
  do
  :: n < 3 ->
     n++;
     acquire(WATCHER);
     if :: dead[PRODUCER] -> holds[PRODUCER] = false :: else fi;
     if :: dead[CONSUMER] -> holds[CONSUMER] = false :: else fi;
     rebuild();
     unlock()
  :: else -> break
  od;
  timeout;                                /* the others have ended, one way or the other */
  acquire(WATCHER);
  if :: dead[PRODUCER] -> holds[PRODUCER] = false :: else fi;
  if :: dead[CONSUMER] -> holds[CONSUMER] = false :: else fi;
  rebuild();
  if
  :: head != tail -> atomic { head++; received++ }; in_ring = false; free_if_unused()
  :: else
  fi;
  unlock();
  assert(!taken);                         /* nothing leaks */
  assert(received == sent)                /* nothing is lost, nothing comes twice */
}

init {
  atomic { run producer(); run consumer(); run watcher() }
}
