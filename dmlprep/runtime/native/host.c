/* The worker of the Linux runtime: loads and runs models on ONNX Runtime's DirectML provider under Wine.
 *
 *     host LIBRARIES MODELS EXCHANGE
 *
 * LIBRARIES is the folder of onnxruntime.dll and DirectML.dll, as Windows names it; MODELS and EXCHANGE are Unix paths.
 * It speaks wire.py on descriptors 0 and 1; what libraries print goes to descriptor 2. Built with winegcc: a Windows
 * program that may use POSIX calls.
 */
#include "ort.h"
#include "session.h"
#include "wire.h"
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "winnls.h"
#include "winuser.h"

struct ort ort;

static const struct ort_base *base;
static HMODULE directml;

static HMODULE load_library(const char *folder, const char *name)
{
    char path[MAX_PATH];
    HMODULE module;

    snprintf(path, sizeof(path), "%s\\%s", folder, name);
    module = LoadLibraryExA(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!module)
        fprintf(stderr, "%s cannot be loaded: error %lu\n", path, (unsigned long)GetLastError());
    return module;
}

/* The functions that this program needs, from ONNX Runtime's table. */
static int find_functions(HMODULE onnxruntime)
{
    const struct ort_base *(WINAPI * get_base)(void) = (void *)GetProcAddress(onnxruntime, "OrtGetApiBase");
    void *const *table;

    if (!get_base || !(base = get_base()) || !(table = base->get_api(ORT_API_LEAST)))
        return 0;
#define FIND(place, result, name, parameters) ort.name = (result(WINAPI *) parameters)table[place];
    ORT_FUNCTIONS(FIND)
    if ((table = base->get_api(ORT_API_GRAPH_ASSIGNMENT)))
    {
        ORT_FUNCTIONS_24(FIND)
    }
#undef FIND
    return 1;
}

/* An exception that nobody handles: said in words, in place of Wine's debugger, which would hold the process. */
static LONG WINAPI last_words(EXCEPTION_POINTERS *exception)
{
    void *address = exception->ExceptionRecord->ExceptionAddress;
    HMODULE module = NULL;
    char path[MAX_PATH] = "?";
    const char *name;

    GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, address, &module);
    if (module)
        GetModuleFileNameA(module, path, sizeof(path));
    name = strrchr(path, '\\');
    fprintf(stderr, "exception %08lX in %s+%lx\n", (unsigned long)exception->ExceptionRecord->ExceptionCode,
            name ? name + 1 : path, (unsigned long)((char *)address - (char *)module));
    _exit(99);
}

static void hello(void)
{
    say("device", "onnxruntime", base->get_version(), NULL);
    say_device(directml);
}

static void answer(struct line *line)
{
    const char *word = line->field[0];
    const char *argument = line->count > 1 ? line->field[1] : "";

    if (!strcmp(word, "option") && line->count == 3)
        return session_option(argument, line->field[2]);
    if (!strcmp(word, "feed") && line->count >= 4)
        return session_feed(line);
    if (!strcmp(word, "feedsequence") && line->count >= 3)
        return session_feed_sequence(argument, atoi(line->field[2]));
    if (!strcmp(word, "want"))
        return session_want(argument);
    if (!strcmp(word, "keep"))
        return session_keep(line);

    if (!strcmp(word, "hello"))
    {
        hello();
        say("ok", NULL);
    }
    else if (!strcmp(word, "load") && line->count == 3)
        session_load(atoi(argument), line->field[2]);
    else if (!strcmp(word, "run"))
        session_run(atoi(argument));
    else if (!strcmp(word, "hold") && line->count == 3)
        session_hold(atoi(argument), line->field[2]);
    else if (!strcmp(word, "step"))
        session_step(atoi(argument));
    else if (!strcmp(word, "bind"))
        session_bind(atoi(argument));
    else if (!strcmp(word, "time") && line->count == 5)
        session_time(atoi(argument), line->field[2], atoi(line->field[3]), atof(line->field[4]));
    else if (!strcmp(word, "memory"))
        session_memory();
    else if (!strcmp(word, "placement"))
        session_placement(atoi(argument));
    else if (!strcmp(word, "timings"))
        session_timings(atoi(argument));
    else if (!strcmp(word, "close"))
        session_close(atoi(argument));
    else
        say("fail", "protocol", "unknown request", NULL);
    say_flush();
}

int main(int argc, char **argv)
{
    struct line line = {0};
    HMODULE onnxruntime;

    if (argc != 4)
        return 2;
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
    SetUnhandledExceptionFilter(last_words);
    /* Before onnxruntime.dll, which would find another one in the system folder. */
    if (!(directml = load_library(argv[1], "DirectML.dll")))
        return 3;
    if (!(onnxruntime = load_library(argv[1], "onnxruntime.dll")) || !find_functions(onnxruntime))
        return 4;
    if (!session_start(argv[2], argv[3]))
        return 5;
    while (read_line(&line) && strcmp(line.field[0], "quit"))
        answer(&line);
    /* Destructors of libraries have hung here; there is nothing left to save. */
    _exit(0);
}
