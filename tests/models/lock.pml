/* The lock of an arena (src/shm/ledger_lock.cpp) under death at any step.
 *
 * Processes have places, which are used again after a death. The lock's word names the holder's
 * place and counts how often it was taken. A waiter that finds the holder dead takes the lock from
 * it by a compare-and-exchange with the word that it saw.
 *
 * To see what the count is for: spin -DWITHOUT_COUNT. Two processes then hold the lock at once.
 */

#define PLACES 3
#define DEATHS 2
#define ROUNDS 1

#ifdef WITHOUT_COUNT
#define TAKEN(seen, place) (place + 1)
#else
#define TAKEN(seen, place) (((seen) / 4 + 1) * 4 + place + 1)
#endif
#define HOLDER(word) ((word) % 4)

byte word = 0;        /* count * 4 + (place + 1 of the holder, or 0) */
bool dead[PLACES];
bool free[PLACES];    /* the place is nobody's */
byte inside = 0;      /* living processes that believe that they have the lock */
byte deaths = 0;
byte running = PLACES;

#define MAY_DIE if :: deaths < DEATHS -> atomic { deaths++; dead[place] = true; goto died } :: skip fi

proctype process(byte place) {
  byte seen;
  byte rounds = 0;
  bool stolen;
  do
  :: rounds < ROUNDS ->
     rounds++;
     stolen = false;
     do
     :: seen = word;
        MAY_DIE;
        if
        :: HOLDER(seen) == 0 ->
           atomic { if :: word == seen -> word = TAKEN(seen, place); break :: else fi }
        :: HOLDER(seen) != 0 && dead[HOLDER(seen) - 1] ->
           MAY_DIE;  /* here others may have taken it, and given the place to a new process */
           atomic {
             if
             :: word == seen -> word = TAKEN(seen, place); stolen = true; break
             :: else
             fi
           }
        :: else -> (word != seen || dead[HOLDER(seen) - 1])  /* asleep */
        fi
     od;
     inside++;
     assert(inside == 1);
     if :: deaths < DEATHS -> atomic { deaths++; inside--; dead[place] = true; goto died } :: skip fi;
     /* Who has the lock gives the places of the dead to others. */
     atomic {
       byte i = 0;
       do
       :: i < PLACES -> if :: dead[i] && i != place -> free[i] = true :: else fi; i++
       :: else -> break
       od
     };
     inside--;
#ifdef WITHOUT_COUNT
     word = 0
#else
     atomic { word = word - HOLDER(word) }
#endif
  :: else -> break
  od;
  running--;
  goto end;
died:
  /* A new process in the place, once somebody has buried the old one, or none. */
  if
  :: atomic { free[place] -> free[place] = false; dead[place] = false; run process(place) }
  :: timeout -> running--
  fi;
end: skip
}

init {
  atomic { run process(0); run process(1); run process(2) }
}
