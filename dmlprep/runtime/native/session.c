/* Sessions of the host. */
#include "session.h"
#include "cache.h"
#include "ort.h"
#include "values.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "winnls.h"

enum { MAX_SESSIONS = 64, MAX_OPTIONS = 256, MAX_FEEDS = 512, MAX_OUTPUTS = 8192, MAX_RANK = 32 };

static environment *runtime;
static const char *models_folder, *exchange_folder;
static session *sessions[MAX_SESSIONS];

static struct
{
    char *key, *value;
} pending_options[MAX_OPTIONS];
static int option_count;

struct feed
{
    char *name;
    int items; /* of a sequence that is still being collected, else 0 */
    int collected;
    value *value;
    value *parts[256];
    struct mapping mappings[256];
};
static struct feed feeds[MAX_FEEDS];
static int feed_count;

static char *wanted[MAX_OUTPUTS];
static int wanted_count;

/* What a session was bound to, ready to be run again and again. */
static struct bound
{
    struct feed *feeds;
    const char **names;
    const value **inputs;
    int count;
    char **wanted;
    int wanted_count;
    value **results;
    binding *device; /* once it was asked for */
    int adapter;
} bounds[MAX_SESSIONS];

/* What stays with a session from one step to the next. */
static struct cache *caches[MAX_SESSIONS];

/* What a request that came before the answer could say broke; told with the answer. */
static char complaint[512];

static void WINAPI log_line(void *parameter, int severity, const char *category, const char *id, const char *place, const char *text)
{
    fprintf(stderr, "[%d] %s %s\n", severity, place ? place : "", text ? text : "");
}

int session_start(const char *models, const char *exchange)
{
    enum { WARNING = 2 };
    models_folder = models;
    exchange_folder = exchange;
    return !ort.CreateEnvWithCustomLogger(log_line, NULL, WARNING, "dmlprep", &runtime);
}

/* Says "fail" for a status and releases it. 1 when there was one. */
static int failed(status *status, const char *kind)
{
    if (!status)
        return 0;
    say("fail", kind, ort.GetErrorMessage(status), NULL);
    ort.ReleaseStatus(status);
    return 1;
}

static session **find(int number)
{
    return number >= 0 && sessions[number % MAX_SESSIONS] ? &sessions[number % MAX_SESSIONS] : NULL;
}

static WCHAR *windows_path(const char *folder, const char *name)
{
    static WCHAR wide[1200];
    char path[1200];

    snprintf(path, sizeof(path), "Z:%s/%s", folder, name);
    for (char *c = path; *c; c++)
        if (*c == '/')
            *c = '\\';
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, sizeof(wide) / sizeof(*wide));
    return wide;
}

void session_option(const char *key, const char *value)
{
    if (option_count == MAX_OPTIONS)
        return;
    pending_options[option_count].key = strdup(key);
    pending_options[option_count++].value = strdup(value);
}

