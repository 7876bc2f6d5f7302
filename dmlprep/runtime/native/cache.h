/* Values that stay with a session from one run to the next: past and present keys and values. */
#ifndef DMLPREP_CACHE_H
#define DMLPREP_CACHE_H

#include "ort.h"

struct line;

/* One pair of a past and a present is noted until the next cache_make or cache_forget. 0 when it cannot be. */
int cache_keep(const struct line *line);
void cache_forget(void);

/* The noted pairs become the cache of a session. Shared: past and present of a pair are one memory of the device, of
 * the noted shape; what it holds at first is not known. Else a run's present is the next run's past. */
struct cache;
status *cache_make(session *loaded, int adapter, int shared, struct cache **made);
void cache_release(struct cache *cache);

/* One run with the cache on both sides; the results are those of the names that are wanted. */
status *cache_step(struct cache *cache, session *loaded, const char **names, const value **inputs, int count,
        char **wanted, int wanted_count, value **results);

#endif
