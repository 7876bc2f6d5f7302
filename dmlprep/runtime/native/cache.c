/* Values that stay with a session from one run to the next: past and present keys and values. */
#include "cache.h"
#include "values.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PAIRS = 1024, MAX_RANK = 8, DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0 };

struct pair
{
    char *input, *output;
    int element, rank;
    int64_t dims[MAX_RANK];
    value *value;
};

struct cache
{
    struct pair *pairs;
    int count, shared;
    memory_info *device, *cpu;
    allocator *memory;
};

static struct pair pending[MAX_PAIRS];
static int pending_count;

int cache_keep(const struct line *line)
{
    struct pair *pair = &pending[pending_count];
    int rank = line->count - 4, element = line->count > 3 ? element_of(line->field[3]) : -1;

    if (pending_count == MAX_PAIRS || rank < 0 || rank > MAX_RANK || element < 0 || element == ELEMENT_STRING)
        return 0;
    memset(pair, 0, sizeof(*pair));
    pair->input = strdup(line->field[1]);
    pair->output = strdup(line->field[2]);
    pair->element = element;
    pair->rank = rank;
    for (int i = 0; i < rank; i++)
        pair->dims[i] = atoll(line->field[4 + i]);
    pending_count++;
    return 1;
}

void cache_forget(void)
{
    while (pending_count)
    {
        free(pending[--pending_count].input);
        free(pending[pending_count].output);
    }
}

void cache_release(struct cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->count; i++)
    {
        if (cache->pairs[i].value)
            ort.ReleaseValue(cache->pairs[i].value);
        free(cache->pairs[i].input);
        free(cache->pairs[i].output);
    }
    if (cache->memory)
        ort.ReleaseAllocator(cache->memory);
    if (cache->device)
        ort.ReleaseMemoryInfo(cache->device);
    if (cache->cpu)
        ort.ReleaseMemoryInfo(cache->cpu);
    free(cache->pairs);
    free(cache);
}

static status *make_values(struct cache *cache, session *loaded)
{
    allocator *memory;
    status *broken;

    if (cache->shared)
        broken = ort.CreateAllocator(loaded, cache->device, &cache->memory);
    else
        broken = ort.GetAllocatorWithDefaultOptions(&memory);
    if (!broken && cache->shared)
        memory = cache->memory;
    for (int i = 0; i < cache->count && !broken; i++)
    {
        struct pair *pair = &cache->pairs[i];

        broken = ort.CreateTensorAsOrtValue(memory, pair->dims, (size_t)pair->rank, pair->element, &pair->value);
    }
    return broken;
}

status *cache_make(session *loaded, int adapter, int shared, struct cache **made)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    status *broken;

    cache->shared = shared;
    cache->count = pending_count;
    cache->pairs = calloc((size_t)pending_count + 1, sizeof(*cache->pairs));
    memcpy(cache->pairs, pending, (size_t)pending_count * sizeof(*pending));
    pending_count = 0;
    if ((broken = ort.CreateMemoryInfo("DML", DEVICE_ALLOCATOR, adapter, DEFAULT_MEMORY, &cache->device))
            || (broken = ort.CreateCpuMemoryInfo(DEVICE_ALLOCATOR, DEFAULT_MEMORY, &cache->cpu))
            || (broken = make_values(cache, loaded)))
    {
        cache_release(cache);
        return broken;
    }
    *made = cache;
    return NULL;
}

static status *bind(struct cache *cache, binding *bound, const char **names, const value **inputs, int count, char **wanted,
        int wanted_count)
{
    status *broken = NULL;

    for (int i = 0; i < count && !broken; i++)
        broken = ort.BindInput(bound, names[i], inputs[i]);
    for (int i = 0; i < cache->count && !broken; i++)
    {
        struct pair *pair = &cache->pairs[i];

        if ((broken = ort.BindInput(bound, pair->input, pair->value)))
            break;
        if (cache->shared)
            broken = ort.BindOutput(bound, pair->output, pair->value);
        else
            broken = ort.BindOutputToDevice(bound, pair->output, cache->device);
    }
    for (int i = 0; i < wanted_count && !broken; i++)
        broken = ort.BindOutputToDevice(bound, wanted[i], cache->cpu);
    return broken;
}

/* Outputs come in the order in which they were bound: the cache's first. */
static status *take(struct cache *cache, binding *bound, int wanted_count, value **results)
{
    allocator *memory;
    value **found = NULL;
    size_t count = 0;
    status *broken;

    ort.GetAllocatorWithDefaultOptions(&memory);
    if ((broken = ort.GetBoundOutputValues(bound, memory, &found, &count)))
        return broken;
    for (size_t i = 0; i < count; i++)
    {
        int place = (int)i - cache->count;

        if (place >= 0 && place < wanted_count)
            results[place] = found[i];
        else if (place < 0 && !cache->shared)
        {
            ort.ReleaseValue(cache->pairs[i].value);
            cache->pairs[i].value = found[i];
        }
        else
            ort.ReleaseValue(found[i]);
    }
    ort.AllocatorFree(memory, found);
    return NULL;
}

status *cache_step(struct cache *cache, session *loaded, const char **names, const value **inputs, int count, char **wanted,
        int wanted_count, value **results)
{
    binding *bound = NULL;
    status *broken = ort.CreateIoBinding(loaded, &bound);

    if (broken)
        return broken;
    if (!(broken = bind(cache, bound, names, inputs, count, wanted, wanted_count))
            && !(broken = ort.RunWithBinding(loaded, NULL, bound)) && !(broken = ort.SynchronizeBoundOutputs(bound)))
        broken = take(cache, bound, wanted_count, results);
    ort.ReleaseIoBinding(bound);
    return broken;
}