/* One option line; what is not named here concerns Windows alone. */
static status *apply(options *settings, const char *key, const char *value, int number)
{
    static const struct { const char *name; int level; } levels[] = {{"disabled", 0}, {"basic", 1}, {"extended", 2}, {"all", 99}}; /* GraphOptimizationLevel */
    const char *name = strchr(key, ':');
    int on = !strcmp(value, "1");
    char profile[40];

    if (name)
    {
        name++;
        if (!strncmp(key, "dim:", 4))
            return ort.AddFreeDimensionOverrideByName(settings, name, atoll(value));
        if (!strncmp(key, "denotation:", 11))
            return ort.AddFreeDimensionOverride(settings, name, atoll(value));
        return ort.AddSessionConfigEntry(settings, name, value);
    }
    if (!strcmp(key, "optimization"))
        for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
            if (!strcmp(value, levels[i].name))
                return ort.SetSessionGraphOptimizationLevel(settings, levels[i].level);
    if (!strcmp(key, "threads") && atoi(value))
        return ort.SetIntraOpNumThreads(settings, atoi(value));
    if (!strcmp(key, "log_level"))
        return ort.SetSessionLogSeverityLevel(settings, atoi(value));
    if (!strcmp(key, "record_placement") && on)
        return ort.AddSessionConfigEntry(settings, "session.record_ep_graph_assignment_info", "1");
    if (!strcmp(key, "unfused") && on)
        return ort.AddSessionConfigEntry(settings, "ep.dml.disable_graph_fusion", "1");
    if (!strcmp(key, "cpu_fallback") && !on)
        return ort.AddSessionConfigEntry(settings, "session.disable_cpu_ep_fallback", "1");
    if (!strcmp(key, "profile") && on)
    {
        snprintf(profile, sizeof(profile), "profile%d", number);
        return ort.EnableProfiling(settings, windows_path(exchange_folder, profile));
    }
    return NULL;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void say_seconds(double seconds)
{
    char text[40];

    snprintf(text, sizeof(text), "%.9f", seconds);
    say("took", text, NULL);
}

static status *make_options(options **settings, int number)
{
    enum { SEQUENTIAL = 0 };
    const struct ort_dml *dml = NULL;
    status *broken = ort.CreateSessionOptions(settings);
    int device_id = 0;

    for (int i = 0; i < option_count; i++)
    {
        if (!broken)
            broken = apply(*settings, pending_options[i].key, pending_options[i].value, number);
        if (!strcmp(pending_options[i].key, "device_id"))
            device_id = atoi(pending_options[i].value);
        free(pending_options[i].key);
        free(pending_options[i].value);
    }
    option_count = 0;
    bounds[number % MAX_SESSIONS].adapter = device_id;
    if (!broken)
        broken = ort.DisableMemPattern(*settings);
    if (!broken)
        broken = ort.SetSessionExecutionMode(*settings, SEQUENTIAL);
    if (!broken)
        broken = ort.GetExecutionProviderApi("DML", ORT_API_LEAST, (const void **)&dml);
    if (!broken)
        broken = dml->append(*settings, device_id);
    return broken;
}

static status *say_values(session *loaded, const char *word, size_t count,
        status *(WINAPI *get_name)(const session *, size_t, allocator *, char **),
        status *(WINAPI *get_type)(const session *, size_t, type_info **))
{
    status *broken = NULL;
    allocator *memory;
    type_info *info;
    char *name;

    ort.GetAllocatorWithDefaultOptions(&memory);
    for (size_t i = 0; i < count && !broken; i++)
    {
        if ((broken = get_name(loaded, i, memory, &name)) || (broken = get_type(loaded, i, &info)))
            break;
        say_field(word);
        say_field(name);
        broken = say_type(info);
        say_end();
        ort.AllocatorFree(memory, name);
        ort.ReleaseTypeInfo(info);
    }
    return broken;
}

void session_load(int number, const char *model)
{
    session **slot = &sessions[number % MAX_SESSIONS];
    options *settings = NULL;
    size_t inputs = 0, outputs = 0;
    status *broken;
    double began;

    if (*slot)
        return say("fail", "protocol", "too many sessions are open", NULL);
    broken = make_options(&settings, number);
    began = now();
    if (!broken)
        broken = ort.CreateSession(runtime, windows_path(models_folder, model), settings, slot);
    began = now() - began;
    if (settings)
        ort.ReleaseSessionOptions(settings);
    if (failed(broken, "load"))
        return;
    say_seconds(began);
    ort.SessionGetInputCount(*slot, &inputs);
    ort.SessionGetOutputCount(*slot, &outputs);
    if (failed(say_values(*slot, "input", inputs, ort.SessionGetInputName, ort.SessionGetInputTypeInfo), "load"))
        return;
    if (failed(say_values(*slot, "output", outputs, ort.SessionGetOutputName, ort.SessionGetOutputTypeInfo), "load"))
        return;
    say("ok", NULL);
}

static void complain(status *status)
{
    if (!status)
        return;
    snprintf(complaint, sizeof(complaint), "%s", ort.GetErrorMessage(status));
    ort.ReleaseStatus(status);
}

void session_feed_sequence(const char *name, int count)
{
    if (feed_count == MAX_FEEDS || count < 1 || count > 256)
    {
        snprintf(complaint, sizeof(complaint), "a sequence of 1 to 256 tensors can be fed");
        return;
    }
    memset(&feeds[feed_count], 0, sizeof(feeds[0]));
    feeds[feed_count].name = strdup(name);
    feeds[feed_count++].items = count;
}

void session_feed(const struct line *line)
{
    int64_t dims[MAX_RANK];
    int rank = line->count - 4, element = element_of(line->field[2]);
    char path[600];
    value *read = NULL;

    if (rank > MAX_RANK || element < 0 || feed_count == MAX_FEEDS)
    {
        snprintf(complaint, sizeof(complaint), "input %s cannot be fed", line->field[1]);
        return;
    }
    for (int i = 0; i < rank; i++)
        dims[i] = atoll(line->field[4 + i]);
    snprintf(path, sizeof(path), "%s/%s", exchange_folder, line->field[3]);

    if (feed_count && feeds[feed_count - 1].items > feeds[feed_count - 1].collected)
    {
        int last = feed_count - 1, item = feeds[last].collected++;
        complain(value_read(path, element, dims, rank, &feeds[last].parts[item], &feeds[last].mappings[item]));
        if (feeds[last].collected == feeds[last].items)
            complain(ort.CreateValue((const value *const *)feeds[last].parts, (size_t)feeds[last].items, TYPE_SEQUENCE,
                    &feeds[last].value));
        return;
    }
    memset(&feeds[feed_count], 0, sizeof(feeds[0]));
    complain(value_read(path, element, dims, rank, &read, &feeds[feed_count].mappings[0]));
    feeds[feed_count].name = strdup(line->field[1]);
    feeds[feed_count++].value = read;
}

void session_want(const char *name)
{
    if (wanted_count < MAX_OUTPUTS)
        wanted[wanted_count++] = strdup(name);
}

static void release_feed(struct feed *feed)
{
    if (feed->value)
        ort.ReleaseValue(feed->value);
    for (int j = 0; j < 256 && (feed->parts[j] || feed->mappings[j].data); j++)
    {
        if (feed->parts[j])
            ort.ReleaseValue(feed->parts[j]);
        value_unmap(&feed->mappings[j]);
    }
    free(feed->name);
}

static void release_results(value **results, int count)
{
    for (int i = 0; results && i < count; i++)
    {
        if (results[i])
            ort.ReleaseValue(results[i]);
        results[i] = NULL;
    }
}

static void forget_run(value **results)
{
    release_results(results, wanted_count);
    for (int i = 0; i < wanted_count; i++)
        free(wanted[i]);
    for (int i = 0; i < feed_count; i++)
        release_feed(&feeds[i]);
    wanted_count = feed_count = 0;
    complaint[0] = 0;
}

static void want_all(session *loaded)
{
    allocator *memory;
    size_t count = 0;
    char *name;

    ort.GetAllocatorWithDefaultOptions(&memory);
    ort.SessionGetOutputCount(loaded, &count);
    for (size_t i = 0; i < count && i < MAX_OUTPUTS; i++)
    {
        ort.SessionGetOutputName(loaded, i, memory, &name);
        session_want(name);
        ort.AllocatorFree(memory, name);
    }
}

/* One run on what was fed; with a cache, one step. */
static void run_or_step(int number, int step)
{
    static const char *names[MAX_FEEDS];
    static const value *inputs[MAX_FEEDS];
    session **loaded = find(number);
    struct cache *cache = loaded ? caches[number % MAX_SESSIONS] : NULL;
    value **results = NULL;
    int broken = 1;

    if (!loaded || (step && !cache))
        say("fail", "protocol", loaded ? "nothing is held" : "no such session", NULL);
    else if (complaint[0])
        say("fail", "run", complaint, NULL);
    else
    {
        if (!wanted_count)
            want_all(*loaded);
        for (int i = 0; i < feed_count; i++)
        {
            names[i] = feeds[i].name;
            inputs[i] = feeds[i].value;
        }
        results = calloc((size_t)wanted_count + 1, sizeof(*results));
        if (step)
            broken = failed(cache_step(cache, *loaded, names, inputs, feed_count, wanted, wanted_count, results), "run");
        else
            broken = failed(ort.Run(*loaded, NULL, names, inputs, (size_t)feed_count, (const char *const *)wanted,
                                    (size_t)wanted_count, results), "run");
        for (int i = 0; i < wanted_count && !broken; i++)
            broken = failed(value_say(wanted[i], results[i], exchange_folder), "run");
    }
    if (!broken)
        say("ok", NULL);
    forget_run(results);
    free(results);
}

void session_run(int number)
{
    run_or_step(number, 0);
}

void session_step(int number)
{
    run_or_step(number, 1);
}

void session_keep(const struct line *line)
{
    if (!cache_keep(line))
        snprintf(complaint, sizeof(complaint), "%s cannot be kept", line->count > 1 ? line->field[1] : "nothing");
}

void session_hold(int number, const char *how)
{
    session **loaded = find(number);
    struct cache **cache = &caches[(number < 0 ? 0 : number) % MAX_SESSIONS];
    int adapter = bounds[(number < 0 ? 0 : number) % MAX_SESSIONS].adapter;

    if (!loaded || complaint[0])
    {
        say("fail", loaded ? "run" : "protocol", loaded ? complaint : "no such session", NULL);
        cache_forget();
        return forget_run(NULL);
    }
    cache_release(*cache);
    *cache = NULL;
    if (!failed(cache_make(*loaded, adapter, !strcmp(how, "shared"), cache), "run"))
        say("ok", NULL);
}

static void unbind(struct bound *bound)
{
    int adapter = bound->adapter;

    if (bound->device)
        ort.ReleaseIoBinding(bound->device);
    for (int i = 0; i < bound->count; i++)
        release_feed(&bound->feeds[i]);
    for (int i = 0; i < bound->wanted_count; i++)
        free(bound->wanted[i]);
    free(bound->feeds);
    free(bound->names);
    free(bound->inputs);
    free(bound->wanted);
    free(bound->results);
    memset(bound, 0, sizeof(*bound));
    bound->adapter = adapter;
}

void session_bind(int number)
{
    session **loaded = find(number);
    struct bound *bound;

    if (!loaded || complaint[0])
    {
        say("fail", loaded ? "run" : "protocol", loaded ? complaint : "no such session", NULL);
        return forget_run(NULL);
    }
    if (!wanted_count)
        want_all(*loaded);
    unbind(bound = &bounds[number % MAX_SESSIONS]);
    bound->feeds = calloc((size_t)feed_count + 1, sizeof(*bound->feeds));
    bound->names = calloc((size_t)feed_count + 1, sizeof(*bound->names));
    bound->inputs = calloc((size_t)feed_count + 1, sizeof(*bound->inputs));
    bound->wanted = calloc((size_t)wanted_count + 1, sizeof(*bound->wanted));
    bound->results = calloc((size_t)wanted_count + 1, sizeof(*bound->results));
    memcpy(bound->feeds, feeds, (size_t)feed_count * sizeof(*feeds));
    memcpy(bound->wanted, wanted, (size_t)wanted_count * sizeof(*wanted));
    for (int i = 0; i < feed_count; i++)
    {
        bound->names[i] = bound->feeds[i].name;
        bound->inputs[i] = bound->feeds[i].value;
    }
    bound->count = feed_count;
    bound->wanted_count = wanted_count;
    wanted_count = feed_count = 0; /* they are the session's now */
    say("ok", NULL);
}

/* Inputs are copied to where the session takes them, and outputs stay where they are made. */
static status *bind_device(session *loaded, struct bound *bound)
{
    enum { DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0 };
    memory_info *memory;
    status *broken;

    if (bound->device)
        return NULL;
    if ((broken = ort.CreateMemoryInfo("DML", DEVICE_ALLOCATOR, bound->adapter, DEFAULT_MEMORY, &memory))
            || (broken = ort.CreateIoBinding(loaded, &bound->device)))
        return broken;
    for (int i = 0; i < bound->count && !broken; i++)
        broken = ort.BindInput(bound->device, bound->names[i], bound->inputs[i]);
    for (int i = 0; i < bound->wanted_count && !broken; i++)
        broken = ort.BindOutputToDevice(bound->device, bound->wanted[i], memory);
    if (broken)
    {
        ort.ReleaseIoBinding(bound->device);
        bound->device = NULL;
    }
    return broken;
}

static status *run_bound(session *loaded, struct bound *bound, int on_device)
{
    status *broken;

    if (!on_device)
        return ort.Run(loaded, NULL, bound->names, bound->inputs, (size_t)bound->count, (const char *const *)bound->wanted,
                (size_t)bound->wanted_count, bound->results);
    if ((broken = ort.RunWithBinding(loaded, NULL, bound->device)))
        return broken;
    return ort.SynchronizeBoundOutputs(bound->device);
}

void session_time(int number, const char *how, int count, double seconds)
{
    session **loaded = find(number);
    struct bound *bound = &bounds[(number < 0 ? 0 : number) % MAX_SESSIONS];
    int on_device = !strcmp(how, "device");
    double last, began, ended;

    if (!loaded || !bound->feeds)
        return say("fail", "protocol", "no such session, or nothing is bound to it", NULL);
    if (on_device && failed(bind_device(*loaded, bound), "run"))
        return;
    last = now() + seconds;
    for (int i = 0; i < count; i++)
    {
        status *broken;

        began = now();
        broken = run_bound(*loaded, bound, on_device);
        ended = now();
        release_results(bound->results, bound->wanted_count);
        if (failed(broken, "run"))
            return;
        say_seconds(ended - began);
        if (ended >= last)
            break;
    }
    say("ok", NULL);
}

static void say_memory(const char *word, long long bytes)
{
    say_field("memory");
    say_field(word);
    say_number(bytes);
    say_end();
}

/* Of the device, by our own d3d12.dll; nothing before a session has loaded it. */
static void say_device_memory(void)
{
    void(WINAPI * ask)(UINT64 *) = (void *)GetProcAddress(GetModuleHandleA("d3d12.dll"), "DmlprepMemory");
    UINT64 bytes[4];

    if (!ask)
        return;
    ask(bytes);
    say_memory("device", (long long)(bytes[0] + bytes[2]));
    say_memory("device_peak", (long long)bytes[1]);
    say_memory("shared_peak", (long long)bytes[3]);
}

void session_memory(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char text[256];
    long long kilobytes;

    while (file && fgets(text, sizeof(text), file))
        if (sscanf(text, "VmHWM: %lld kB", &kilobytes) == 1)
            say_memory("peak", kilobytes * 1024);
    if (file)
        fclose(file);
    say_device_memory();
    say("ok", NULL);
}

void session_placement(int number)
{
    session **loaded = find(number);
    const part *const *parts;
    const node *const *nodes;
    const char *provider, *type, *domain, *name;
    size_t part_count, node_count;

    if (!loaded || !ort.Session_GetEpGraphAssignmentInfo)
    {
        say("fail", "run", loaded ? "this release does not record placement; 1.24 does" : "no such session", NULL);
        return;
    }
    if (failed(ort.Session_GetEpGraphAssignmentInfo(*loaded, &parts, &part_count), "run"))
        return;
    for (size_t i = 0; i < part_count; i++)
    {
        if (failed(ort.EpAssignedSubgraph_GetEpName(parts[i], &provider), "run")
                || failed(ort.EpAssignedSubgraph_GetNodes(parts[i], &nodes, &node_count), "run"))
            return;
        for (size_t j = 0; j < node_count; j++)
        {
            if (failed(ort.EpAssignedNode_GetOperatorType(nodes[j], &type), "run")
                    || failed(ort.EpAssignedNode_GetDomain(nodes[j], &domain), "run")
                    || failed(ort.EpAssignedNode_GetName(nodes[j], &name), "run"))
                return;
            say("node", provider, type, domain, name, NULL);
        }
    }
    say("ok", NULL);
}

void session_timings(int number)
{
    session **loaded = find(number);
    allocator *memory;
    char *path, *name;

    if (!loaded)
        return say("fail", "protocol", "no such session", NULL);
    ort.GetAllocatorWithDefaultOptions(&memory);
    if (failed(ort.SessionEndProfiling(*loaded, memory, &path), "run"))
        return;
    name = strrchr(path, '\\');
    say("file", name ? name + 1 : path, NULL);
    ort.AllocatorFree(memory, path);
    say("ok", NULL);
}

void session_close(int number)
{
    session **loaded = find(number);

    if (loaded)
    {
        unbind(&bounds[number % MAX_SESSIONS]);
        cache_release(caches[number % MAX_SESSIONS]);
        caches[number % MAX_SESSIONS] = NULL;
        ort.ReleaseSession(*loaded);
        *loaded = NULL;
    }
    say("ok", NULL);
}
