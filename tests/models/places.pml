/* How a place in an arena's process table changes hands (src/shm/ledger_places.cpp: claim, inherit,
 * arrive, leave, bury), under death at any step: of processes that come by themselves, of one that
 * a fork makes and that may come too late, and of messages that they have sent and nobody receives.
 *
 * One place and one who buries. A message says only from which place it was sent. Nobody's message
 * may be taken for an orphan while its sender is there, and none may be forgotten after.
 *
 * To see what the word LEFT is for: spin -DWITHOUT_LEFT. Who leaves makes the place free at once;
 * its message is then never found, or another's is that of the dead.
 */

#define PROCESSES 3
#define ROUNDS 4

#define FREE 0
#define LEFT 99
#define UNBORN 50                 /* + the child that it is for */

#define NOBODY 0                  /* lock */
#define PLACE 1
#define BURIER 2

byte identity = FREE;             /* of the place: FREE, LEFT, UNBORN + n, or process n = 1, 2, ... */
byte lock = NOBODY;
bool gone[PROCESSES + 1];         /* what the kernel says of a process */
bool under_way[PROCESSES + 1];    /* its message, sent from the place */
byte inside = 0;                  /* processes that believe the place to be theirs */

/* The patience with a child that is to be born may be over at any time. */
#define IS_DEAD(word) (word == LEFT || word >= UNBORN || (word != FREE && gone[word]))
#define MAY_DIE if :: atomic { gone[me] = true; goto died } :: skip fi

inline acquire(who) {
  atomic { (lock == NOBODY || (lock == PLACE && who != PLACE && IS_DEAD(identity))) -> lock = who }
}

/* One store a message; the sender of each is gone. */
inline clear_place(n) {
  n = 1;
  do
  :: n <= PROCESSES ->
     if :: under_way[n] -> atomic { assert(gone[n]); under_way[n] = false } :: else fi;
     n++
  :: else -> break
  od
}

proctype process(byte me; bool is_forked) {
  byte seen;
  byte n;
  if
  :: is_forked ->
     atomic {
       if :: identity == FREE -> identity = UNBORN + me :: else -> gone[me] = true; goto died fi
     };
     MAY_DIE;
     atomic {                     /* it arrives, unless it was given up */
       if :: identity == UNBORN + me -> identity = me :: else -> gone[me] = true; goto died fi
     }
  :: else ->
     seen = identity;
     if
     :: seen == FREE ->
        atomic { if :: identity == FREE -> identity = me :: else -> gone[me] = true; goto died fi }
     :: seen != FREE && IS_DEAD(seen) && lock != PLACE ->
        atomic { if :: identity == seen -> identity = me :: else -> gone[me] = true; goto died fi };
        MAY_DIE;
        acquire(PLACE);
        MAY_DIE;
        clear_place(n);
        MAY_DIE;
        lock = NOBODY
     :: else -> gone[me] = true; goto died
     fi
  fi;
  atomic { inside++; assert(inside == 1) };
  acquire(PLACE);
  if :: atomic { inside--; gone[me] = true; goto died } :: skip fi;
  under_way[me] = true;
  if :: atomic { inside--; gone[me] = true; goto died } :: skip fi;
  lock = NOBODY;
  assert(under_way[me] && identity == me);
  atomic {
    inside--;
    gone[me] = true;              /* from the place: it may live on elsewhere */
    if
#ifdef WITHOUT_LEFT
    :: identity = FREE
#else
    :: identity = LEFT
#endif
    :: skip                       /* killed */
    fi
  };
died: skip
}

inline bury() {
  seen = identity;
  if
  :: IS_DEAD(seen) ->
     acquire(BURIER);
     seen = identity;
     if
     :: IS_DEAD(seen) ->
        atomic { if :: identity == seen -> identity = LEFT :: else -> seen = FREE fi };
        if
        :: seen != FREE ->
           clear_place(n);
           atomic { if :: identity == LEFT -> identity = FREE :: else fi }
        :: else
        fi
     :: else
     fi;
     lock = NOBODY
  :: else
  fi
}

proctype burier() {
  byte seen;
  byte n;
  byte rounds = 0;
  do
  :: rounds < ROUNDS -> rounds++; bury()
  :: else -> break
  od;
  timeout;                        /* the others have ended, one way or the other */
  bury();
  n = 1;
  do
  :: n <= PROCESSES -> assert(!under_way[n]); n++
  :: else -> break
  od;
  assert(identity == FREE)
}

init {
  atomic { run process(1, false); run process(2, false); run process(3, true); run burier() }
}
